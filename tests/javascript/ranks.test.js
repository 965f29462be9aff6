import assert from "node:assert/strict";
import { test } from "node:test";
import { cellAfter, darkest, labelOf, stepsOf, textOf, valueOf } from "../../ray_tracing_hooks/_insight/views/page/assets/ranks.js";

/** @param {number[][]} took @param {Partial<TrainAttempt>} [more] @returns {TrainAttempt} */
const attemptOf = (took, more = {}) => ({
  run: "job", attempt: 1, row: 0, failed: false, steps: took[0].length, met: 0, size: 1, world: took.length, delays: took[0].map(() => 0),
  ranks: took.map((times, rank) => ({ rank, row: rank, node: "n1", failed: false, last: 0, took: times, waited: times.map((_, n) => n), rows: times.map(() => -1) })),
  ...more,
});

test("a value is in nanoseconds, and a step that is not there has none", () => {
  const attempt = attemptOf([[1, 1001, 0]]);
  assert.deepEqual([0, 1, 2].map((column) => valueOf(attempt, "took", { rank: 0, column })), [0, 1e6, -1]);
  assert.deepEqual([0, 1, 2].map((column) => valueOf(attempt, "waited", { rank: 0, column })), [0, 1000, -1]);
});

test("the darkest colour is that of the greatest value", () => {
  assert.equal(darkest(attemptOf([[101, 201], [101, 301]]), "took"), 300e3);
  assert.equal(darkest(attemptOf([[0, 0]]), "took"), 0);
});

test("a first step that takes long does not leave the others pale", () => {
  const steps = [100_001, ...Array(29).fill(1001)];
  assert.equal(darkest(attemptOf([steps, steps]), "took"), 3e6);
});

test("where few wait at all, the darkest colour is that of what they wait", () => {
  const attempt = attemptOf([Array(50).fill(1)]);
  attempt.ranks[0].waited.fill(0, 0, 49);
  assert.equal(darkest(attempt, "waited"), 49e3);
});

test("texts name ranks and steps", () => {
  const attempt = attemptOf([[1001, 0]], { size: 3, steps: 5 });
  assert.equal(stepsOf(attempt, 0), "steps 1 – 3");
  assert.equal(stepsOf(attempt, 1), "steps 4 – 5");
  assert.equal(stepsOf(attemptOf([[1, 1]]), 1), "step 2");
  assert.deepEqual(textOf(attempt, { rank: 0, column: 0 }), ["Rank 0, steps 1 – 3", "own time 1.00 ms at most", "waited 0.00 us at most for others", "node n1"]);
  assert.deepEqual(textOf(attempt, { rank: 0, column: 1 }), ["Rank 0, steps 4 – 5", "no such step", "node n1"]);
  assert.equal(labelOf(attemptOf([[1]], { failed: true })), "job, attempt 1 ✗: 1 rank, 1 step");
});

test("keys move within the edges", () => {
  const attempt = attemptOf([[1, 1, 1], [1, 1, 1]]);
  /** @param {string} key */
  const after = (key) => cellAfter(attempt, { rank: 0, column: 1 }, key);
  assert.deepEqual(after("ArrowUp"), { rank: 0, column: 1 });
  assert.deepEqual(after("ArrowDown"), { rank: 1, column: 1 });
  assert.deepEqual(after("ArrowLeft"), { rank: 0, column: 0 });
  assert.deepEqual(after("Home"), { rank: 0, column: 0 });
  assert.deepEqual(after("End"), { rank: 0, column: 2 });
  assert.deepEqual(cellAfter(attempt, { rank: 1, column: 2 }, "ArrowRight"), { rank: 1, column: 2 });
  assert.equal(after("Enter"), null);
  assert.equal(after("constructor"), null);
});
