import assert from "node:assert/strict";
import { test } from "node:test";
import { OPERATOR_WIDTH, connection, layOutPipeline, momentAt, rates } from "../../ray_tracing_hooks/_insight/views/page/assets/tracks.js";
import { causeClass, causeText, perSecond, trackTip } from "../../ray_tracing_hooks/_insight/views/page/assets/tracks.js";

const operator = (id, ...inputs) => ({ id, inputs });

test("an operator is in the column after all of its inputs", () => {
  const { boxes, edges, size } = layOutPipeline([operator("read"), operator("map", "read"), operator("other"), operator("join", "map", "other"), operator("write", "join")]);
  assert.deepEqual(boxes.map(({ column }) => column), [0, 1, 0, 2, 3]);
  assert.deepEqual(edges, [[0, 1], [1, 3], [2, 3], [3, 4]]);
  for (const [from, to] of edges) assert.ok(boxes[to].x > boxes[from].x + OPERATOR_WIDTH);
  assert.ok(boxes.every(({ x, y }) => x >= 0 && y >= 0 && x + OPERATOR_WIDTH <= size[0] && y < size[1]));
});

test("boxes of a column do not overlap, and are near what they are connected to", () => {
  const { boxes } = layOutPipeline([operator("a"), operator("b"), operator("of b", "b"), operator("of a", "a")]);
  assert.deepEqual(boxes.map(({ column }) => column), [0, 0, 1, 1]);
  assert.ok((boxes[0].y < boxes[1].y) === (boxes[3].y < boxes[2].y));
  assert.notEqual(boxes[0].y, boxes[1].y);
});

test("inputs without a box, cycles and nothing at all are laid out too", () => {
  assert.deepEqual(layOutPipeline([operator("map", "gone", "map")]).edges, []);
  assert.equal(layOutPipeline([operator("a", "b"), operator("b", "a")]).boxes.length, 2);
  assert.deepEqual(layOutPipeline([]).boxes, []);
});

test("an edge leads from the right of a box to the left of the next", () => {
  const { boxes: [from, to] } = layOutPipeline([operator("a"), operator("b", "a")]);
  const { shape, x } = connection(from, to);
  assert.match(shape, new RegExp(`^M${from.x + OPERATOR_WIDTH},`));
  assert.ok(x > from.x + OPERATOR_WIDTH && x < to.x);
});

test("a value holds until the next moment", () => {
  assert.deepEqual([-1, 0, 5, 10, 15, 99].map((time) => momentAt([0, 10, 20], time)), [0, 0, 0, 1, 1, 2]);
  assert.equal(momentAt([], 5), -1);
});

test("rates are of the rows since the moment before, or since the operator began", () => {
  assert.deepEqual(rates({ ns: [2e9, 3e9, 3e9, 5e9], rows: [10, 30, 30, 20] }, 1e9), [10, 20, 0, 0]);
  assert.deepEqual(["0.50", "12.3", "4,200"], [0.5, 12.34, 4200].map(perSecond));
});

test("what held an operator back has a class and words", () => {
  const cause = (kind, policy, resource) => ({ kind, policy, resource });
  assert.deepEqual(["CPU", "CPU and object store memory", "memory", "GPU", "concurrency limit", ""].map((resource) => causeClass({ resource })),
    ["processors", "memory", "memory", "processors", "limit", "limit"]);
  assert.equal(causeText(cause("submission", "ResourceBudget", "CPU")), "CPU (ResourceBudget)");
  assert.equal(causeText(cause("output", "ResourceBudget", "")), "ResourceBudget, reading its output");
  assert.equal(causeText(cause("submission", "", "")), "a policy");
});

test("a tip tells of the moment at a position, and of none beside the plot", () => {
  const timeline = { ns: [1e9, 2e9], queued_blocks: [3, 1], queued_bytes: [3000, 10], running: [1, 2], rows: [0, 40] };
  const held = { kind: "submission", policy: "ResourceBudget", resource: "CPU", start: 11.5e9, ns: 1e9 };
  const dataset = { start: 10e9, operators: [{ name: "Map", start: 10e9, ns: 5e9, timeline, held_back_at: [held] }] };
  const at = (seconds, y = 40) => trackTip(dataset, [10e9, 20e9], 230 + 1 + 1000, 230 + 100 * seconds, y);
  assert.deepEqual(at(2.2).filter(Boolean), [
    "Map", "at 12.2 s, 2.20 s after the execution began", "2 running tasks, 1 block waiting (10 B)", "40 rows handed on, 40.0 rows/s", "held back for 1.00 s: CPU (ResourceBudget)",
  ]);
  assert.equal(at(7).at(-1), "not at work");
  assert.deepEqual([at(2, 5), at(2, 4000), at(-1)], [null, null, null]);
});
