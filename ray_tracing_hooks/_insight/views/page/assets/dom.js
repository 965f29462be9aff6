// Elements, tables and canvases. Content of spans reaches the page only as text, through `el` and `textContent`.

import { duration, number, percent, safe, safeLines, shortened } from "./format.js";

/** @typedef {Node | string | number | null | undefined | false} Child */
/** @typedef {Record<string, unknown> | null} Properties */

const SANS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif";
export const TITLE = `600 12px ${SANS}`, MEMBER = `12px ${SANS}`, FIGURES = `11px ${SANS}`, BOLD_FIGURES = `600 11px ${SANS}`;

/** The drawing context of a canvas.
 * @param {HTMLCanvasElement} canvas @param {CanvasRenderingContext2DSettings} [settings] */
export function pen(canvas, settings) {
  const context = canvas.getContext("2d", settings);
  if (!context) throw new Error("this browser gives no canvas to draw on");
  return context;
}

/** Set the size of a canvas to its displayed size in device pixels.
 * @param {HTMLCanvasElement} canvas @param {number} width @param {number} height @param {number} ratio */
export function fitCanvas(canvas, width, height, ratio) {
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = width + "px";
  canvas.style.height = height + "px";
}

/** @type {CanvasRenderingContext2D | undefined} */
let ruler;

/** The width of a text in pixels, in a font given as in CSS.
 * @param {string} text @param {string} font */
export function widthOf(text, font) {
  ruler ??= pen(document.createElement("canvas"));
  ruler.font = font;
  return ruler.measureText(text).width;
}

/** The text, shortened to fit into `width` pixels.
 * @param {string} text @param {number} width @param {string} font */
export function fitted(text, width, font) {
  /** @param {number} most */
  const fits = (most) => widthOf(shortened(text, most), font) <= width;
  let low = 1, high = text.length;
  if (fits(high)) return text;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (fits(middle)) low = middle;
    else high = middle;
  }
  return shortened(text, low);
}

/** An element that the page always has.
 * @param {string} id @returns {HTMLElement} */
export function byId(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no ${id}`);
  return found;
}

/** A new element. Children are elements or texts; properties named `on...` are listeners, others are attributes.
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T} tag @param {Properties} properties @param {(Child | Child[])[]} children
 * @returns {HTMLElementTagNameMap[T]} */
export function el(tag, properties, ...children) {
  const element = document.createElement(tag);
  fill(element, properties, children);
  return element;
}

/** @template {keyof SVGElementTagNameMap} T
 * @param {T} tag @param {Properties} properties @param {(Child | Child[])[]} children
 * @returns {SVGElementTagNameMap[T]} */
export function svg(tag, properties, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  fill(element, properties, children);
  return element;
}

/** @param {Element & ElementCSSInlineStyle} element @param {Properties} properties @param {(Child | Child[])[]} children */
function fill(element, properties, children) {
  for (const [key, value] of Object.entries(properties || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), /** @type {EventListener} */ (value));
    else if (key === "style") for (const [name, given] of Object.entries(value)) element.style.setProperty(name, given);
    else element.setAttribute(key, value === true ? "" : String(value));
  }
  for (const child of children.flat()) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(safeLines(child)));
  }
}

/** Replace the children of an element, and return the element.
 * @template {Element} E
 * @param {E} element @param {(Child | Child[])[]} children */
export function emptied(element, ...children) {
  element.replaceChildren(.../** @type {(Node | string)[]} */ (children.flat().filter(Boolean)));
  return element;
}

/** Calls `draw` once in the next frame, however often it is requested; not while `isHidden`.
 * @param {() => boolean} isHidden @param {() => void} draw */
export function inNextFrame(isHidden, draw) {
  let isPending = false;
  return () => {
    if (isPending || isHidden()) return;
    isPending = true;
    requestAnimationFrame(() => {
      isPending = false;
      if (!isHidden()) draw();
    });
  };
}

/** The position of a pointer event inside an element.
 * @param {MouseEvent} event @param {Element} element @returns {[number, number]} */
export function placeIn(event, element) {
  const box = element.getBoundingClientRect();
  return [event.clientX - box.left, event.clientY - box.top];
}

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
    write();
  };
  const write = () => {
    heads.forEach((head, n) => head.setAttribute("aria-sort", n === by ? (ascending ? "ascending" : "descending") : "none"));
    emptied(body, ordered(rows, columns[by].value, ascending).slice(0, most).map((row) => el("tr", about(row), columns.map(({ cell, isNumber, isBar }) =>
      el("td", { class: isNumber ? `number${isBar ? " bar" : ""}` : "" }, cell(row))))));
  };
  write();
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

/** What the views have in common. Most draw all anew, in the next frame, when the size or anything else changes. */
export class View {
  /** @param {Store} store @param {Colours} colours @param {App} app */
  constructor(store, colours, app) {
    this.store = store;
    this.colours = colours;
    this.app = app;
    this.redraw = () => {};
  }

  resize() {
    this.redraw();
  }

  /** @param {Change} _what */
  update(_what) {
    this.redraw();
  }
}

/** A sentence, or a table.
 * @param {Told} part */
export function told(part) {
  if (typeof part === "string") return el("p", {}, safe(part));
  /** @param {"th" | "td"} tag @param {string[]} cells */
  const row = (tag, cells) => el("tr", {}, cells.map((each, n) => el(tag, n ? { class: "number" } : { class: "name" }, safe(each))));
  return el("table", { class: "figures" }, el("thead", {}, row("th", part.titles)), el("tbody", {}, part.rows.map((each) => row("td", each))));
}
