// A comparison of two sides, one above the other and on one scale: the critical paths, and flame graphs of more and less.

import { category } from "./colours.js";
import { View, el, told } from "./dom.js";
import { layOut } from "./flame.js";
import { duration, percent, plainName, safe } from "./format.js";

const ROW = 20;

/** Parts of the critical path and frames that are narrower than this share are not drawn, and have no label below the next. */
const NARROWEST = 0.001, LABELLED = 0.03;

/** A frame whose time differs by less than this share is the same on both sides. */
const LITTLE = 0.05;

const MORE = "#b5452c", LESS = "#2f6fb5", SAME = "#6f7885";

export class Compare extends View {
  /** @param {Store} store @param {Colours} colours @param {App} app */
  constructor(store, colours, app) {
    super(store, colours, app);
    const found = store.meta.comparison;
    this.root = el("div", { class: "view compare" }, el("div", { class: "scroller plain", tabindex: 0 }, found ? el("div", { class: "report" },
      el("section", {}, el("h2", {}, "Comparison"), found.told.map(told)), paths(found), flames(found)) : null));
  }
}

/** A coloured piece of a bar or of a flame graph.
 * @param {string} text @param {string} title @param {number} left @param {number} size @param {string} colour @param {number} level */
function piece(text, title, left, size, colour, level = 0) {
  return el("span", { class: "piece", title, style: { left: `${left * 100}%`, width: `${size * 100}%`, top: `${level * ROW}px`, "background-color": colour } }, size >= LABELLED ? text : null);
}

/** @param {Comparison} found */
function paths({ paths: both, sides }) {
  const totals = both.map((parts) => parts.reduce((sum, each) => sum + each.ns, 0));
  const most = Math.max(...totals);
  if (!totals.every(Boolean)) return null;
  return el("section", {}, el("h2", {}, "Critical paths"), el("p", { class: "soft" }, "Both on one scale, the largest part first."),
    both.map((parts, side) => {
      let at = 0;
      return el("div", { class: "side", "data-path": side }, el("h3", {}, sides[side]), el("div", { class: "pieces" }, parts.map(({ label, kind, ns }) => {
        const left = at, size = ns / most, other = both[1 - side].find((each) => each.label === label && each.kind === kind)?.ns ?? 0;
        at += size;
        const name = plainName(safe(label));
        return size < NARROWEST ? null : piece(`${name} ${duration(ns)}`, `${name}: ${duration(ns)}, ${percent(ns / totals[side])} of the path; ${side ? "before" : "now"} ${duration(other)}`, left, size, category(kind).colour);
      })));
    }));
}

/** @param {Comparison} found */
function flames({ flame, sides }) {
  const { label, parent, wait, own } = flame;
  // The same order on both sides, so that frames are found again.
  const drawn = own.map((share) => layOut({ parent, first: [...parent.keys()], wait }, { own: share, share }, { mode: "wall", order: "time", zoomed: -1 }));
  const most = Math.max(...drawn.map((each) => each.total));
  return el("section", {}, el("h2", {}, "Flame graphs"),
    el("p", { class: "soft" }, "Both on one scale. The width of a frame is its share of the wall time. ",
      [["more time than on the other side", MORE], ["less time", LESS], ["the same, to 5 %", SAME]].map(([text, colour]) => el("span", { class: "colourkey" }, el("span", { class: "swatch", style: { background: colour } }), ` ${text} `))),
    drawn.map(({ value, left, size, levels, total }, side) => {
      const other = drawn[1 - side].value, scale = total / most;
      return el("div", { class: "side", "data-flame-side": side }, el("h3", {}, sides[side]),
        el("div", { class: "pieces", style: { height: `${levels.length * ROW}px` } }, levels.flatMap((ids, level) => ids.map((id) => {
          const width = size[id] * scale;
          if (width < NARROWEST) return null;
          const ratio = other[id] ? value[id] / other[id] : Infinity, name = plainName(safe(label[id])) + (wait[id] ? ", waiting" : "");
          const change = ratio === Infinity ? "only on this side" : `x${ratio.toFixed(2)}`;
          return piece(`${name} ${duration(value[id])}${side ? ` ${change}` : ""}`, `${name}: ${duration(value[id])}, ${side ? "before" : "now"} ${duration(other[id])}`,
            left[id] * scale, width, ratio > 1 + LITTLE ? MORE : ratio < 1 / (1 + LITTLE) ? LESS : SAME, level);
        }))));
    }));
}
