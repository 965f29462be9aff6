import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { STRIP, busyStrip, percentile, placeFigures, queuesOf, stackFigures, sums, upTo } from "../../ray_tracing_hooks/_insight/views/page/assets/figures.js";
import { columns, store } from "./made.js";

const { cases } = JSON.parse(readFileSync(new URL("cases/figures.json", import.meta.url)));

/** The spans of a case, in a range. */
function counted({ meta: { lanes, places, stacks, executions, extent }, spans }, range = [0, extent], keep = null) {
  return { ...columns(spans), count: spans.length, end: extent, range, keep, meta: { lanes, executions, places: { length: places }, flame: stacks } };
}

for (const each of cases) {
  test(`figures are those of the table: ${each.name}`, () => {
    for (const { range, ...expected } of each.ranges) {
      const found = { ...stackFigures(counted(each, range)), ...placeFigures(counted(each, range)) };
      for (const [name, values] of Object.entries(expected)) assert.deepEqual(Array.from(found[name]), values, `${name} in ${range}`);
      const ran = found.wall[0] > 0 ? 1 : 0;
      const share = Array.from(found.share).reduce((a, b) => a + b);
      assert.ok(share <= (range[1] - range[0]) * (1 + 1e-9) && share >= ran, `${share} in ${range}`);
    }
  });

  test(`what runs at once is that of the table: ${each.name}`, () => {
    const { running, failed } = busyStrip(counted(each));
    const part = (time) => Math.floor((time / each.meta.extent) * STRIP);
    for (const [time, many] of Object.entries(each.running.at)) assert.ok(Math.abs(running[part(Number(time))] - many) < 1e-6, `${time}: ${running[part(Number(time))]}`);
    assert.deepEqual([...failed.keys()].filter((n) => failed[n]), each.running.failed.map(part));
  });

  test(`what waits is that of the table: ${each.name}`, () => {
    queuesOf(counted(each)).forEach((queue, place) => {
      const expected = each.queues[place];
      assert.equal(queue?.most, expected?.most);
      for (const [time, waited] of Object.entries(expected?.waited ?? {})) assert.equal(queue.waited(Number(time)), waited, time);
    });
  });
}

test("what the filter hides does not count; a wait that it hides is one all the same", () => {
  const [first] = cases;
  const spans = counted(first, undefined, Uint8Array.from([1, 1, 1, 0, 0]));
  assert.deepEqual(Array.from(stackFigures(spans).spans), [2, 1, 0, 0]);
  assert.deepEqual(Array.from(placeFigures(spans).busy), [1000, 400, 0]);
  const { running } = busyStrip(spans);
  assert.equal(Math.round(running[Math.floor(0.4 * STRIP)]), 0);
});

test("percentiles are those of the analysis", () => {
  assert.equal(percentile([1, 2, 3, 4], 0.5), 2.5);
  assert.equal(percentile([1, 2, 3], 0.5), 2);
  assert.equal(percentile([5], 0.95), 5);
  assert.equal(percentile(Array.from({ length: 100 }, (_, n) => n), 0.95), 94.5);
});

test("sums and places among ascending values", () => {
  assert.deepEqual(Array.from(sums([1, 2, 3])), [0, 1, 3, 6]);
  assert.deepEqual([0, 1, 2, 5, 9].map((limit) => upTo([1, 2, 2, 5], limit)), [0, 1, 3, 4, 4]);
});

test("a store has the figures of its range and filter", () => {
  const each = cases[0];
  const { stacks, lanes, executions, extent } = each.meta;
  const found = store(each.spans, { lanes, executions, extent, places: Array(3).fill({ label: "", detail: "", node: 0 }), flame: { ...stacks } });
  found.setRange(0, 1000);
  assert.deepEqual(Array.from(found.placeFigures().calls), [1, 1, 1]);
  found.filter(Uint8Array.from([0, 0, 1, 1, 1]));
  assert.deepEqual(Array.from(found.placeFigures().calls), [0, 1, 1]);
  assert.equal(found.queues()[1].at(150), 1);
});
