// The spans that are open at one moment, as nested stacks across all processes of the cluster.

import { View, el, emptied, inNextFrame } from "./dom.js";
import { clock, counted, duration, number, shortened } from "./format.js";
import { LOST, RUNNING, WAIT } from "./store.js";

const MOST_OPEN = 500, MOST_LINES = 2000, MOST_ABOVE = 1000, MOST_TARGETS = 50;

export class Stack extends View {
  /** @param {Store} store @param {Colours} colours @param {App} app */
  constructor(store, colours, app) {
    super(store, colours, app);
    this.slider = el("input", { type: "range", min: 0, max: 10000, step: 1, "aria-label": "Moment", oninput: () => app.setMoment((Number(this.slider.value) / 10000) * store.end) });
    this.when = el("output", {});
    this.note = el("p", { class: "note", role: "status" });
    this.body = el("div", { class: "scroller plain", tabindex: 0 });
    /** @param {string} label @param {string} title @param {() => number} moment */
    const jump = (label, title, moment) => el("button", { type: "button", title, onclick: () => app.setMoment(moment()) }, label);
    this.root = el("div", { class: "view stack" },
      el("div", { class: "viewbar" }, el("label", { class: "moment" }, "At ", this.slider, this.when),
        jump("Busiest", "When most executions ran at once", () => store.busiest()), jump("End", "The last recorded moment", () => store.end), this.note),
      this.body);
    this.redraw = inNextFrame(() => this.root.hidden, () => this.draw());
  }

  draw() {
    const { store } = this;
    const { moment } = store;
    const { open, hidden } = store.openAt(moment);
    this.slider.value = String(Math.round((moment / (store.end || 1)) * 10000));
    this.when.textContent = ` ${duration(moment)} · ${clock(store.meta.start_ms + moment / 1e6)}`;
    const shown = open.slice(0, MOST_OPEN);
    const children = stacked(store, shown);
    const oldest = this.oldest(shown, children, moment);
    const lines = flattened(children).map(([row, depth]) => this.line(row, depth, moment, row === oldest));
    this.note.textContent = `${counted(open.length, "span")} open${open.length > MOST_OPEN ? `, the first ${number(MOST_OPEN)} shown` : ""}`
      + (hidden ? `, ${number(hidden)} more hidden by the filter` : "") + ". Gray = already ended, shown because a child is still open.";
    emptied(this.body, this.deadlocks(), lines.length ? el("table", { class: "figures stack", role: "treegrid" },
      el("thead", {}, el("tr", {}, ["Span", "Where", "Open for", "Duration"].map((title, n) => el("th", { scope: "col", class: n > 1 ? "number" : "" }, title)))),
      el("tbody", {}, lines)) : el("p", { class: "empty" }, "Nothing is open at this moment."));
  }

  deadlocks() {
    const { meta, moment, end } = this.store;
    if (moment < end) return null;
    return meta.deadlocks.map((cycle) => el("p", { class: "warning", role: "alert" }, "These spans wait for each other: ",
      cycle.map((row, n) => [n ? " → " : "", this.link(row, 200)]).flat()));
  }

  /** @param {number} row @param {number} most */
  link(row, most) {
    return el("button", { type: "button", class: "link", onclick: () => this.app.selectSpan(row, false) }, shortened(this.store.shortLabel(row), most));
  }

  /** The innermost open span that has been open longest: the run may be waiting for it.
   * @param {number[]} open @param {Map<number, number[]>} children @param {number} moment */
  oldest(open, children, moment) {
    const { store } = this;
    const leaves = open.filter((row) => !(children.get(row) || []).some((child) => store.isOpenAt(child, moment)) && store.parent[row] >= 0);
    return leaves.length > 1 ? leaves[0] : -1;
  }

  /** @param {number} row @param {number} depth @param {number} moment @param {boolean} isOldest */
  line(row, depth, moment, isOldest) {
    const { store } = this;
    const isOpen = store.isOpenAt(row, moment), state = store.state(row);
    const waits = isOpen && store.waits(row) ? awaited(store, row) : [];
    const mark = row === store.chosenRow ? " chosen" : store.matched?.[row] ? " matched" : "";
    return el("tr", { class: `${isOpen ? "" : "ended"}${mark}`, "aria-level": depth + 1, "data-row": row },
      el("td", { class: "stackname" },
        el("span", { class: "indent", style: { "padding-left": `${Math.min(depth, 60) * 18}px` } }),
        el("span", { class: "swatch", style: { background: this.colours.of(row) } }),
        this.link(row, 100),
        state === RUNNING ? el("span", { class: "badge open" }, "running") : state === LOST ? el("span", { class: "badge bad" }, "✗ lost") : null,
        isOldest ? el("span", { class: "badge" }, "open longest") : null,
        store.showPath && store.onPath(row) ? el("span", { class: "badge path" }, "critical path") : null,
        waits.length ? el("span", { class: "soft" }, " waits for ", waits.slice(0, 3).map((other, n) => [n ? ", " : "", this.link(other, 50)]).flat(),
          waits.length > 3 ? ` and ${number(waits.length - 3)} more` : "") : null),
      el("td", {}, store.placeLabel(row)),
      el("td", { class: "number" }, isOpen ? duration(moment - store.start[row]) : ""),
      el("td", { class: "number" }, state === RUNNING ? "" : duration(store.took[row])));
  }

}

/** The spans to show below each span (-1: the top): open spans and their ancestors, which may have ended, since a caller
 * need not wait for the calls that it makes.
 * @param {Pick<Store, "parent" | "start">} spans @param {number[]} open */
export function stacked({ parent, start }, open) {
  const all = new Set(open);
  for (const row of open) {
    for (let above = parent[row], n = 0; above >= 0 && !all.has(above) && n < MOST_ABOVE; above = parent[above], n++) all.add(above);
  }
  /** @type {Map<number, number[]>} */
  const children = new Map([[-1, []]]);
  for (const row of [...all].sort((a, b) => start[a] - start[b] || a - b)) {
    const above = all.has(parent[row]) ? parent[row] : -1;
    const beside = children.get(above) ?? [];
    beside.push(row);
    children.set(above, beside);
  }
  return children;
}

/** The spans from the top, each with its depth.
 * @param {Map<number, number[]>} children */
export function flattened(children) {
  /** @type {[number, number][]} */
  const lines = [];
  /** @param {number} of @param {number} depth @returns {[number, number][]} */
  const below = (of, depth) => (children.get(of) ?? []).map((row) => /** @type {[number, number]} */ ([row, depth])).reverse();
  const pending = below(-1, 0);
  while (lines.length < MOST_LINES) {
    const next = pending.pop();
    if (!next) break;
    lines.push(next);
    pending.push(...below(next[0], next[1] + 1));
  }
  return lines;
}

/** What a wait waits for: executions that have not ended at the moment, or submissions if none has started.
 * @param {Store} store @param {number} row */
function awaited(store, row) {
  const found = [];
  for (const [of, to, kind] of store.edges) {
    if (to !== row || kind !== WAIT) continue;
    if (found.length >= MOST_TARGETS) break;
    if (store.is(of, "submission") || store.endOf(of) > store.moment || store.state(of) === RUNNING) found.push(of);
  }
  return found;
}
