// The layer above the bars of the timeline, for the pointer and the selection: outlines, arrows, the moment, a drag.

import { pen } from "./dom.js";
import { GUTTER, OVERVIEW_HEIGHT } from "./timeline_head.js";
import { arrowsOf } from "./timeline_layout.js";

/** @typedef {import("./timeline.js").Timeline} Timeline */

/** @param {Timeline} view */
export function drawOverlay(view) {
  const { app, store, colours, drag, headHeight, plotWidth, ratio, viewHeight, width } = view;
  if (!width) return;
  const context = pen(view.overlay);
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, viewHeight);
  context.save();
  context.beginPath();
  context.rect(GUTTER, headHeight, plotWidth, viewHeight - headHeight);
  context.clip();
  const chosen = store.chosenRow;
  if (chosen >= 0) {
    drawQueueOf(view, context, chosen);
    for (const { from, fromTime, to, toTime, isWait } of arrowsOf(store, chosen)) drawArrow(view, context, from, fromTime, to, toTime, isWait);
    outline(view, context, chosen, colours.ink, 2);
  }
  if (view.hover >= 0 && view.hover !== chosen) outline(view, context, view.hover, colours.soft, 1.5);
  context.restore();
  if (app.view === "timeline" && store.momentShown) {
    const x = view.scale.x(store.moment);
    context.fillStyle = colours.accent;
    if (x >= GUTTER) context.fillRect(x, OVERVIEW_HEIGHT, 1.5, viewHeight);
  }
  if (drag?.kind === "select") {
    context.globalAlpha = 0.2;
    context.fillStyle = colours.accent;
    const x0 = Math.min(drag.from, drag.to), size = Math.abs(drag.to - drag.from);
    context.fillRect(x0, drag.inOverview ? 0 : OVERVIEW_HEIGHT, size, drag.inOverview ? OVERVIEW_HEIGHT : viewHeight);
    context.globalAlpha = 1;
  }
}

/** @param {Timeline} view @param {CanvasRenderingContext2D} context @param {number} row @param {string} colour @param {number} width */
function outline(view, context, row, colour, width) {
  const box = view.box(row);
  if (!box) return;
  context.strokeStyle = colour;
  context.lineWidth = width;
  const x0 = Math.max(GUTTER - 4, box.x0), x1 = Math.min(view.width + 4, box.x1);
  context.strokeRect(x0 - 1, box.y - 1, Math.max(3, x1 - x0 + 2), box.height + 2);
}

/** The queue time of the selected call, hatched, before its run.
 * @param {Timeline} view @param {CanvasRenderingContext2D} context @param {number} row */
function drawQueueOf(view, context, row) {
  const { colours, scale, store } = view;
  const of = store.is(row, "submission") ? store.children(row).find((child) => store.submission[child] === row) : row;
  if (of === undefined || store.queued(of) <= 0) return;
  const box = view.box(of);
  // The server's answer may lack the submission.
  if (!box || store.submission[of] < 0) return;
  const x0 = Math.max(GUTTER, scale.x(store.endOf(store.submission[of])));
  if (box.x0 - x0 < 1) return;
  context.globalAlpha = 0.85;
  context.fillStyle = colours.surface;
  context.fillRect(x0, box.y + 2, box.x0 - x0, box.height - 4);
  context.globalAlpha = 1;
  context.fillStyle = colours.hatch(context, colours.soft);
  context.fillRect(x0, box.y + 2, box.x0 - x0, box.height - 4);
  context.strokeStyle = colours.soft;
  context.lineWidth = 1;
  context.strokeRect(x0 + 0.5, box.y + 2.5, Math.max(0, box.x0 - x0 - 1), box.height - 5);
}

/** @param {Timeline} view @param {CanvasRenderingContext2D} context @param {number} from @param {number} fromTime
 * @param {number} to @param {number} toTime @param {boolean} isDashed */
function drawArrow(view, context, from, fromTime, to, toTime, isDashed) {
  const a = view.box(from), b = view.box(to);
  if (!a || !b) return;
  const x0 = view.scale.x(fromTime), x1 = view.scale.x(toTime);
  if (Math.max(x0, x1) < GUTTER - 50 || Math.min(x0, x1) > view.width + 50) return;
  const y0 = a.y + a.height / 2, y1 = b.y + b.height / 2;
  const bend = Math.max(10, Math.min(120, Math.abs(x1 - x0) / 2));
  context.strokeStyle = context.fillStyle = view.colours.accent;
  context.lineWidth = 1.5;
  context.setLineDash(isDashed ? [4, 3] : []);
  context.beginPath();
  context.moveTo(x0, y0);
  context.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1 - 5, y1);
  context.stroke();
  context.setLineDash([]);
  context.beginPath();
  context.moveTo(x1, y1);
  context.lineTo(x1 - 7, y1 - 3.5);
  context.lineTo(x1 - 7, y1 + 3.5);
  context.fill();
}
