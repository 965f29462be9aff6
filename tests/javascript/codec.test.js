import assert from "node:assert/strict";
import { test } from "node:test";
import { gzipSync } from "node:zlib";
import { Details, columnsOf, readColumns, spanColumns } from "../../ray_tracing_hooks/_insight/views/page/assets/codec.js";

/** A block as pack.py makes it. */
function packed(given) {
  const header = [], planes = [];
  for (const [name, numbers] of Object.entries(given)) {
    const width = Math.ceil(Math.max(0, ...numbers).toString(2).length / 8) * (Math.max(0, ...numbers) > 0);
    header.push([name, numbers.length, width]);
    for (let plane = 0; plane < width; plane++) planes.push(...numbers.map((n) => Number((BigInt(n) >> BigInt(8 * plane)) & 255n)));
  }
  const head = Buffer.from(JSON.stringify(header)), size = Buffer.alloc(4);
  size.writeUInt32LE(head.length);
  return Buffer.concat([size, head, Buffer.from(planes)]);
}

const NUMBERS = { none: [], zero: [0, 0], byte: [0, 255], word: [256, 65535, 1], four: [2 ** 32 - 1, 7], large: [2 ** 53 - 1, 2 ** 40, 0] };

test("columns are unpacked from their planes", () => {
  const found = columnsOf(packed(NUMBERS));
  for (const [name, numbers] of Object.entries(NUMBERS)) assert.deepEqual(Array.from(found[name]), numbers, name);
  assert.ok(found.byte instanceof Uint8Array && found.four instanceof Uint32Array && found.large instanceof Float64Array);
});

test("a block may stand within other bytes", () => {
  const block = packed({ a: [1, 2, 300] });
  const inside = new Uint8Array(block.length + 8);
  inside.set(block, 8);
  assert.deepEqual(Array.from(columnsOf(inside.subarray(8)).a), [1, 2, 300]);
});

test("what the page carries is compressed, as text", async () => {
  const found = await readColumns(gzipSync(packed(NUMBERS)).toString("base64"));
  assert.deepEqual(Array.from(found.large), NUMBERS.large);
});

test("starts are differences, parents distances, submissions parents or others", () => {
  const rest = Object.fromEntries(["took", "name", "flags", "lane", "depth", "function", "flame", "resource", "trace", "detail"].map((name) => [name, [0, 0, 0, 0]]));
  // Zigzag plus one: of the span before 3, of the one after 2, of none 0.
  const found = spanColumns({ start: [0, 10, 5, 0], parent: [0, 3, 5, 2], submission: [0, 1, 2, 0], edge_from: [1], edge_to: [2], edge_kind: [0], ...rest });
  assert.deepEqual(Array.from(found.start), [0, 10, 15, 15]);
  assert.deepEqual(Array.from(found.parent), [-1, 0, 0, 4]);
  assert.deepEqual(Array.from(found.submission), [-1, 0, 0, -1]);
});

test("details are in chunks, which are unpacked when they are asked for", async () => {
  const line = (chunk) => gzipSync(JSON.stringify(chunk)).toString("base64");
  const text = [line({ shapes: [["a", "b"], []], spans: [["01", 0, [1, "x"], "wrong"], ["02", 1, []]] }), line({ shapes: [["c"]], spans: [["03", 0, [null]]] })].join("\n");
  const details = new Details(text, 2);
  const first = await details.of(0);
  assert.deepEqual([first.spanId, first.attributes, first.message, first.events], ["01", [["a", 1], ["b", "x"]], "wrong", []]);
  assert.equal((await details.of(2)).spanId, "03");
  assert.equal(await details.of(-1), null);
  assert.equal(await details.of(3), null);
  assert.equal(await details.of(9), null);
  assert.equal(await new Details("", 2).of(0), null);
});

test("of many chunks the last ones are kept", async () => {
  const line = gzipSync(JSON.stringify({ shapes: [[]], spans: [["01", 0, []]] })).toString("base64");
  const details = new Details(Array(20).fill(line).join("\n"), 1);
  for (let n = 0; n < 20; n++) await details.of(n);
  assert.ok(details.recent.size <= 9);
  assert.ok(details.recent.has(19));
});
