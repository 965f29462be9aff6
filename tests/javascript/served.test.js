import assert from "node:assert/strict";
import { test } from "node:test";
import { ServedStore, firstWithin, tileOf } from "../../ray_tracing_hooks/_insight/views/page/assets/served.js";
import { made } from "./made.js";

const NONE = ["row", "start", "took", "flags", "name", "function", "flame", "resource", "lane", "depth", "queued", "parent", "submission"];
const described = (spans) => Object.fromEntries(NONE.map((name) => [name, Float64Array.from(spans, (span) => span[name] ?? 0)]));

/** A store of a run of a second, whose server answers tiles of one bar. */
function served() {
  const columns = { ...described([]), begins: new Uint32Array([0, 5]), edge_from: [], edge_to: [], edge_kind: [], place_busy: [], place_calls: [], place_errors: [], strip_failed: [0], waited: new Float64Array(1024).fill(2) };
  const store = new ServedStore(made({ spans: 50, extent: 2 ** 30, deepest: [1], waiting: [3, 0], strip: [1], served: true, places: [{ label: "a", node: 0 }, { label: "b", node: 0 }] }), columns);
  const asked = [];
  store.ask = async (what, question) => {
    asked.push([what, question]);
    if (what === "filter") return { head: question.q === "bad" ? { problem: "no such thing" } : { kept: 7, running: [1], failed: [0] }, columns: { begins: new Uint32Array([0, 7]) } };
    return { head: {}, columns: { ...described([{ row: asked.length, start: 1, took: 9 }]), sub: [0], begin: [question.index * 2 ** question.level], length: [2 ** question.level], count: [4], ran: [2 ** question.level / 2], failures: [1] } };
  };
  store.layOut();
  return { store, asked };
}

const settled = () => new Promise((done) => setTimeout(done, 5));

function bars(store, sub = 0) {
  const found = [];
  store.eachBar(sub, ...store.range, (i, begin, end, flags, count, share) => found.push({ i, begin, end, flags, count, share }));
  return found;
}

test("a tile knows where each of its rows begins", () => {
  const tile = tileOf(32, Int32Array.from([5, 6, 7, 8]), { sub: [0, 0, 2, 2], begin: [10, 30, 10, 20], length: [10, 5, 5, 0], count: [1, 1, 1, 1], ran: [], failures: [] });
  assert.deepEqual(Array.from(tile.offsets.slice(0, 5)), [0, 2, 2, 4, 4]);
  assert.deepEqual(Array.from(tile.until), [20, 35, 15, 20]);
  assert.deepEqual([0, 19, 20, 34, 35].map((time) => firstWithin(tile, 0, time)), [0, 0, 1, 1, 2]);
  // One that takes no time is there at its moment.
  assert.deepEqual([15, 20, 21].map((time) => firstWithin(tile, 2, time)), [3, 3, 4]);
  assert.equal(firstWithin(tile, 1, 0), 2);
});

test("the level is that whose buckets are about a pixel", () => {
  const { store } = served();
  store.beginFrame(1024);
  assert.equal(store.level, 20 + 9);
  store.setRange(0, 2 ** 20);
  assert.equal(store.level, 10 + 9);
  store.setRange(0, 1000);
  assert.equal(store.level, 9);
  store.beginFrame(1);
  store.setRange(0, 2 ** 30);
  assert.equal(store.level, store.top);
});

test("tiles are asked for where they are not there, and a coarser one stands in", async () => {
  const { store, asked } = served();
  store.beginFrame(1024);
  assert.deepEqual(bars(store), []);
  await settled();
  // What is looked at, and the coarsest one.
  assert.deepEqual(asked.map(([, { level, index }]) => `${level}/${index}`).sort(), ["29/0", "29/1", "29/2", "31/0"]);
  assert.equal(bars(store)[0].count, 4);
  assert.equal(bars(store)[0].share, 0.5);
  assert.equal(bars(store)[0].flags & 8, 8);
  const before = asked.length;
  bars(store);
  await settled();
  assert.equal(asked.length, before);
  store.setRange(0, 2 ** 20);
  assert.ok(bars(store).length > 0 && bars(store).every(({ count }) => count === 4));
  await settled();
  assert.ok(asked.slice(before).every(([, { level }]) => level === 19));
});

test("what was wanted for a frame before is wanted no more", async () => {
  const { store, asked } = served();
  store.want("key", { level: 9, index: 0, block: 0, query: "" });
  store.beginFrame(100);
  await settled();
  assert.deepEqual(asked, []);
});

test("no more than four tiles are on their way at once", async () => {
  const { store, asked } = served();
  let answer;
  const waiting = new Promise((done) => (answer = done));
  const ask = store.ask;
  store.ask = async (...question) => {
    const found = await ask(...question);
    await waiting;
    return found;
  };
  for (let n = 0; n < 9; n++) store.want(`${n}`, { level: 9, index: n, block: 0, query: "" });
  await settled();
  assert.equal(asked.length, 4);
  answer();
  await settled();
  assert.equal(asked.length, 9);
});

test("spans have one row here, however often they are described", () => {
  const { store } = served();
  const [a, b] = store.adopt(described([{ row: 40, start: 5, queued: 4 }, { row: 41, parent: 41, submission: 41 }]));
  assert.deepEqual([a, b, store.count], [0, 1, 2]);
  assert.deepEqual(Array.from(store.adopt(described([{ row: 41 }, { row: 7 }]))), [1, 2]);
  assert.equal(store.queued(a), 3);
  assert.equal(store.queued(b), -1);
  store.adopt(described([{ row: 41, parent: 41, submission: 41 }]));
  assert.deepEqual([store.parent[b], store.submission[b], store.numberOf(b)], [a, a, 41]);
  store.adopt(described(Array.from({ length: 5000 }, (_, n) => ({ row: 100 + n, start: n }))));
  assert.equal(store.start[store.here.get(5099)], 4999);
  assert.equal(store.start[a], 5);
});

test("edges are between spans that are here, once", () => {
  const { store } = served();
  store.adopt(described([{ row: 1 }, { row: 2 }]));
  for (const to of [2, 2, 3]) store.addEdge(1, to, 1);
  assert.deepEqual(store.edges, [[0, 1, 1]]);
});

test("a filter is asked for; the last one counts, and a wrong one is said", async () => {
  const { store } = served();
  const first = store.askFilter("x");
  await store.askFilter(" y ");
  await first;
  assert.deepEqual([store.query, store.kept, store.isFiltered, store.begins[1]], ["y", 7, true, 7]);
  await store.askFilter("bad");
  assert.deepEqual([store.query, store.kept, store.isFiltered, store.notice], ["", 50, false, "no such thing"]);
  await store.askFilter("");
  assert.equal(store.notice, "");
});

test("what calls waited is spread over the parts of the run", () => {
  const [queue, none] = served().store.queues();
  assert.equal(none, null);
  assert.equal(queue.most, 3);
  assert.ok(Math.abs(queue.waited(2 ** 29) - 1024) < 1e-6);
  assert.ok(Math.abs(queue.waited(2 ** 30) - 2048) < 1e-3);
});
