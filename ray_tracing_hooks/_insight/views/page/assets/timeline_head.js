// The fixed head of the timeline: the overview of the whole run, the axis, and the critical path.

import { category, categoryLabel } from "./colours.js";
import { BOLD_FIGURES, FIGURES } from "./dom.js";
import { clock, duration, number, shortened } from "./format.js";
import { axisLabel, firstStep, niceStep } from "./scale.js";

// Narrow on a phone.
export const GUTTER = globalThis.innerWidth < 760 ? 130 : 230;
export const OVERVIEW_HEIGHT = 44, AXIS_HEIGHT = 24, PATH_HEIGHT = 24;
const LETTER = 5.8;

/** @typedef {import("./timeline.js").Timeline} Timeline */

/** @param {Timeline} view @param {CanvasRenderingContext2D} context */
export function drawHead(view, context) {
  const { store, colours, headHeight, width } = view;
  context.fillStyle = colours.surface;
  context.fillRect(0, 0, width, headHeight);
  context.textBaseline = "middle";
  drawOverview(view, context);
  drawAxis(view, context);
  if (store.showPath) drawPath(view, context);
  context.fillStyle = colours.line;
  context.fillRect(0, headHeight - 1, width, 1);
}

/** How many spans run at the same time over the whole run, and the visible part of the run.
 * @param {Timeline} view @param {CanvasRenderingContext2D} context */
function drawOverview(view, context) {
  const { store, colours, plotWidth, width } = view;
  const height = OVERVIEW_HEIGHT - 4;
  const { running, most, failed } = (view.strip ??= store.strip());
  context.fillStyle = colours.panel;
  context.fillRect(0, 0, width, OVERVIEW_HEIGHT);
  const step = plotWidth / running.length;
  context.fillStyle = colours.faint;
  context.beginPath();
  context.moveTo(GUTTER, height);
  running.forEach((value, n) => {
    const y = height - (height - 6) * (value / (most || 1));
    context.lineTo(GUTTER + n * step, y);
    context.lineTo(GUTTER + (n + 1) * step, y);
  });
  context.lineTo(width, height);
  context.fill();
  context.fillStyle = colours.failed;
  for (let n = 0; n < failed.length; n++) if (failed[n]) context.fillRect(GUTTER + n * step, height - 3, Math.max(2, step), 3);
  const [x0, x1] = store.range.map((time) => GUTTER + (time / store.end) * plotWidth);
  if (!store.isWhole) {
    context.globalAlpha = 0.6;
    context.fillStyle = colours.surface;
    context.fillRect(GUTTER, 0, x0 - GUTTER, OVERVIEW_HEIGHT - 1);
    context.fillRect(x1, 0, width - x1, OVERVIEW_HEIGHT - 1);
    context.globalAlpha = 1;
  }
  context.strokeStyle = colours.accent;
  context.lineWidth = 1.5;
  context.strokeRect(x0 + 0.75, 0.75, Math.max(2, x1 - x0 - 1.5), OVERVIEW_HEIGHT - 2.5);
  context.fillStyle = colours.soft;
  context.font = FIGURES;
  context.fillText("Concurrent calls", 12, 14);
  // For part of the spans only averages are known, each over 1/600 of the time.
  context.fillText(store.isFiltered || !store.meta.peak ? `at most about ${number(Math.round(most * 10) / 10)}` : `at most ${number(store.meta.peak)}`, 12, 30);
}

/** @param {Timeline} view @param {CanvasRenderingContext2D} context */
function drawAxis({ store, colours, plotWidth, scale, width }, context) {
  const [from, to] = store.range;
  const y = OVERVIEW_HEIGHT, middle = y + AXIS_HEIGHT / 2;
  context.fillStyle = colours.surface;
  context.fillRect(0, y, width, AXIS_HEIGHT);
  const step = niceStep((to - from) / Math.max(2, plotWidth / 110));
  context.font = FIGURES;
  for (let tick = Math.ceil(from / step) * step; tick <= to; tick += step) {
    const x = scale.x(tick);
    context.fillStyle = colours.line;
    context.fillRect(Math.round(x), y, 1, AXIS_HEIGHT);
    context.fillStyle = colours.soft;
    if (x + 60 < width) context.fillText(axisLabel(tick, step), x + 4, middle);
  }
  context.fillStyle = colours.panel;
  context.fillRect(0, y, GUTTER - 1, AXIS_HEIGHT);
  context.fillStyle = colours.ink;
  context.font = BOLD_FIGURES;
  context.fillText(duration(to - from), 12, middle);
  context.fillStyle = colours.soft;
  context.font = FIGURES;
  if (GUTTER > 200) context.fillText(`from ${clock(store.meta.start_ms + from / 1e6, step)}`, 76, middle);
}

/** @param {Timeline} view @param {CanvasRenderingContext2D} context */
function drawPath({ store, colours, plotWidth, scale, width }, context) {
  const y = OVERVIEW_HEIGHT + AXIS_HEIGHT, middle = y + PATH_HEIGHT / 2;
  context.fillStyle = colours.surface;
  context.fillRect(0, y, width, PATH_HEIGHT);
  context.font = FIGURES;
  const [from, to] = store.range;
  const { steps } = store.meta.path;
  for (let n = firstStep(steps, from), next; n < steps.length && steps[n].start <= to; n = next) {
    const step = steps[n];
    const x0 = Math.max(GUTTER, scale.x(step.start)), x1 = Math.min(width, scale.x(step.end));
    // One step per pixel is enough.
    next = x1 - x0 < 1 ? Math.max(n + 1, firstStep(steps, scale.timeAt(Math.floor(x0) + 1))) : n + 1;
    const size = Math.max(1, x1 - x0 - 0.5);
    const { colour, waits } = category(step.cause);
    const isRun = step.cause === "run" && step.row >= 0;
    context.fillStyle = colour;
    context.fillRect(x0, y + 3, size, PATH_HEIGHT - 7);
    if (waits && size > 3) {
      context.fillStyle = colours.hatch(context, colours.surface);
      context.fillRect(x0, y + 3, size, PATH_HEIGHT - 7);
    }
    const fits = Math.floor((size - 8) / LETTER);
    if (fits <= 3) continue;
    const text = shortened(isRun ? store.shortLabel(step.row) : categoryLabel(step.cause), fits);
    if (waits) {
      context.fillStyle = colour;
      context.fillRect(x0 + 2, y + 4, text.length * LETTER + 6, PATH_HEIGHT - 9);
    }
    context.fillStyle = colours.text(colour);
    context.fillText(text, x0 + 5, middle, size - 6);
  }
  context.fillStyle = colours.path;
  context.fillRect(GUTTER, y + PATH_HEIGHT - 4, plotWidth, 2);
  context.fillStyle = colours.panel;
  context.fillRect(0, y, GUTTER - 1, PATH_HEIGHT);
  context.fillStyle = colours.ink;
  context.font = BOLD_FIGURES;
  context.fillText("Critical path", 12, middle);
}
