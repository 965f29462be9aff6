// All spans that match the filter, as a table; only the visible rows are in the document.

import { View, el, inNextFrame } from "./dom.js";
import { counted, duration, number, shortened } from "./format.js";
import { ENDED, LOST, STATES } from "./store.js";

const SPAN_ROW = 26;
// Browsers cannot make an element as high as a million rows, so the scroll bar then covers more rows per pixel.
const TALLEST = 8e6;

/** @type {[string, string][]} */
const COLUMNS = [["name", "Name"], ["took", "Duration"], ["queued", "In queue"], ["start", "Start"], ["place", "Where"]];
const SORTED = ["name", "took", "queued", "start"];

export class SpanTable extends View {
  /** @param {Store} store @param {Colours} colours @param {App} app */
  constructor(store, colours, app) {
    super(store, colours, app);
    this.by = "took";
    this.ascending = false;
    this.stale = true;
    /** @type {Uint32Array} */
    this.rows = new Uint32Array(0);
    this.longest = 0;
    this.body = el("div", { class: "rows", role: "rowgroup" });
    this.spacer = el("div", { class: "spacer", "aria-hidden": "true" });
    this.head = el("div", { class: "row head", role: "row" }, COLUMNS.map(([key, label]) => el("div", { role: "columnheader", class: key, "aria-sort": "none" },
      SORTED.includes(key) ? el("button", { type: "button", "data-key": key, onclick: () => this.sortBy(key) }, label) : label)));
    this.scroller = el("div", { class: "scroller", tabindex: 0, role: "table", "aria-label": "Spans" }, this.head, this.body, this.spacer);
    this.note = el("p", { class: "note", role: "status" });
    this.root = el("div", { class: "view spans" }, el("div", { class: "viewbar" }, this.note), this.scroller);
    this.redraw = inNextFrame(() => this.root.hidden, () => this.draw());
    this.scroller.addEventListener("scroll", () => this.redraw(), { passive: true });
  }

  /** @param {string} key */
  sortBy(key) {
    this.ascending = this.by === key ? !this.ascending : key === "start" || key === "name";
    this.by = key;
    this.stale = true;
    this.redraw();
  }

  draw() {
    const { store } = this;
    if (this.stale) {
      this.rows = store.listed(this.by, this.ascending);
      this.longest = this.rows.reduce((most, row) => Math.max(most, store.took[row]), 0);
      this.stale = false;
      this.note.textContent = `${counted(this.rows.length, "span")} of ${number(store.count)}`;
      for (const cell of this.head.children) {
        const isSorted = cell.classList.contains(this.by);
        cell.setAttribute("aria-sort", isSorted ? (this.ascending ? "ascending" : "descending") : "none");
      }
    }
    const room = this.scroller.clientHeight - SPAN_ROW, top = this.scroller.scrollTop;
    const { height, first, last, shift } = inView(this.rows.length, SPAN_ROW, room, top);
    this.spacer.style.height = height + "px";
    this.scroller.setAttribute("aria-rowcount", String(this.rows.length + 1));
    this.body.style.transform = `translateY(${shift}px)`;
    const made = [];
    for (let n = first; n < last; n++) made.push(this.line(this.rows[n], n, this.rows[n] === store.chosenRow));
    this.body.replaceChildren(...made);
  }

  /** @param {number} row @param {number} n @param {boolean} isChosen */
  line(row, n, isChosen) {
    const { store } = this;
    /** @param {string} kind @param {(import("./dom.js").Child)[]} inner */
    const cell = (kind, ...inner) => el("div", { role: "cell", class: kind }, ...inner);
    const state = store.state(row);
    const said = store.failed(row) ? el("span", { class: "badge bad" }, state === LOST ? "✗ lost" : "✗ failed") : state === ENDED ? null : el("span", { class: "badge open" }, STATES[state]);
    return el("div", { role: "row", class: `row${isChosen ? " chosen" : store.matched?.[row] ? " matched" : ""}`, "aria-rowindex": n + 2, onclick: () => this.app.selectSpan(row, false) },
      cell("name", el("span", { class: "swatch", style: { background: this.colours.of(row) } }), el("button", { type: "button", class: "link" }, shortened(store.shortLabel(row), 90)), said),
      cell("took", el("span", { class: "bar", style: { width: `${(100 * store.took[row]) / (this.longest || 1)}%` } }), duration(store.took[row])), cell("queued", store.queued(row) >= 0 ? duration(store.queued(row)) : ""),
      cell("start", duration(store.start[row])), cell("place", store.placeLabel(row)));
  }

  /** @param {Change} what */
  update(what) {
    if (what === "range" || what === "filter") this.stale = true;
    this.redraw();
  }
}

/** The visible rows of a long table: its scroll height, the first row and the one after the last, and their offset from the
 * top.
 * @param {number} count @param {number} rowHeight @param {number} room @param {number} top */
export function inView(count, rowHeight, room, top) {
  const whole = count * rowHeight, height = Math.min(whole, TALLEST);
  const share = height > room ? Math.min(1, top / (height - room)) : 0;
  const offset = whole > TALLEST ? share * (whole - room) : top;
  const first = Math.max(0, Math.floor(offset / rowHeight));
  const last = Math.min(count, first + Math.ceil(room / rowHeight) + 2);
  return { height, first, last, shift: top - (offset - first * rowHeight) };
}
