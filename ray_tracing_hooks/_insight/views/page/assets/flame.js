// The flame graph: calls merged by their stacks across all processes, for the current range and filter.
//
// The width of a frame is its own time plus that of all frames below it, so all frames share one scale, and the label of a
// frame states what its width shows. Waiting is hatched; the calls that it waits for are its siblings and count there.

import { MEMBER, View, el, emptied, fitCanvas, fitted, inNextFrame, numberColumn, pen, placeIn, shareColumn, sortedTable, textColumn, timeColumn } from "./dom.js";
import { counted, duration, percent, plainName, shortened } from "./format.js";
import { LEAST_ON_PATH } from "./store.js";

const FLAME_ROW = 20;

export class Flame extends View {
  /** @param {Store} store @param {Colours} colours @param {App} app */
  constructor(store, colours, app) {
    super(store, colours, app);
    /** @type {Look} */
    this.look = { mode: "wall", order: "size", zoomed: -1 };
    this.hover = -1;
    this.width = 0;
    this.viewHeight = 0;
    this.ratio = 1;
    this.stale = true;
    /** @type {StackFigures} */
    this.figures = { spans: [], summed: [], wall: [], own: [], share: [] };
    this.frames = layOut({ parent: [], first: [], wait: [] }, this.figures, this.look);
    this.children = tree(store.meta.flame.parent).children;
    /** @type {Uint8Array | null} */
    this.matchedOf = null;
    /** @type {Uint8Array | null} */
    this.matchedFound = null;
    this.canvas = el("canvas", { class: "bars", "aria-hidden": "true" });
    this.spacer = el("div", { class: "spacer" });
    this.stage = el("div", { class: "stage" }, this.canvas);
    this.scroller = el("div", {
      class: "scroller", tabindex: 0, role: "application",
      "aria-label": "Flame graph. Arrow keys go to the parent, the largest child and the siblings; Enter zooms in. The table below has the same figures.",
    }, this.stage, this.spacer);
    this.note = el("p", { class: "note" });
    this.table = el("div", { class: "flame-table" });
    /** @param {"mode" | "order"} name @param {string} label @param {[string, string, string][]} options */
    const pick = (name, label, options) => el("div", { class: "segments", role: "group", "aria-label": label },
      options.map(([key, text, title]) => {
        const button = el("button", { type: "button", "data-key": key, title, "aria-pressed": String(this.look[name] === key), onclick: () => this.pick(name, key, button) }, text);
        return button;
      }));
    this.outButton = el("button", { type: "button", class: "quiet", "data-action": "flame-out", hidden: true, onclick: () => this.zoomTo(-1) }, "Zoom out");
    this.bar = el("div", { class: "viewbar" }, app.apartButton(),
      pick("mode", "Time", [["wall", "Wall time", "Each moment counts once, divided among the calls that ran then"], ["summed", "Summed", "Time of all calls added up: concurrent calls each count in full"]]),
      pick("order", "Order", [["size", "Largest first", "Largest child to the left"], ["time", "By time", "In the order of their first start"]]),
      this.outButton, this.note);
    this.root = el("div", { class: "view flame" }, this.bar, this.scroller, this.table);
    this.redraw = inNextFrame(() => this.root.hidden, () => {
      if (this.stale) this.compute();
      this.scroller.style.height = this.height + "px";
      if (this.scroller.clientHeight !== this.viewHeight) this.fit();
      this.spacer.style.height = Math.max(0, this.height - this.viewHeight) + "px";
      this.draw();
    });
    this.listen();
  }

  /** @param {"mode" | "order"} name @param {string} key @param {HTMLElement} button */
  pick(name, key, button) {
    Object.assign(this.look, { [name]: key });
    for (const each of button.parentElement?.children ?? []) each.setAttribute("aria-pressed", String(each === button));
    this.stale = true;
    this.redraw();
  }

  /** @param {number} id */
  label(id) {
    return this.store.shownNames[this.store.meta.flame.name[id]];
  }

  get height() {
    return this.frames.levels.length * FLAME_ROW + 12;
  }

  /** The figures of the spans in the range and filter. */
  shown() {
    if (this.stale) this.compute();
    return this.figures;
  }

  compute() {
    const { store } = this;
    this.figures = store.flameFigures();
    this.frames = layOut(store.meta.flame, this.figures, this.look);
    this.note.textContent = (this.look.mode === "summed"
      ? "Frame width = time of all calls added up, without waiting."
      : "Frame width = share of wall time, split evenly between calls running at the same moment. Hatched = waiting while nothing ran.")
      + (store.isWhole ? "" : " Selected range only.") + (store.isFiltered ? " Filtered spans only." : "");
    this.fillTable();
    this.stale = false;
  }

  /** The meaning of a frame's width: its share of what is shown, and the time of that share. Ancestors of the zoomed frame
   * have its width, which says nothing about them.
   * @param {number} id */
  shareText(id) {
    const { depth, firstLevel, size, total } = this.frames;
    return depth[id] < firstLevel ? "" : `${percent(size[id])}  ${duration(size[id] * total)}`;
  }

  resize() {
    this.fit();
    this.redraw();
  }

  fit() {
    const width = this.scroller.clientWidth, height = this.scroller.clientHeight;
    if (!width || !height) return;
    this.ratio = window.devicePixelRatio || 1;
    this.width = width;
    this.viewHeight = height;
    fitCanvas(this.canvas, width, height, this.ratio);
    this.stage.style.height = height + "px";
  }

  draw() {
    const { colours, ratio, frames: { left, levels, size } } = this;
    const context = pen(this.canvas, { alpha: false });
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.fillStyle = colours.surface;
    context.fillRect(0, 0, this.width, this.viewHeight);
    context.font = MEMBER;
    context.textBaseline = "middle";
    const matched = this.matchedNodes();
    const top = this.scroller.scrollTop;
    const from = Math.floor(top / FLAME_ROW), to = Math.ceil((top + this.viewHeight) / FLAME_ROW);
    for (let level = from; level < Math.min(to, levels.length); level++) {
      for (const id of levels[level]) {
        const width = size[id] * this.width;
        if (width >= 0.3) this.drawFrame(context, id, left[id] * this.width, level * FLAME_ROW - top + 6, width, !matched || matched[id] === 1);
      }
    }
    if (!levels.length) {
      context.fillStyle = colours.soft;
      context.fillText("No span in this range passes the filter.", 16, 28);
    }
  }

  /** @param {CanvasRenderingContext2D} context @param {number} id @param {number} x @param {number} y @param {number} width @param {boolean} isLit */
  drawFrame(context, id, x, y, width, isLit) {
    const { store, colours } = this;
    const { errors, name, path, wait } = store.meta.flame;
    const plain = colours.ofNameIndex(name[id]);
    const ground = wait[id] || !isLit ? colours.dimmed(plain) : plain;
    context.fillStyle = ground;
    context.fillRect(x, y, Math.max(0.7, width - 1), FLAME_ROW - 1);
    if (wait[id]) {
      context.fillStyle = colours.hatch(context, plain);
      context.fillRect(x, y, Math.max(0.7, width - 1), FLAME_ROW - 1);
    }
    if (errors[id] && width > 4) {
      context.fillStyle = colours.failed;
      context.fillRect(x, y, Math.min(4, width), FLAME_ROW - 1);
    }
    if (store.showPath && path[id] > LEAST_ON_PATH * store.meta.path.total) {
      context.fillStyle = colours.path;
      context.fillRect(x, y + FLAME_ROW - 5, Math.max(1, width - 1), 4);
    }
    if (width > 26) {
      const room = width - 12;
      const label = fitted(plainName(this.label(id)), room, context.font), whole = `${label}  ${this.shareText(id)}`;
      const text = context.measureText(whole).width <= room ? whole : label;
      if (wait[id]) {
        context.fillStyle = ground;
        context.fillRect(x + 3, y + 1, context.measureText(text).width + 6, FLAME_ROW - 3);
      }
      context.fillStyle = isLit && !wait[id] ? colours.text(plain) : colours.quiet(ground);
      context.fillText(text, x + 6, y + FLAME_ROW / 2 - (store.showPath ? 1.5 : 0), width - 8);
    }
    if (id === this.hover || this.isChosen(id)) {
      context.strokeStyle = this.isChosen(id) ? colours.ink : colours.soft;
      context.lineWidth = 2;
      context.strokeRect(x + 1, y + 1, Math.max(1, width - 3), FLAME_ROW - 3);
    }
  }

  /** @param {number} id */
  isChosen(id) {
    const { store } = this;
    return store.chosenId("flame") === id || (store.chosenRow >= 0 && store.flame[store.chosenRow] === id);
  }

  /** Frames that contain a selected span, null if all are drawn the same. */
  matchedNodes() {
    const { lit } = this.store;
    if (!lit) return null;
    if (this.matchedOf !== lit) {
      this.matchedFound = this.store.matchedStacks();
      this.matchedOf = lit;
    }
    return this.matchedFound;
  }

  fillTable() {
    const { figures: { summed, spans, own }, frames: { value } } = this;
    const { parent, wait } = this.store.meta.flame;
    const total = tree(parent).roots.reduce((sum, id) => sum + value[id], 0) || 1;
    const ids = [...value.keys()].filter((id) => spans[id]);
    /** @param {number} id */
    const stack = (id) => [
      el("button", { type: "button", class: "link", title: this.stackText(id), onclick: () => this.store.select({ type: "flame", id }) }, shortened(this.stackText(id), 110)),
      wait[id] ? el("span", { class: "badge" }, "waiting") : null];
    emptied(this.table, sortedTable({ rows: ids, caption: "Stacks by time", first: 3, most: 100, about: (id) => ({ "data-flame": id }), columns: [
      textColumn("Stack", (id) => this.stackText(id), stack),
      numberColumn("Spans", (id) => spans[id]), shareColumn("Share", (id) => value[id] / total), timeColumn("Width", (id) => value[id], "The time that the width of its frame shows"),
      timeColumn("Summed", (id) => summed[id], "Time of all its spans added up"), timeColumn("Self", (id) => own[id], "Time in which nothing below it ran")] }));
  }

  /** @param {number} id */
  stackText(id) {
    const { parent } = this.store.meta.flame;
    const names = [];
    for (let at = id, left = 40; at >= 0 && left; at = parent[at], left--) names.unshift(shortened(this.label(at), 60));
    return names.join(" › ");
  }

  /** @param {number} id */
  zoomTo(id) {
    this.look.zoomed = id;
    this.outButton.hidden = id < 0;
    this.stale = true;
    this.scroller.scrollTop = 0;
    this.redraw();
  }

  /** The frame at a position, or -1.
   * @param {number} x @param {number} y */
  at(x, y) {
    const { left, levels, size } = this.frames;
    const level = Math.floor((y + this.scroller.scrollTop - 6) / FLAME_ROW), share = x / this.width;
    return (levels[level] || []).find((id) => share >= left[id] && share < left[id] + size[id]) ?? -1;
  }

  listen() {
    const { app, store } = this;
    this.scroller.addEventListener("scroll", () => this.redraw(), { passive: true });
    this.stage.addEventListener("pointermove", (event) => {
      const id = this.at(...placeIn(event, this.stage));
      if (id !== this.hover) {
        this.hover = id;
        this.redraw();
      }
      this.stage.style.cursor = id >= 0 ? "pointer" : "default";
      if (id < 0) app.hideTip();
      else app.tip(event, this.tip(id));
    });
    this.stage.addEventListener("pointerleave", () => {
      this.hover = -1;
      app.hideTip();
      this.redraw();
    });
    this.stage.addEventListener("click", (event) => {
      const id = this.at(...placeIn(event, this.stage));
      store.select(id >= 0 ? { type: "flame", id } : null);
    });
    this.stage.addEventListener("dblclick", (event) => this.zoomInOrOut(this.at(...placeIn(event, this.stage))));
    this.scroller.addEventListener("keydown", (event) => {
      const chosen = store.chosenId("flame");
      if (event.key === "Enter" && chosen >= 0) this.zoomInOrOut(chosen);
      if (!event.key.startsWith("Arrow")) return;
      event.preventDefault();
      event.stopPropagation();
      const next = neighbour(event.key, chosen, store.meta.flame, this.frames);
      if (next >= 0) store.select({ type: "flame", id: next });
    });
  }

  /** @param {number} id */
  zoomInOrOut(id) {
    this.zoomTo(id === this.look.zoomed ? -1 : id);
  }

  /** @param {number} id */
  tip(id) {
    const { spans, summed, wall } = this.figures;
    const errors = this.store.meta.flame.errors[id];
    return [
      this.label(id), this.shareText(id).replace("  ", " of what is shown: ") || null,
      `${counted(spans[id], "span")} · ${duration(summed[id])} summed · at least one running for ${duration(wall[id])}`, errors ? counted(errors, "error") : null,
    ];
  }

  /** @param {Change} what */
  update(what) {
    if (what === "apart") {
      this.children = tree(this.store.meta.flame.parent).children;
      this.matchedOf = null;
      this.zoomTo(-1);
    }
    if (what === "range" || what === "filter") this.stale = true;
    this.redraw();
  }
}

/** How the graph is drawn: `zoomed` is the frame that fills it, -1 for none.
 * @typedef {{ mode: "wall" | "summed", order: "size" | "time", zoomed: number }} Look */
/** For each frame its value in nanoseconds, its left edge and size as shares of the width, and its level. `levels` has the
 * frames that are drawn; those above `firstLevel` are the ancestors of the zoomed frame, with its width.
 * @typedef {{ value: Float64Array, left: Float64Array, size: Float64Array, depth: Uint32Array, levels: number[][], total: number, firstLevel: number }} Frames */

/** Below frames narrower than this share of the width, nothing is drawn. */
const NARROWEST = 1 / 4000;

/** @param {Numbers} parent @returns {{ children: number[][], roots: number[] }} */
export function tree(parent) {
  /** @type {number[][]} */
  const children = Array.from({ length: parent.length }, () => []);
  /** @type {number[]} */
  const roots = [];
  for (let id = 0; id < parent.length; id++) (parent[id] < 0 ? roots : children[parent[id]]).push(id);
  return { children, roots };
}

/** @param {Pick<FlameMeta, "parent" | "first" | "wait">} flame @param {Pick<StackFigures, "own" | "share">} figures @param {Look} look @returns {Frames} */
export function layOut({ parent, first, wait }, { own, share }, { mode, order, zoomed }) {
  const count = parent.length;
  const { children, roots } = tree(parent);
  const value = mode === "wall" ? Float64Array.from(share) : Float64Array.from(own, (ns, id) => (wait[id] ? 0 : ns));
  for (let id = count - 1; id >= 0; id--) if (parent[id] >= 0) value[parent[id]] += value[id];
  const left = new Float64Array(count), size = new Float64Array(count), depth = new Uint32Array(count);
  /** @param {number} a @param {number} b */
  const by = (a, b) => (order === "size" ? wait[a] - wait[b] || value[b] - value[a] : first[a] - first[b]);
  /** @type {number[][]} */
  const levels = [];
  /** @type {number[]} */
  const pending = [];
  /** @param {number} id @param {number} x @param {number} width @param {number} level */
  const put = (id, x, width, level) => {
    left[id] = x;
    size[id] = width;
    depth[id] = level;
    (levels[level] ||= []).push(id);
  };
  /** @param {number[]} ids @param {number} from @param {number} scale @param {number} level */
  const beside = (ids, from, scale, level) => {
    let x = from;
    for (const id of [...ids].sort(by)) {
      const width = value[id] * scale;
      if (width > 0) put(id, x, width, level);
      if (width > NARROWEST) pending.push(id);
      x += width;
    }
  };
  const above = [];
  for (let id = zoomed >= 0 ? parent[zoomed] : -1; id >= 0; id = parent[id]) above.unshift(id);
  above.forEach((id, level) => put(id, 0, 1, level));
  const all = zoomed >= 0 ? [zoomed] : roots;
  const total = all.reduce((sum, id) => sum + value[id], 0) || 1;
  beside(all, 0, 1 / total, above.length);
  for (let id = pending.pop(); id !== undefined; id = pending.pop()) beside(children[id], left[id], size[id] / (value[id] || 1), depth[id] + 1);
  return { value, left, size, depth, levels, total, firstLevel: above.length };
}

/** The frame that an arrow key leads to from a frame, or from none (-1): the parent, the largest child, or a neighbour.
 * @param {string} key @param {number} id @param {Pick<FlameMeta, "parent">} flame @param {Frames} frames */
export function neighbour(key, id, { parent }, { left, size, depth, levels }) {
  if (key === "ArrowUp") return id >= 0 ? parent[id] : -1;
  if (key === "ArrowDown") {
    const { children, roots } = tree(parent);
    return (id < 0 ? roots : children[id]).reduce((best, each) => (size[each] > 0 && (best < 0 || size[each] > size[best]) ? each : best), -1);
  }
  if (id < 0) return -1;
  const row = [...(levels[depth[id]] || [])].sort((a, b) => left[a] - left[b]);
  return row[row.indexOf(id) + (key === "ArrowLeft" ? -1 : 1)] ?? -1;
}
