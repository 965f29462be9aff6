import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { gzipSync } from "node:zlib";
import { Details } from "../../ray_tracing_hooks/_insight/views/page/assets/codec.js";
import { Filter } from "../../ray_tracing_hooks/_insight/views/page/assets/search.js";
import { changes, store } from "./made.js";

const { meta, sites, spans, queries } = JSON.parse(readFileSync(new URL("cases/filters.json", import.meta.url)));

function filtered() {
  const shapes = sites.map(Object.keys);
  const chunk = { shapes, spans: spans.map(({ site }, n) => [String(n), site, Object.values(sites[site])]) };
  const details = new Details(gzipSync(JSON.stringify(chunk)).toString("base64"), spans.length);
  const found = store(spans.map((span, n) => ({ ...span, detail: n + 1 })), meta, details);
  return { found, filter: new Filter(found, () => {}) };
}

const kept = (found) => spans.map((_, row) => row).filter((row) => !found.isHidden(row));

test("queries keep what the table says", async () => {
  const { found, filter } = filtered();
  for (const { query, keeps } of queries) {
    await filter.apply(query);
    assert.deepEqual(kept(found), keeps, query);
    assert.equal(found.kept, keeps.length, query);
    assert.equal(found.query, query);
  }
});

test("the last of several queries counts, whichever is ready first", async () => {
  const { found, filter } = filtered();
  const slow = filter.apply("function=load");
  await filter.apply("is:error");
  await slow;
  assert.deepEqual(kept(found), [2, 4]);
});

test("views are told once", async () => {
  const { found, filter } = filtered();
  const told = changes(found, () => filter.apply("load"));
  await new Promise((done) => setTimeout(done));
  assert.deepEqual(told, ["filter"]);
});

test("what is hidden has no place on the timeline", async () => {
  const { found, filter } = filtered();
  await filter.apply("is:error");
  assert.deepEqual(Array.from(found.order), [4, 2]);
  await filter.apply("");
  assert.equal(found.order.length, spans.length);
});
