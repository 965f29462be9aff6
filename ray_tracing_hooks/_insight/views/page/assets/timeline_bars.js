// The bars of the timeline and the labels beside them.
//
// Bars narrower than a few pixels are written as pixels of an image, which is ten times as fast as drawing rectangles. Only
// wider bars are drawn and labelled.

import { PALETTE } from "./colours.js";
import { FIGURES, MEMBER, TITLE } from "./dom.js";
import { FAILED, PRODUCER } from "./figures.js";
import { duration, safe, shortened } from "./format.js";
import { GUTTER } from "./timeline_head.js";
import { PLACE_GAP } from "./timeline_layout.js";

const NARROW = 4;

/** @typedef {import("./timeline.js").Timeline} Timeline */
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
