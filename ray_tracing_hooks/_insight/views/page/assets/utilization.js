// Lanes below the timeline: how much of each node's GPUs, processors and memory was in use, where it was sampled.

import { FIGURES, el, fitCanvas, fitted, pen, placeIn } from "./dom.js";
import { duration, percent, safe } from "./format.js";
import { firstStep } from "./scale.js";
import { GUTTER } from "./timeline_drawing.js";

const HEIGHT = 22, ROOM = 5;

/** @typedef {import("./timeline.js").Timeline} Timeline */

export class Utilization {
  /** @param {Timeline} timeline */
  constructor(timeline) {
    this.timeline = timeline;
    const lanes = timeline.store.meta.utilization;
    this.lanes = lanes.map((lane) => ({ ...lane, pieces: lane.begins.map((begin, n) => ({ begin: 1e6 * begin, end: 1e6 * lane.ends[n], value: lane.values[n] / 1000 })) }));
    this.canvas = el("canvas", { "aria-hidden": "true" });
    this.stage = el("div", { class: "stage" }, this.canvas);
    this.spacer = el("div", {});
    const nodes = new Set(lanes.map(({ node }) => node));
    /** The labels of nodes are left out if there is only one. */
    this.labels = lanes.map(({ label, node }) => safe(nodes.size > 1 ? `${label} · ${node}` : label));
    this.root = el("div", {
      class: "utilization", tabindex: 0, role: "group", hidden: !lanes.length,
      "aria-label": `In use on average: ${lanes.map(({ mean }, n) => `${this.labels[n]} ${percent(mean)}`).join(", ")}`,
    }, lanes.length ? [this.stage, this.spacer] : null);
    this.root.addEventListener("scroll", () => this.draw(), { passive: true });
    this.stage.addEventListener("pointermove", (event) => this.tip(event));
    this.stage.addEventListener("pointerleave", () => timeline.app.hideTip());
  }

  resize() {
    if (this.root.hidden) return;
    const whole = HEIGHT * this.lanes.length, height = Math.min(whole, ROOM * HEIGHT);
    this.root.style.height = height + 1 + "px";
    this.stage.style.height = height + "px";
    this.spacer.style.height = whole - height + "px";
    fitCanvas(this.canvas, this.root.clientWidth, height, window.devicePixelRatio || 1);
  }

  draw() {
    if (this.root.hidden || !this.timeline.width) return;
    const { timeline: { colours, store, scale, plotWidth }, root } = this;
    const ratio = window.devicePixelRatio || 1, height = parseFloat(this.canvas.style.height);
    const context = pen(this.canvas, { alpha: false });
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.fillStyle = colours.surface;
    context.fillRect(0, 0, root.clientWidth, height);
    context.font = FIGURES;
    context.textBaseline = "middle";
    const first = Math.floor(root.scrollTop / HEIGHT);
    for (let n = first; n < this.lanes.length && n * HEIGHT - root.scrollTop < height; n++) {
      const y = n * HEIGHT - root.scrollTop, { pieces, mean } = this.lanes[n];
      context.fillStyle = colours.panel;
      context.fillRect(GUTTER, y + 2, plotWidth, HEIGHT - 3);
      context.fillStyle = colours.accent;
      for (let at = firstStep(pieces, store.range[0]); at < pieces.length && pieces[at].begin < store.range[1]; at++) {
        const { begin, end, value } = pieces[at];
        const x0 = Math.max(GUTTER, scale.x(begin)), x1 = Math.min(GUTTER + plotWidth, scale.x(end)), tall = (HEIGHT - 3) * value;
        context.fillRect(x0, y + HEIGHT - 1 - tall, Math.max(0.5, x1 - x0), tall);
      }
      context.fillStyle = colours.ink;
      context.fillText(fitted(this.labels[n], GUTTER - 80, FIGURES), 12, y + HEIGHT / 2 + 1);
      context.fillStyle = colours.soft;
      context.textAlign = "right";
      context.fillText(percent(mean), GUTTER - 8, y + HEIGHT / 2 + 1);
      context.textAlign = "left";
    }
  }

  /** @param {PointerEvent} event */
  tip(event) {
    const { timeline: { app, scale }, root } = this;
    const [x, y] = placeIn(event, this.stage);
    const n = Math.floor((y + root.scrollTop) / HEIGHT), lane = this.lanes[n];
    if (!lane) return app.hideTip();
    const time = scale.timeAt(x), at = firstStep(lane.pieces, time), piece = lane.pieces[at];
    const isThere = x >= GUTTER && piece && piece.begin <= time;
    app.tip(event, [
      `${safe(lane.label)} · ${safe(lane.node)}`, isThere ? `${percent(piece.value)} in use at ${duration(piece.begin)} – ${duration(piece.end)}` : x >= GUTTER ? "not sampled here" : null,
      `${percent(lane.mean)} on average, ${percent(lane.most)} at most`,
    ]);
  }
}
