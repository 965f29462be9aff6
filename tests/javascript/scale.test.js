import assert from "node:assert/strict";
import { test } from "node:test";
import { Scale, axisLabel, firstStep, niceStep } from "../../ray_tracing_hooks/_insight/views/page/assets/scale.js";
import { rangeFor } from "../../ray_tracing_hooks/_insight/views/page/assets/timeline.js";
import { inView } from "../../ray_tracing_hooks/_insight/views/page/assets/spans.js";
import { changes, store } from "./made.js";

test("a time has a place, and a place its time", () => {
  const scale = new Scale([100, 300], 230, 1000);
  assert.deepEqual([100, 200, 300].map((time) => scale.x(time)), [230, 730, 1230]);
  for (const time of [100, 123, 300, 500]) assert.ok(Math.abs(scale.timeAt(scale.x(time)) - time) < 1e-9);
});

test("an axis has steps of 1, 2 and 5", () => {
  assert.deepEqual([0.9, 1, 1.5, 3, 7, 10, 11, 4e9].map(niceStep), [1, 1, 2, 5, 10, 10, 20, 5e9]);
});

test("its labels have the unit and the digits of the step", () => {
  assert.equal(axisLabel(0, 1e9), "0 s");
  assert.equal(axisLabel(1.5e9, 5e8), "1.5 s");
  assert.equal(axisLabel(2.5e6, 5e5), "2.5 ms");
  assert.equal(axisLabel(1200, 200), "1.2 us");
  assert.equal(axisLabel(7, 1), "7 ns");
  assert.equal(axisLabel(90e9, 1e10), "1m 30s");
  assert.equal(axisLabel(90e9, 5e8), "90.0 s");
});

test("steps that follow each other are found by their end", () => {
  const steps = [10, 20, 30].map((end) => ({ end }));
  assert.deepEqual([0, 9, 10, 29, 30].map((time) => firstStep(steps, time)), [0, 0, 1, 2, 3]);
  assert.equal(firstStep([], 5), 0);
});

test("zooming keeps what is under the pointer, and stays within the run", () => {
  const spans = store([{ start: 0, took: 1e6 }], { extent: 1e6 });
  spans.setRange(0, 1e6);
  assert.equal(spans.isWhole, true);
  spans.zoom(0.5, 250000);
  assert.deepEqual(spans.range, [125000, 625000]);
  spans.zoom(2, 250000);
  assert.deepEqual(spans.range, [0, 1e6]);
  spans.zoom(10);
  assert.deepEqual(spans.range, [0, 1e6]);
  spans.zoom(1e-9, 500000);
  assert.equal(spans.range[1] - spans.range[0], 1000);
  spans.setRange(900000, 2e6);
  assert.deepEqual(spans.range, [0, 1e6]);
  spans.setRange(900000, 950000);
  spans.pan(10);
  assert.deepEqual(spans.range, [950000, 1e6]);
  spans.pan(-0.5);
  assert.deepEqual(spans.range, [925000, 975000]);
  assert.deepEqual(changes(spans, () => spans.pan(0.1)), ["range"]);
});

test("a span that is focused comes into view", () => {
  assert.equal(rangeFor([0, 1e6], 5e5, 6e5, false), null);
  assert.deepEqual(rangeFor([0, 1e6], 2e6, 2.1e6, false), [1.55e6, 2.55e6]);
  assert.deepEqual(rangeFor([0, 1e6], 2e6, 4e6, false), [1.8e6, 4.2e6]);
  assert.deepEqual(rangeFor([0, 1e6], 1e5, 2e5, true), [85000, 215000]);
});

test("of a long table only what is in view is made", () => {
  assert.deepEqual(inView(10, 26, 200, 0), { height: 260, first: 0, last: 10, shift: 0 });
  assert.deepEqual(inView(1000, 26, 260, 2600), { height: 26000, first: 100, last: 112, shift: 2600 });
  const { height, first, last } = inView(1e6, 26, 260, 8e6 - 260);
  assert.equal(height, 8e6);
  assert.equal(last, 1e6);
  assert.equal(first, 1e6 - 10);
});
