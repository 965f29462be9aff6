import assert from "node:assert/strict";
import { test } from "node:test";
import * as flame from "../../ray_tracing_hooks/_insight/views/page/assets/flame.js";
import * as graph from "../../ray_tracing_hooks/_insight/views/page/assets/logical.js";
import * as timeline from "../../ray_tracing_hooks/_insight/views/page/assets/timeline_layout.js";
import { flattened, stacked } from "../../ray_tracing_hooks/_insight/views/page/assets/stack.js";
import { ordered } from "../../ray_tracing_hooks/_insight/views/page/assets/dom.js";
import { EXECUTION, SUBMISSION, store } from "./made.js";

// --- The timeline -------------------------------------------------------------------------------------------------

const PLACES = [{ label: "a", detail: "", node: 0 }, { label: "b", detail: "", node: 0 }, { label: "idle", detail: "", node: 1 }, { label: "c", detail: "", node: 1 }];
const inLanes = () => store([
  { start: 0, took: 100, lane: 0 }, { start: 10, took: 20, lane: 0, depth: 1 }, { start: 20, took: 30, lane: 1 }, { start: 30, took: 10, lane: 0, depth: 1 }, { start: 40, took: 5, lane: 3 },
], { lanes: [0, 1, 2, 3], places: PLACES, extent: 100 });

test("each lane has a row for each depth, with its spans by start", () => {
  const found = inLanes();
  assert.deepEqual(Array.from(found.deepest), [2, 1, 0, 1]);
  assert.deepEqual(Array.from(found.first), [0, 2, 3, 3, 4]);
  assert.deepEqual(Array.from(found.begins), [0, 1, 3, 4, 5]);
  assert.deepEqual(Array.from(found.order), [0, 1, 3, 2, 4]);
  assert.equal(found.firstOf(1), 1);
  assert.deepEqual([found.neighbour(1, 1), found.neighbour(3, -1), found.neighbour(3, 1), found.neighbour(1, -1)], [3, 1, -1, -1]);
});

test("of a row the bars in a range are visited", () => {
  const found = inLanes();
  const visited = (from, to) => {
    const rows = [];
    found.eachBar(1, from, to, (i) => rows.push(i));
    return rows;
  };
  assert.deepEqual(visited(0, 100), [1, 3]);
  assert.deepEqual(visited(0, 29), [1]);
  assert.deepEqual(visited(30, 35), [3]);
  assert.deepEqual(visited(40, 100), []);
  assert.deepEqual(visited(0, 30), [1, 3]);
});

test("what is too deep to be drawn is counted", () => {
  const found = store([{ start: 0, took: 1, depth: 249 }, { start: 0, took: 1, depth: 250 }]);
  assert.equal(found.tooDeep, 1);
  assert.deepEqual(Array.from(found.order), [0]);
});

test("rows are nodes, then places, then lanes; what is empty is left out", () => {
  const { rows, height, hiddenPlaces } = timeline.layOut(inLanes(), [null, { most: 2 }, null, null], new Set());
  assert.deepEqual(rows.map(({ kind }) => kind), ["node", "place", "bars", "bars", "place", "queue", "bars", "node", "place", "bars"]);
  assert.deepEqual(rows.filter(({ kind }) => kind === "bars").map(({ sub, place }) => [sub, place]), [[0, 0], [1, 0], [2, 1], [3, 3]]);
  assert.equal(hiddenPlaces, 1);
  assert.ok(height > rows.at(-1).y + rows.at(-1).height);
  const bars = rows.filter(({ kind }) => kind === "bars" || kind === "queue");
  for (let n = 1; n < bars.length; n++) assert.ok(bars[n].y >= bars[n - 1].y + bars[n - 1].height);
});

test("what is collapsed takes less room", () => {
  const spans = inLanes(), queues = [null, null, null, null];
  const kinds = (...collapsed) => timeline.layOut(spans, queues, new Set(collapsed)).rows.map(({ kind }) => kind).join(" ");
  assert.equal(kinds("p0"), "node place bars place bars node place bars");
  assert.equal(kinds("n0"), "node node place bars");
  assert.ok(timeline.layOut(spans, queues, new Set(["p0"])).height < timeline.layOut(spans, queues, new Set()).height);
});

test("arrows lead from a submission to its execution, and to who waits", () => {
  const spans = store([
    { start: 0, took: 100, flags: 1 }, { start: 10, took: 5, flags: SUBMISSION, parent: 0 }, { start: 30, took: 20, flags: EXECUTION, parent: 1, submission: 1 }, { start: 40, took: 15, flags: 65, parent: 0 },
  ]);
  spans.edges = [[2, 3, 1], [1, 0, 0]];
  assert.deepEqual(timeline.arrowsOf(spans, 2), [{ from: 1, fromTime: 15, to: 2, toTime: 30, isWait: false }, { from: 2, fromTime: 50, to: 3, toTime: 55, isWait: true }, { from: 1, fromTime: 15, to: 0, toTime: 0, isWait: false }]);
  assert.deepEqual(timeline.arrowsOf(spans, 3).map(({ from, to }) => [from, to]), [[2, 3]]);
  assert.deepEqual(timeline.arrowsOf(spans, 0).map(({ from, to }) => [from, to]), [[1, 2], [1, 0]]);
});

// --- The stack ----------------------------------------------------------------------------------------------------

test("above what is open stands what called it", () => {
  const spans = { parent: [-1, 0, 1, 0, -1], start: [0, 10, 20, 5, 1] };
  assert.deepEqual(flattened(stacked(spans, [2, 3])), [[0, 0], [3, 1], [1, 1], [2, 2]]);
  assert.deepEqual(flattened(stacked(spans, [])), []);
  assert.equal(flattened(stacked({ parent: [1, 0], start: [0, 0] }, [0])).length, 0);
});

test("what is open at a moment has begun and not ended, unless it still runs", () => {
  const spans = store([{ start: 0, took: 10 }, { start: 5, took: 5, flags: 16 }, { start: 7, took: 0 }], { extent: 20 });
  assert.deepEqual(spans.openAt(7), { open: [0, 1], hidden: 0 });
  assert.deepEqual(spans.openAt(20).open, [1]);
  assert.equal(spans.moment, 20);
  spans.filter(Uint8Array.from([0, 1, 1]));
  assert.deepEqual(spans.openAt(7), { open: [1], hidden: 1 });
});

// --- The flame graph ----------------------------------------------------------------------------------------------

const STACKS = { parent: [-1, 0, 0, 1, -1], first: [0, 30, 10, 40, 5], wait: [0, 0, 1, 0, 0] };
const OWN = { own: [10, 20, 100, 30, 40], share: [5, 10, 50, 15, 20] };

test("a frame is as wide as itself and all below it", () => {
  const { value, left, size, depth, levels, total } = flame.layOut(STACKS, OWN, { mode: "wall", order: "size", zoomed: -1 });
  assert.deepEqual(Array.from(value), [80, 25, 50, 15, 20]);
  assert.equal(total, 100);
  assert.deepEqual(Array.from(size), [0.8, 0.25, 0.5, 0.15, 0.2]);
  // Waiting stands behind what runs, however long it is.
  assert.deepEqual(Array.from(left), [0, 0, 0.25, 0, 0.8]);
  assert.deepEqual(Array.from(depth), [0, 1, 1, 2, 0]);
  assert.deepEqual(levels, [[0, 4], [1, 2], [3]]);
});

test("summed time has no waiting; by time is in the order of the first spans", () => {
  const { value, levels, left } = flame.layOut(STACKS, OWN, { mode: "summed", order: "time", zoomed: -1 });
  assert.deepEqual(Array.from(value), [60, 50, 0, 30, 40]);
  assert.deepEqual(levels, [[0, 4], [1], [3]]);
  const byTime = flame.layOut(STACKS, OWN, { mode: "wall", order: "time", zoomed: -1 });
  assert.ok(byTime.left[2] < byTime.left[1]);
  assert.equal(left[0], 0);
});

test("what is zoomed to fills the width, below what called it", () => {
  const { levels, size, firstLevel, total } = flame.layOut(STACKS, OWN, { mode: "wall", order: "size", zoomed: 1 });
  assert.deepEqual(levels, [[0], [1], [3]]);
  assert.deepEqual([size[0], size[1], size[3]], [1, 1, 0.6]);
  assert.deepEqual([firstLevel, total], [1, 25]);
});

test("arrow keys go through the frames", () => {
  const frames = flame.layOut(STACKS, OWN, { mode: "wall", order: "size", zoomed: -1 });
  const next = (key, id) => flame.neighbour(key, id, STACKS, frames);
  assert.deepEqual([next("ArrowDown", -1), next("ArrowDown", 0), next("ArrowDown", 3)], [0, 2, -1]);
  assert.deepEqual([next("ArrowUp", 3), next("ArrowUp", 0), next("ArrowUp", -1)], [1, -1, -1]);
  assert.deepEqual([next("ArrowRight", 1), next("ArrowLeft", 2), next("ArrowRight", 2), next("ArrowLeft", -1)], [2, 1, -1, -1]);
});

// --- The graph of calls -------------------------------------------------------------------------------------------

const fn = (label, total, more = {}) => ({ label, total, kind: "task", actor: "", method: "", ...more });
const FUNCTIONS = [fn("driver", 100, { kind: "driver" }), fn("a", 50), fn("W.run", 20, { actor: "W", kind: "method" }), fn("W.init", 30, { actor: "W", kind: "method" }), fn("alone", 1)];

test("boxes are in columns by their distance from the driver, actors with their methods", () => {
  const { boxes, boxOf, leftOut, size } = graph.layOut({ functions: FUNCTIONS, calls: [{ from: 0, to: 1 }, { from: 1, to: 2 }, { from: 2, to: 1 }, { from: 3, to: 3 }], data: [] });
  assert.deepEqual(boxes.map(({ title, column }) => [title, column]), [["driver", 0], ["a", 1], ["W", 2], ["alone", 1]]);
  assert.deepEqual(boxOf.get(2).members, [3, 2]);
  assert.equal(leftOut, 0);
  for (const box of boxes) assert.ok(box.x >= 0 && box.x + graph.BOX_WIDTH <= size[0] && box.y >= 0 && box.y + box.height <= size[1], box.title);
  const [, a, , alone] = boxes;
  assert.ok(alone.y >= a.y + a.height || a.y >= alone.y + alone.height);
});

test("of very many boxes those of most time are shown", () => {
  const functions = Array.from({ length: 400 }, (_, n) => fn(`f${n}`, n));
  const { boxes, leftOut } = graph.layOut({ functions, calls: [], data: [] });
  assert.deepEqual([boxes.length, leftOut, boxes.every(({ time }) => time >= 100)], [300, 100, true]);
  assert.equal(graph.layOut({ functions: [], calls: [], data: [] }).boxes.length, 0);
});

test("labels do not cover each other", () => {
  const labels = [{ x: 100, y: 50, width: 60, isForward: true }, { x: 100, y: 55, width: 60, isForward: true }, { x: 60, y: 52, width: 60, isForward: false }, { x: 500, y: 50, width: 60, isForward: true }];
  graph.separated(labels);
  assert.equal(labels[3].y, 50);
  const ys = labels.slice(0, 3).map(({ y }) => y).sort((a, b) => a - b);
  assert.ok(ys[1] - ys[0] >= 13 && ys[2] - ys[1] >= 13, `${ys}`);
});

// --- Tables -------------------------------------------------------------------------------------------------------

test("tables are sorted by numbers and by texts, equal rows as they were", () => {
  const rows = [["b", 2], ["a", 10], ["c", 2]];
  assert.deepEqual(ordered(rows, ([, n]) => n, false).map(([name]) => name), ["a", "b", "c"]);
  assert.deepEqual(ordered(rows, ([name]) => name, true).map(([name]) => name), ["a", "b", "c"]);
  assert.deepEqual(rows.map(([name]) => name), ["b", "a", "c"]);
});

test("spans are listed by what a column shows", () => {
  const spans = store([{ start: 0, took: 5, name: 1 }, { start: 1000, took: 9, name: 0 }, { start: 2000, took: 7, name: 1, submission: 0 }], { names: ["b", "a"], extent: 3000 });
  const listed = (by, ascending) => Array.from(spans.listed(by, ascending));
  assert.deepEqual(listed("took", false), [1, 2, 0]);
  assert.deepEqual(listed("start", false), [2, 1, 0]);
  assert.deepEqual(listed("name", true), [0, 2, 1]);
  assert.deepEqual(listed("queued", false)[0], 2);
  spans.setRange(1005, 3000);
  assert.deepEqual(listed("start", true), [1, 2]);
});

test("a place stands below the one that called it first, on its node", () => {
  const on = (node, kind = "actor") => ({ node, kind });
  const places = [on(0, "driver"), on(0), on(0), on(0), on(1), on(1), on(1)];
  assert.deepEqual(timeline.nested(places, [-1, 0, 0, 1, 0, 6, 5]), [[0, 0], [1, 0], [3, 1], [2, 0], [4, 0], [5, 0], [6, 1]]);
});
