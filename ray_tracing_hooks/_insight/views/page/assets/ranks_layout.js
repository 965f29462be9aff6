// The heat map of ranks by steps: which values its colours cover, which cell is where, and what is said about one.

import { counted, duration, number, safe } from "./format.js";

/** @typedef {{ rank: number, column: number }} Cell Both are indexes, not numbers of a rank or step. */
/** @typedef {"took" | "waited"} Measure */

/** What can be shown, with the meaning of each for people.
 * @type {Record<Measure, [label: string, about: string]>} */
export const MEASURES = {
  took: ["Own time", "from the end of the rank's step before to the start of this one, without waiting"],
  waited: ["Waiting", "for the last rank to come to the step"],
};

/** The measured value of a cell in nanoseconds, -1 if the rank has no such step.
 * @param {TrainAttempt} attempt @param {Measure} measure @param {Cell} cell */
export function valueOf(attempt, measure, { rank, column }) {
  const { took, waited } = attempt.ranks[rank];
  return took[column] ? 1e3 * (measure === "took" ? took[column] - 1 : waited[column]) : -1;
}

/** The value of the darkest colour. A first step that takes long would leave all others pale, so greater values share its colour.
 * @param {TrainAttempt} attempt @param {Measure} measure */
export function darkest(attempt, measure) {
  /** @type {number[]} */
  const values = [];
  for (let rank = 0; rank < attempt.ranks.length; rank++) {
    for (let column = 0; column < attempt.delays.length; column++) {
      const value = valueOf(attempt, measure, { rank, column });
      if (value >= 0) values.push(value);
    }
  }
  values.sort((a, b) => a - b);
  /** @param {number} share */
  const at = (share) => values[Math.min(values.length - 1, Math.floor(share * values.length))] ?? 0;
  const usual = Math.max(3 * at(0.5), at(0.9)), most = at(0.99);
  return usual ? Math.min(usual, most) : most;
}

/** The steps of a column.
 * @param {TrainAttempt} attempt @param {number} column */
export function stepsOf({ size, steps }, column) {
  const first = column * size + 1, last = Math.min(steps, first + size - 1);
  return first === last ? `step ${number(first)}` : `steps ${number(first)} – ${number(last)}`;
}

/** The text about a cell, for the tooltip and for screen readers.
 * @param {TrainAttempt} attempt @param {Cell} cell */
export function textOf(attempt, cell) {
  const { rank, node } = attempt.ranks[cell.rank];
  const most = attempt.size > 1 ? " at most" : "";
  const took = valueOf(attempt, "took", cell);
  return [
    `Rank ${rank}, ${stepsOf(attempt, cell.column)}`, took < 0 ? "no such step" : `own time ${duration(took)}${most}`,
    took < 0 ? null : `waited ${duration(valueOf(attempt, "waited", cell))}${most} for others`, node ? `node ${safe(node)}` : null,
  ].filter((line) => line !== null);
}

/** The label of an attempt.
 * @param {TrainAttempt} attempt */
export function labelOf({ run, attempt, failed, world, steps }) {
  return `${safe(run)}, attempt ${attempt}${failed ? " ✗" : ""}: ${counted(world, "rank")}, ${counted(steps, "step")}`;
}

/** The cell that a key leads to, or null for another key. Rows and columns end at their edges.
 * @param {TrainAttempt} attempt @param {Cell} here @param {string} key @returns {Cell | null} */
export function cellAfter(attempt, { rank, column }, key) {
  const last = attempt.delays.length - 1;
  /** @type {Record<string, Cell>} */
  const next = {
    ArrowLeft: { rank, column: Math.max(0, column - 1) }, ArrowRight: { rank, column: Math.min(last, column + 1) },
    ArrowUp: { rank: Math.max(0, rank - 1), column }, ArrowDown: { rank: Math.min(attempt.ranks.length - 1, rank + 1), column },
    Home: { rank, column: 0 }, End: { rank, column: last },
  };
  return Object.hasOwn(next, key) ? next[key] : null;
}
