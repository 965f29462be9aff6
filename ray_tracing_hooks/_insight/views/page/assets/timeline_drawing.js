// What the timeline draws: its head (overview, axis, critical path), bars and labels, and what is above the bars.

import { PALETTE, category, categoryLabel } from "./colours.js";
import { BOLD_FIGURES, FIGURES, MEMBER, TITLE, pen } from "./dom.js";
import { FAILED, PRODUCER } from "./figures.js";
import { clock, duration, number, safe, shortened } from "./format.js";
import { axisLabel, firstStep, niceStep } from "./scale.js";
import { PLACE_GAP, arrowsOf } from "./timeline_layout.js";

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

const NARROW = 4;

/** @typedef {import("./timeline_layout.js").BarsRow} BarsRow */
/** @typedef {import("./timeline_layout.js").QueueRow} QueueRow */
/** @typedef {{ row: BarsRow, span: number }} Wide */

/** @param {Timeline} view @param {CanvasRenderingContext2D} context */
export function drawBars(view, context) {
  const wide = drawPixels(view, context);
  context.font = FIGURES;
  context.textBaseline = "middle";
  for (const { row, span } of wide) drawWide(view, context, row, span);
  if (view.store.showPath) outlinePath(view, context, wide);
  for (const row of view.rows) if (row.kind === "queue") drawQueue(view, context, row);
}

/** Draws the narrow bars, and returns the wide ones.
 * @param {Timeline} view @param {CanvasRenderingContext2D} context */
function drawPixels(view, context) {
  const { store, colours, ratio } = view;
  const left = Math.round(GUTTER * ratio);
  const width = view.canvas.width - left, height = view.canvas.height;
  if (!view.image || view.image.width !== width || view.image.height !== height) view.image = context.createImageData(width, height);
  const words = new Uint32Array(view.image.data.buffer);
  words.fill(colours.pixel(colours.surface));
  const [from, to] = store.range;
  const scale = width / (to - from);
  const { lit: matched, name } = store;
  // In a pixel the worst status wins, then the selection, then the longer bar.
  const palette = PALETTE.map((colour) => colours.pixel(colour));
  const dim = PALETTE.map((colour) => colours.pixel(colours.dimmed(colour)));
  const failed = colours.pixel(colours.failed), failedDim = colours.pixel(colours.dimmed(colours.failed));
  const submission = colours.pixel(colours.submission), submissionDim = colours.pixel(colours.dimmed(colours.submission));
  /** @type {Wide[]} */
  const wide = [];
  let drawn = 0;
  const top = view.scrollTop - view.headHeight, bottom = top + view.viewHeight;
  for (const row of view.rows) {
    if (row.kind !== "bars" || row.y + row.height < top + view.headHeight || row.y > bottom) continue;
    const y0 = Math.max(0, Math.round((row.y - top) * ratio));
    const y1 = Math.min(height, Math.round((row.y - top + row.height) * ratio));
    let last = -1, lastRank = -1;
    store.eachBar(row.sub, from, to, (i, begin, end, flag) => {
      const x0 = (begin - from) * scale, x1 = x0 + (end - begin) * scale;
      if (x1 - x0 >= NARROW) {
        wide.push({ row, span: i });
        last = -1;
        return;
      }
      const isMatched = !matched || matched[i];
      const rank = (flag & FAILED ? 4 : 0) + (isMatched ? 2 : 0) + ((flag & 7) === PRODUCER ? 0 : 1);
      const p0 = x0 < 0 ? 0 : x0 | 0;
      const p1 = Math.min(width, Math.max(p0 + 1, Math.round(x1)));
      if (p1 - 1 <= last && rank <= lastRank) return;
      last = p1 - 1;
      lastRank = rank;
      const pixel = flag & FAILED ? (isMatched ? failed : failedDim)
        : (flag & 7) === PRODUCER ? (isMatched ? submission : submissionDim)
        : (isMatched ? palette : dim)[colours.ofName[name[i]]];
      drawn++;
      for (let y = y0; y < y1; y++) words.fill(pixel, y * width + p0, y * width + p1);
    });
  }
  context.putImageData(view.image, left, 0);
  view.drawn = drawn + wide.length;
  return wide;
}

/** @param {Timeline} view @param {CanvasRenderingContext2D} context @param {BarsRow} row @param {number} i */
function drawWide(view, context, row, i) {
  const { store, colours, scale } = view;
  const x0 = Math.max(GUTTER, scale.x(store.start[i])), x1 = Math.min(view.width, scale.x(store.endOf(i)));
  const y = row.y - view.scrollTop + view.headHeight, middle = y + row.height / 2 + 0.5;
  const isMatched = !store.lit || store.lit[i] === 1;
  const plain = colours.of(i);
  const colour = isMatched ? plain : colours.dimmed(plain);
  const size = Math.max(1, x1 - x0 - 0.5);
  // Hollow: here the program waits.
  context.fillStyle = store.waits(i) ? colours.dimmed(plain) : colour;
  context.fillRect(x0, y, size, row.height);
  if (store.waits(i)) {
    context.strokeStyle = colour;
    context.lineWidth = 1;
    context.strokeRect(x0 + 0.5, y + 0.5, Math.max(0, size - 1), row.height - 1);
  }
  for (const phase of store.phases.get(i) ?? []) drawPhase(view, context, phase, y, row.height);
  if (store.state(i)) drawOpenEnd(context, x0, x1, y, row.height, colours.surface);
  context.fillStyle = view.inkOn(plain, i, isMatched);
  // A mark in addition to the colour, for people who cannot distinguish red.
  if (store.failed(i) && size > 14) context.fillText("✗", x0 + 4, middle);
  const indent = store.failed(i) ? 17 : 5;
  const fits = Math.floor((size - indent - 4) / 5.6);
  if (size <= 34 || fits <= 2) return;
  const label = store.shortLabel(i);
  const time = fits > label.length + 11 ? "  " + duration(store.took[i]) : "";
  context.fillText(shortened(label, fits) + time, x0 + indent, middle, size - indent);
}

/** @param {Timeline} view @param {CanvasRenderingContext2D} context @param {Wide[]} wide */
function outlinePath({ store, colours, scale, scrollTop, headHeight, width }, context, wide) {
  context.strokeStyle = colours.path;
  context.lineWidth = 2;
  for (const { row, span } of wide) {
    if (!store.onPath(span)) continue;
    const x0 = Math.max(GUTTER, scale.x(store.start[span])), x1 = Math.min(width, scale.x(store.endOf(span)));
    context.globalAlpha = !store.lit || store.lit[span] ? 1 : 0.35;
    context.strokeRect(x0 + 1, row.y - scrollTop + headHeight + 1, Math.max(1, x1 - x0 - 2), row.height - 2);
  }
  context.globalAlpha = 1;
}

/** A phase of a generation begins with a line; the queue is hatched.
 * @param {Timeline} view @param {CanvasRenderingContext2D} context @param {{ kind: number, from: number, to: number }} phase @param {number} y @param {number} height */
function drawPhase({ colours, scale, width }, context, { kind, from, to }, y, height) {
  const x0 = Math.max(GUTTER, scale.x(from)), x1 = Math.min(width, scale.x(to));
  if (x1 - x0 < 2) return;
  context.fillStyle = kind ? colours.surface : colours.hatch(context, colours.surface);
  context.fillRect(x0, y, kind ? 1 : x1 - x0, height);
}

/** A bar whose end is not recorded fades out in stripes.
 * @param {CanvasRenderingContext2D} context @param {number} x0 @param {number} x1 @param {number} y @param {number} height @param {string} colour */
function drawOpenEnd(context, x0, x1, y, height, colour) {
  const size = Math.min(40, x1 - x0);
  context.save();
  context.beginPath();
  context.rect(x1 - size, y, size, height);
  context.clip();
  context.strokeStyle = colour;
  context.lineWidth = 2;
  for (let x = x1 - size - height; x < x1 + height; x += 6) {
    context.beginPath();
    context.moveTo(x, y + height);
    context.lineTo(x + height, y);
    context.stroke();
  }
  context.restore();
}

/** The mean number of calls that wait for this worker or actor, in each pixel.
 * @param {Timeline} view @param {CanvasRenderingContext2D} context @param {QueueRow} row */
function drawQueue({ colours, headHeight, plotWidth, queues, scale, scrollTop, viewHeight }, context, row) {
  const y = row.y - scrollTop + headHeight;
  const queue = queues[row.place];
  if (!queue || y + row.height < headHeight || y > viewHeight) return;
  context.fillStyle = colours.panel;
  context.fillRect(GUTTER, y, plotWidth, row.height);
  const base = y + row.height;
  context.beginPath();
  context.moveTo(GUTTER, base);
  const step = 2;
  let before = queue.waited(scale.timeAt(GUTTER));
  for (let x = 0; x < plotWidth; x += step) {
    const from = scale.timeAt(GUTTER + x), to = scale.timeAt(GUTTER + x + step);
    const after = queue.waited(to);
    const depth = Math.max(0, (after - before) / (to - from));
    before = after;
    const h = depth <= 0.001 ? 0 : Math.max(2, (row.height - 1) * Math.min(1, depth / queue.most));
    context.lineTo(GUTTER + x, base - h);
    context.lineTo(GUTTER + x + step, base - h);
  }
  context.lineTo(GUTTER + plotWidth, base);
  context.closePath();
  context.fillStyle = colours.hatch(context, colours.soft);
  context.fill();
}

/** The labels of nodes, workers and actors.
 * @param {Timeline} view @param {CanvasRenderingContext2D} context */
export function drawGutter(view, context) {
  const { store, colours, headHeight, viewHeight, width } = view;
  const { nodes, places } = store.meta;
  const top = view.scrollTop - headHeight;
  context.fillStyle = colours.panel;
  context.fillRect(0, 0, GUTTER, viewHeight);
  context.textBaseline = "middle";
  const chosen = store.chosenRow >= 0 ? store.place(store.chosenRow) : store.chosenId("place");
  /** @param {string} text @param {number} x @param {number} y @param {string} font @param {string} colour @param {number} [most] */
  const write = (text, x, y, font, colour, most) => {
    context.font = font;
    context.fillStyle = colour;
    context.fillText(text, x, y, most);
  };
  for (const row of view.rows) {
    const y = row.y - top;
    if (y + row.height < headHeight || y > viewHeight) continue;
    if (row.kind === "node") {
      context.fillStyle = colours.panel;
      context.fillRect(0, y, width, row.height - 3);
      const { label, detail } = nodes[row.node], middle = y + row.height / 2 - 1;
      write(`${view.collapsed.has("n" + row.node) ? "▸" : "▾"} ${shortened(safe(label), 44)}`, 10, middle, TITLE, colours.ink, GUTTER - 14);
      if (detail) write(safe(detail), GUTTER + 8, middle, FIGURES, colours.soft);
    } else if (row.kind === "place") {
      const { label, detail } = places[row.place];
      if (row.place === chosen) {
        context.fillStyle = colours.accent;
        context.fillRect(0, y, 3, row.height);
      }
      const indent = Math.min(row.level, 6) * 10;
      write(`${row.isCollapsed ? "▸" : "▾"} ${shortened(safe(label), 30)}`, 10 + indent, y + 9, MEMBER, colours.ink, GUTTER - 18 - indent);
      if (!row.isCollapsed) {
        const queue = view.queues[row.place];
        // The label has no room for the worker's id as well; the details show it.
        const about = queue ? `${detail.split(" · ")[0]} · max queue ${queue.most}` : detail;
        write(shortened(safe(about), 36), 22 + indent, y + 24, FIGURES, colours.soft, GUTTER - 30 - indent);
      }
      context.fillStyle = colours.line;
      context.fillRect(0, y + row.height + PLACE_GAP / 2, width, 1);
    }
  }
  context.fillStyle = colours.line;
  context.fillRect(GUTTER - 1, 0, 1, viewHeight);
}

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
