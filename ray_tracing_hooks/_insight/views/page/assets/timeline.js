// The timeline: nodes, then workers and actors, then lanes. Run time is solid, waiting hollow, and queues have own strips.

import { category, categoryLabel } from "./colours.js";
import { View, el, emptied, fitCanvas, inNextFrame, pen, placeIn } from "./dom.js";
import { FAILED } from "./figures.js";
import { counted, duration, safe } from "./format.js";
import { Scale } from "./scale.js";
import { STATES } from "./store.js";
import { AXIS_HEIGHT, GUTTER, OVERVIEW_HEIGHT, PATH_HEIGHT, drawBars, drawGutter, drawHead, drawOverlay } from "./timeline_drawing.js";
import { layOut, nested } from "./timeline_layout.js";
import { Utilization } from "./utilization.js";

export const ZOOM = 0.7;

/** @typedef {import("./timeline_layout.js").Row} Row */
/** @typedef {import("./timeline_layout.js").BarsRow} BarsRow */
/** @typedef {{ kind: "select" | "pan", from: number, to: number, y: number, range: number[], moved: boolean, inOverview: boolean, scroll: number }} Drag */

export class Timeline extends View {
  /** @param {Store} store @param {Colours} colours @param {App} app */
  constructor(store, colours, app) {
    super(store, colours, app);
    /** @type {Set<string>} */
    this.collapsed = new Set();
    this.hover = -1;
    /** @type {Drag | null} */
    this.drag = null;
    this.width = 0;
    this.viewHeight = 0;
    this.height = 0;
    this.ratio = 1;
    this.scrollTop = 0;
    /** The number of bars in the last frame, and the time to draw it in milliseconds. */
    this.drawn = 0;
    this.frame = 0;
    /** @type {Row[]} */
    this.rows = [];
    /** @type {Map<number, BarsRow>} */
    this.rowOfSub = new Map();
    this.hiddenPlaces = 0;
    /** @type {ImageData | null} */
    this.image = null;
    /** @type {Strip | null} */
    this.strip = null;
    this.canvas = el("canvas", { class: "bars", "aria-hidden": "true" });
    this.overlay = el("canvas", { class: "overlay", "aria-hidden": "true" });
    this.spacer = el("div", { class: "spacer" });
    this.stage = el("div", { class: "stage" }, this.canvas, this.overlay);
    this.scroller = el("div", {
      class: "scroller", tabindex: 0, role: "application",
      "aria-label": "Timeline. W and S zoom, A and D move. Arrow keys go from span to span, and the selected span is read out. The Spans tab has the same spans as a table.",
    }, this.stage, this.spacer);
    this.queues = store.queues();
    this.order = nested(store.meta.places, store.callers());
    /** @param {string} label @param {string} name @param {string} hint @param {() => void} act */
    const button = (label, name, hint, act) => el("button", { type: "button", "aria-label": name, title: `${name} (${hint})`, onclick: act }, label);
    this.outButton = button("−", "Zoom out", "S or −", () => store.zoom(1 / ZOOM));
    this.wholeButton = button("Whole run", "Zoom out to the whole run", "0", () => store.setRange(0, store.end));
    this.legend = el("ul", { class: "legend", "aria-label": "Legend", hidden: true });
    this.legendButton = el("button", { type: "button", "aria-pressed": "false", title: "Meaning of colors and shapes", onclick: () => {
      this.legend.hidden = !this.legend.hidden;
      this.legendButton.setAttribute("aria-pressed", String(!this.legend.hidden));
      this.resize();
    } }, "Legend");
    this.kindsSeen = store.kindsSeen();
    this.fillLegend();
    const bar = el("div", { class: "viewbar" },
      el("div", { class: "segments", role: "group", "aria-label": "Zoom" }, this.outButton, button("+", "Zoom in", "W or +", () => store.zoom(ZOOM)), this.wholeButton), this.legendButton, this.legend);
    this.utilization = new Utilization(this);
    this.root = el("div", { class: "view timeline" }, bar, this.scroller, this.utilization.root);
    const isHidden = () => !this.width || this.root.hidden;
    this.redraw = inNextFrame(isHidden, () => this.draw());
    this.buildRows();
    this.listen();
  }

  // The legend: only colours and shapes that occur.
  fillLegend() {
    const { store } = this;
    /** @param {string} shape @param {string} text @param {string | null} [title] */
    const item = (shape, text, title = null) => el("li", { title }, el("span", { class: `sign ${shape}`, "aria-hidden": "true" }), text);
    const has = this.kindsSeen;
    const kinds = [...new Set(store.meta.path.by.map((each) => each.kind))].filter((kind) => kind !== "submit");
    emptied(this.legend,
      el("li", {}, "A color is a function."),
      has.submissions ? item("submission", "submits a call") : null, has.waits ? item("waiting", "waiting (ray.get, ray.wait)") : null,
      has.failures ? item("failed", "failed") : null,
      has.open ? item("open", "not ended", "Still running, or interrupted: the end of the span is not recorded") : null,
      this.queues.some(Boolean) ? item("queue", "queued calls", "Height = number of calls queued for this worker or actor") : null,
      store.showPath ? item("path", "critical path") : null,
      store.showPath ? el("li", { class: "soft" }, "made up of:") : null,
      store.showPath ? kinds.map((kind) => el("li", { class: "soft" },
        el("span", { class: `key${category(kind).waits ? " waits" : ""}`, "aria-hidden": "true", style: { "background-color": category(kind).colour } }), categoryLabel(kind))) : null);
  }

  // --- Layout ---

  buildRows() {
    Object.assign(this, layOut(this.store, this.queues, this.collapsed, this.order));
    this.rowOfSub = new Map();
    for (const row of this.rows) if (row.kind === "bars") this.rowOfSub.set(row.sub, row);
    this.resize();
  }

  get headHeight() {
    return OVERVIEW_HEIGHT + AXIS_HEIGHT + (this.store.showPath ? PATH_HEIGHT : 0);
  }

  resize() {
    this.utilization.resize();
    const width = this.scroller.clientWidth, height = this.scroller.clientHeight;
    if (!width || !height) return;
    this.ratio = window.devicePixelRatio || 1;
    this.width = width;
    this.viewHeight = height;
    for (const canvas of [this.canvas, this.overlay]) fitCanvas(canvas, width, height, this.ratio);
    this.stage.style.height = height + "px";
    this.spacer.style.height = Math.max(0, this.height + this.headHeight - height) + "px";
    this.image = null;
    this.redraw();
  }

  get plotWidth() {
    return Math.max(50, this.width - GUTTER);
  }

  get scale() {
    return new Scale(this.store.range, GUTTER, this.plotWidth);
  }

  /** @param {number} x */
  timeAt(x) {
    return this.scale.timeAt(x);
  }

  draw() {
    const began = performance.now();
    const context = pen(this.canvas, { alpha: false });
    this.scrollTop = this.scroller.scrollTop;
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    drawBars(this, context);
    drawGutter(this, context);
    drawHead(this, context);
    drawOverlay(this);
    this.utilization.draw();
    this.frame = performance.now() - began;
  }

  /** The colour of text on a span's bar, which is pale if the span waits or is not selected.
   * @param {string} plain @param {number} row @param {boolean} isMatched */
  inkOn(plain, row, isMatched) {
    const { colours } = this;
    if (!isMatched) return colours.quiet(colours.dimmed(plain));
    return this.store.waits(row) ? colours.ink : colours.text(plain);
  }

  /** The position of a span's bar; null if its place is collapsed or has no row.
   * @param {number} row */
  box(row) {
    const { store, scale } = this;
    const at = this.barsOf(row) || this.rowOfSub.get(store.first[store.lane[row]]);
    if (!at) return null;
    const x0 = scale.x(store.start[row]);
    return { x0, x1: Math.max(scale.x(store.endOf(row)), x0 + 1), y: at.y - this.scrollTop + this.headHeight, height: at.height };
  }

  /** @param {number} row */
  barsOf(row) {
    return this.rowOfSub.get(this.store.first[this.store.lane[row]] + this.store.depth[row]);
  }

  // --- Pointer and keyboard ---

  /** The span at or near a position; -1 for none.
   * @param {number} x @param {number} y */
  at(x, y) {
    if (x < GUTTER || y < this.headHeight) return -1;
    const { store } = this;
    const inside = y + this.scrollTop - this.headHeight;
    const time = this.timeAt(x), near = (3 * (store.range[1] - store.range[0])) / this.plotWidth;
    for (const row of this.rows) {
      if (row.kind !== "bars" || inside < row.y - 1 || inside > row.y + row.height + 1) continue;
      let best = -1, distance = Infinity;
      store.eachBar(row.sub, time - near, time + near, (i, begin, end, flags) => {
        const away = Math.max(0, begin - time, time - end);
        if (away > distance || (away === distance && !(flags & FAILED))) return;
        best = i;
        distance = away;
      });
      if (best >= 0) return best;
    }
    return -1;
  }

  /** @param {number} y */
  inside(y) {
    return y + this.scrollTop - this.headHeight;
  }

  listen() {
    this.scroller.addEventListener("scroll", () => this.redraw(), { passive: true });
    this.scroller.addEventListener("wheel", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) {
        event.preventDefault();
        this.store.zoom(Math.exp(event.deltaY * 0.002), this.timeAt(Math.max(GUTTER, placeIn(event, this.stage)[0])));
      } else if (Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey) {
        event.preventDefault();
        this.store.pan((event.deltaX || event.deltaY) / this.plotWidth);
      }
    }, { passive: false });
    this.stage.addEventListener("pointerdown", (event) => {
      const [x, y] = placeIn(event, this.stage);
      if (event.button !== 0 || x < GUTTER) return;
      const inOverview = y < OVERVIEW_HEIGHT;
      const kind = event.shiftKey || y < OVERVIEW_HEIGHT + AXIS_HEIGHT ? "select" : "pan";
      this.drag = { kind, from: x, to: x, y, range: [...this.store.range], moved: false, inOverview, scroll: this.scroller.scrollTop };
      this.stage.setPointerCapture(event.pointerId);
    });
    this.stage.addEventListener("pointermove", (event) => {
      const [x, y] = placeIn(event, this.stage);
      if (this.drag) this.dragTo(this.drag, x, y);
      else this.hoverAt(x, y, event);
    });
    this.stage.addEventListener("pointerup", (event) => {
      const [x, y] = placeIn(event, this.stage);
      const { drag } = this;
      this.drag = null;
      if (!drag) return this.clickGutter(x, y);
      this.drop(drag, x, y);
      drawOverlay(this);
    });
    this.stage.addEventListener("pointerleave", () => {
      this.hover = -1;
      this.app.hideTip();
      drawOverlay(this);
    });
    this.stage.addEventListener("dblclick", (event) => {
      const row = this.at(...placeIn(event, this.stage));
      if (row >= 0) this.focus(row, true);
    });
  }

  /** @param {Drag} drag @param {number} x @param {number} y */
  dragTo(drag, x, y) {
    if (Math.abs(x - drag.from) + Math.abs(y - drag.y) > 3) drag.moved = true;
    drag.to = Math.max(GUTTER, x);
    if (drag.kind === "pan" && drag.moved) {
      const shift = ((drag.from - x) / this.plotWidth) * (drag.range[1] - drag.range[0]);
      this.scroller.scrollTop = drag.scroll + drag.y - y;
      this.store.setRange(drag.range[0] + shift, drag.range[1] + shift);
    } else drawOverlay(this);
  }

  /** Handle the end of a drag, or a click.
   * @param {Drag} drag @param {number} x @param {number} y */
  drop(drag, x, y) {
    const { store } = this;
    const scale = drag.inOverview ? new Scale([0, store.end], GUTTER, this.plotWidth) : this.scale;
    if (drag.kind === "select" && drag.moved) {
      const times = [scale.timeAt(drag.from), scale.timeAt(drag.to)];
      store.setRange(Math.min(...times), Math.max(...times));
    } else if (drag.kind === "select" && drag.inOverview) {
      const half = (store.range[1] - store.range[0]) / 2, middle = scale.timeAt(x);
      store.setRange(middle - half, middle + half);
    } else if (!drag.moved) {
      const step = this.pathStepAt(x, y);
      const row = this.at(x, y);
      if (step && step.row >= 0) this.app.selectSpan(step.row);
      else store.select(row >= 0 ? { type: "span", row } : null);
    }
  }

  /** The step of the critical path at a position, if the path is drawn there.
   * @param {number} x @param {number} y */
  pathStepAt(x, y) {
    if (!this.store.showPath || x < GUTTER || y <= OVERVIEW_HEIGHT + AXIS_HEIGHT || y >= this.headHeight) return null;
    const time = this.timeAt(x);
    return this.store.meta.path.steps.find((step) => step.start <= time && time < step.end) ?? null;
  }

  /** @param {number} x @param {number} y */
  clickGutter(x, y) {
    if (x > GUTTER || y < this.headHeight) return;
    const at = this.inside(y);
    const row = this.rows.find((each) => (each.kind === "node" || each.kind === "place") && at >= each.y && at <= each.y + each.height);
    if (row?.kind === "place" && x > 24) this.store.select({ type: "place", id: row.place });
    else if (row?.kind === "place") this.collapse("p" + row.place);
    else if (row?.kind === "node") this.collapse("n" + row.node);
  }

  /** Collapse or expand a node or place.
   * @param {string} key */
  collapse(key) {
    if (!this.collapsed.delete(key)) this.collapsed.add(key);
    this.buildRows();
  }

  /** @param {number} x @param {number} y @param {PointerEvent} event */
  hoverAt(x, y, event) {
    const { app, store } = this;
    const row = this.at(x, y);
    this.stage.style.cursor = row >= 0 || (x < GUTTER && y > this.headHeight) ? "pointer" : x > GUTTER && y < this.headHeight ? "crosshair" : "default";
    const step = this.pathStepAt(x, y);
    const at = this.inside(y);
    const queue = x > GUTTER && row < 0 && y > this.headHeight ? this.rows.find((each) => each.kind === "queue" && at >= each.y && at <= each.y + each.height) : null;
    const waiting = queue?.kind === "queue" ? this.queues[queue.place]?.at(this.timeAt(x)) ?? 0 : 0;
    if (row >= 0) app.tip(event, spanTip(store, row));
    else if (step) app.tip(event, [categoryLabel(step.cause), duration(step.end - step.start), step.why]);
    else if (waiting > 0 && queue?.kind === "queue") app.tip(event, [counted(waiting, "call") + " waiting", `for ${safe(store.meta.places[queue.place].label)}`], true);
    else app.hideTip();
    if (row !== this.hover) {
      this.hover = row;
      drawOverlay(this);
    }
  }

  /** Bring a span into view; with `isClose`, zoom so that it fills most of the width.
   * @param {number} row @param {boolean} [isClose] */
  focus(row, isClose = false) {
    const { store } = this;
    const range = rangeFor(store.range, store.start[row], store.endOf(row), isClose);
    if (range) store.setRange(range[0], range[1]);
    this.uncover(row);
    const found = this.barsOf(row);
    if (found) {
      const top = this.scroller.scrollTop, room = this.viewHeight - this.headHeight;
      if (found.y < top || found.y + found.height > top + room) this.scroller.scrollTop = Math.max(0, found.y - room / 3);
    }
    this.redraw();
  }

  /** @param {number} row */
  uncover(row) {
    const place = this.store.place(row), node = this.store.meta.places[place].node;
    const isHidden = [this.collapsed.delete("p" + place), this.collapsed.delete("n" + node)].some(Boolean);
    if (isHidden) this.buildRows();
  }

  /** The neighbour of a span in the direction of a key, or -1: along its row, up to its parent, down to its first child.
   * @param {number} row @param {string} key */
  neighbour(row, key) {
    const { store } = this;
    if (key === "ArrowUp") return store.parent[row];
    if (key === "ArrowDown") return store.children(row).find((child) => !store.isHidden(child)) ?? -1;
    return store.neighbour(row, key === "ArrowLeft" ? -1 : 1);
  }

  /** The first span in the topmost row of bars, or -1. */
  firstBar() {
    const row = this.rows.find(({ kind }) => kind === "bars");
    return row?.kind === "bars" ? this.store.firstOf(row.sub) : -1;
  }

  /** @param {Change} what */
  update(what) {
    // Not disabled, since that would take the focus from a pressed button.
    if (what === "range") for (const button of [this.outButton, this.wholeButton]) button.setAttribute("aria-disabled", String(this.store.isWhole));
    if (what === "path") this.fillLegend();
    if (what === "filter") {
      this.strip = null;
      this.buildRows();
    } else if (what === "path") this.resize();
    else this.redraw();
  }
}

/** The range that brings a span from `begin` to `end` into view, null if it is visible already; with `isClose`, a range of
 * which the span fills most.
 * @param {number[]} range @param {number} begin @param {number} end @param {boolean} isClose */
export function rangeFor([from, to], begin, end, isClose) {
  const took = Math.max(end - begin, 1000);
  if (isClose) return [begin - took * 0.15, end + took * 0.15];
  if (begin >= from && begin <= to && end >= from) return null;
  const size = Math.max(to - from, took * 1.2), middle = begin + took / 2;
  return [middle - size / 2, middle + size / 2];
}

/** The text about a span in its tooltip, and for screen readers.
 * @param {Store} store @param {number} row */
export function spanTip(store, row) {
  const lines = [store.label(row), `${duration(store.took[row])}${store.state(row) ? ` (${STATES[store.state(row)]})` : ""}`];
  if (store.queued(row) >= 0) lines.push(`${duration(store.queued(row))} in the queue`);
  lines.push(store.placeLabel(row));
  if (store.failed(row)) lines.push("failed");
  return lines;
}
