// Tables that can be sorted by each column.

import { el, emptied } from "./dom.js";
import { duration, number, percent } from "./format.js";

/** @typedef {import("./dom.js").Child} Child */
/** The cell that a column shows for a row, and its sort key. Columns of numbers are right-aligned, and sorted in descending
 * order first.
 * @template R
 * @typedef {{ title: string, value: (row: R) => string | number, cell: (row: R) => Child | Child[], hint?: string | null, isNumber?: boolean, isBar?: boolean }} Column */

/** `first` is the initial sort column, in descending order.
 * @template R
 * @param {{ rows: R[], columns: Column<R>[], first: number, caption?: string | null, kind?: string, about?: (row: R) => Record<string, unknown>, most?: number }} table */
export function sortedTable({ rows, columns, first, caption = null, kind = "", about = () => ({}), most = rows.length }) {
  let by = first, ascending = !columns[first].isNumber;
  const body = el("tbody", {});
  const heads = columns.map(({ title, hint, isNumber }, n) => el("th", { scope: "col", class: isNumber ? "number" : "" },
    el("button", { type: "button", class: "sorts", title: hint, onclick: () => sort(n) }, title)));
  /** @param {number} n */
  const sort = (n) => {
    ascending = n === by ? !ascending : !columns[n].isNumber;
    by = n;
    fill();
  };
  const fill = () => {
    heads.forEach((head, n) => head.setAttribute("aria-sort", n === by ? (ascending ? "ascending" : "descending") : "none"));
    emptied(body, ordered(rows, columns[by].value, ascending).slice(0, most).map((row) => el("tr", about(row), columns.map(({ cell, isNumber, isBar }) =>
      el("td", { class: isNumber ? `number${isBar ? " bar" : ""}` : "" }, cell(row))))));
  };
  fill();
  return el("table", { class: `figures ${kind}` }, caption ? el("caption", {}, caption) : null, el("thead", {}, el("tr", {}, heads)), body);
}

/** The rows sorted by a value; the sort is stable.
 * @template R
 * @param {R[]} rows @param {(row: R) => string | number} value @param {boolean} ascending */
export function ordered(rows, value, ascending) {
  /** @param {string | number} a @param {string | number} b */
  const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
  return [...rows].sort((a, b) => (ascending ? 1 : -1) * compare(value(a), value(b)));
}

/** @template R
 * @param {string} title @param {(row: R) => string | number} value @param {(row: R) => Child | Child[]} [cell] @returns {Column<R>} */
export const textColumn = (title, value, cell = value) => ({ title, value, cell });

/** @template R
 * @param {string} title @param {(row: R) => number} value @param {(row: R) => Child | Child[]} [cell] @param {string | null} [hint] @returns {Column<R>} */
export const numberColumn = (title, value, cell = (row) => number(value(row)), hint = null) => ({ title, value, cell, hint, isNumber: true });

/** A column of durations; null is an empty cell.
 * @template R
 * @param {string} title @param {(row: R) => number | null} value @param {string | null} [hint] */
export const timeColumn = (title, value, hint = null) => numberColumn(title, (/** @type {R} */ row) => value(row) ?? -1, (row) => timeCell(value(row)), hint);

/** @param {number | null} ns */
const timeCell = (ns) => (ns === null ? "" : duration(ns));

/** A column of shares with bars.
 * @template R
 * @param {string} title @param {(row: R) => number} value @returns {Column<R>} */
export const shareColumn = (title, value) => ({
  title, value, isNumber: true, isBar: true,
  cell: (row) => [el("span", { class: "bar", style: { width: `${Math.min(100, 100 * value(row))}%` } }), el("span", {}, percent(value(row)))],
});
