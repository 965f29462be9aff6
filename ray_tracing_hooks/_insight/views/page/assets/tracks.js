// The operators of a dataset over time: tasks, queue or rate of each as an area, and below it when it was held back.

import { MEMBER, el, fitted, svg } from "./dom.js";
import { byteSize, counted, duration, number, safe, threeDigits } from "./format.js";
import { Scale, axisLabel, niceStep } from "./scale.js";

export const TRACK_GUTTER = 230;
const AXIS = 22, TRACK = 58, AREA = 34, TOP = 8, BAND = 7;

/** What the areas show. */
export const METRICS = /** @type {const} */ ([["running", "Running tasks"], ["queued", "Queue"], ["rate", "Rows/s"]]);
/** @typedef {(typeof METRICS)[number][0]} Metric */

/** The classes of causes, for their colours; memory counts even if something else was missing too.
 * @param {{ resource: string }} cause */
export function causeClass({ resource }) {
  if (resource.includes("memory")) return "memory";
  return resource === "CPU" || resource === "GPU" ? "processors" : "limit";
}

/** What held an operator back, for people.
 * @param {{ kind: string, policy: string, resource: string }} cause */
export function causeText({ kind, policy, resource }) {
  const what = resource || policy || "a policy";
  return `${what}${policy && resource ? ` (${policy})` : ""}${kind === "output" ? ", reading its output" : ""}`;
}

/** The values of a metric at the moments of an operator, and how to show one.
 * @param {Dataset} dataset @param {DatasetOperator} operator @param {Metric} metric */
function series(dataset, operator, metric) {
  const { timeline } = operator;
  if (metric === "running") return { values: timeline.running, text: (/** @type {number} */ value) => `at most ${counted(value, "task")}` };
  if (metric === "queued") return { values: timeline.queued_blocks, text: (/** @type {number} */ value) => `at most ${counted(value, "block")}` };
  return { values: rates(timeline, operator.start - dataset.start), text: (/** @type {number} */ value) => `at most ${perSecond(value)} rows/s` };
}

/** @param {number} value */
export function perSecond(value) {
  return value >= 99.95 ? number(Math.round(value)) : threeDigits(value);
}

/** The drawing of all operators: an axis, and a track for each, whose name selects its span.
 * @param {{ dataset: Dataset, range: number[], width: number, metric: Metric, chosen: number, select: (operator: DatasetOperator) => void }} about */
export function tracks({ dataset, range, width, metric, chosen, select }) {
  const scale = new Scale(range, TRACK_GUTTER, Math.max(50, width - TRACK_GUTTER - 1));
  const height = AXIS + dataset.operators.length * TRACK;
  return el("div", { class: "tracks", style: { height: `${height}px` } },
    svg("svg", { width, height, "aria-hidden": "true" },
      svg("defs", {}, svg("clipPath", { id: "plot" }, svg("rect", { x: TRACK_GUTTER, y: 0, width: scale.width, height }))),
      axis(scale, height), dataset.operators.map((operator, n) => track(dataset, operator, scale, AXIS + n * TRACK, metric, operator.span === chosen && chosen >= 0))),
    dataset.operators.map((operator, n) => {
      const { values, text } = series(dataset, operator, metric);
      return el("div", { class: "trackname", style: { top: `${AXIS + n * TRACK}px` } },
        el("button", { type: "button", class: "link", "aria-pressed": String(operator.span === chosen && chosen >= 0), title: safe(operator.name), onclick: () => select(operator) }, fitted(safe(operator.name), TRACK_GUTTER - 24, MEMBER)),
        el("span", { class: "soft" }, values.length ? text(Math.max(...values)) : "not looked at: it was too short"));
    }));
}

/** @param {Scale} scale @param {number} height */
function axis(scale, height) {
  const { from, to, width } = scale;
  const step = niceStep((to - from) / Math.max(2, width / 110)), ticks = [];
  for (let tick = Math.ceil(from / step) * step; tick <= to; tick += step) ticks.push(tick);
  return svg("g", { class: "axis" }, ticks.map((tick) => [
    svg("line", { x1: scale.x(tick), x2: scale.x(tick), y1: 0, y2: height }),
    scale.x(tick) + 40 < scale.left + width ? svg("text", { x: scale.x(tick) + 4, y: 14 }, axisLabel(tick, step)) : null,
  ]).flat());
}

/** @param {Dataset} dataset @param {DatasetOperator} operator @param {Scale} scale @param {number} y @param {Metric} metric @param {boolean} isChosen */
function track(dataset, operator, scale, y, metric, isChosen) {
  const { values } = series(dataset, operator, metric);
  const moments = operator.timeline.ns.map((ns) => dataset.start + ns);
  const most = Math.max(1e-9, ...values), base = y + TOP + AREA;
  const x0 = scale.x(operator.start), x1 = scale.x(operator.start + operator.ns);
  // Each value holds until the next moment; before the first one nothing is known but that it was at work.
  const steps = moments.map((at, n) => `L${scale.x(at).toFixed(1)},${(base - AREA * (values[n] / most)).toFixed(1)} H${(n + 1 < moments.length ? scale.x(moments[n + 1]) : Math.max(x1, scale.x(at))).toFixed(1)}`);
  const area = moments.length ? `M${scale.x(moments[0]).toFixed(1)},${base} ${steps.join(" ")} V${base} Z` : "";
  return svg("g", { class: `track${isChosen ? " chosen" : ""}` },
    svg("line", { class: "ground", x1: 0, x2: scale.left + scale.width, y1: y + TRACK - 0.5, y2: y + TRACK - 0.5 }),
    svg("g", { "clip-path": "url(#plot)" },
      svg("rect", { class: "extent", x: x0, y: y + TOP - 4, width: Math.max(1, x1 - x0), height: AREA + 4 }),
      area ? svg("path", { class: `area ${metric}`, d: area }) : null,
      operator.held_back_at.map((held) => svg("rect", { class: `held ${causeClass(held)}`, x: scale.x(held.start), y: base + 3, width: Math.max(1.5, scale.x(held.start + held.ns) - scale.x(held.start)), height: BAND }))));
}

/** What is at a position of the drawing: the operator and lines of text about that moment; null outside of the tracks.
 * @param {Dataset} dataset @param {number[]} range @param {number} width @param {number} x @param {number} y */
export function trackTip(dataset, range, width, x, y) {
  const operator = dataset.operators[Math.floor((y - AXIS) / TRACK)];
  if (y < AXIS || x < TRACK_GUTTER || !operator) return null;
  const time = new Scale(range, TRACK_GUTTER, Math.max(50, width - TRACK_GUTTER - 1)).timeAt(x);
  const { timeline } = operator, since = operator.start - dataset.start;
  const n = momentAt(timeline.ns, time - dataset.start);
  const held = operator.held_back_at.find(({ start, ns }) => start <= time && time <= start + ns);
  const isThere = time >= operator.start && time <= operator.start + operator.ns;
  return [
    safe(operator.name),
    `at ${duration(time)}, ${duration(Math.max(0, time - dataset.start))} after the execution began`,
    isThere && n >= 0 ? `${counted(timeline.running[n], "running task")}, ${counted(timeline.queued_blocks[n], "block")} waiting (${byteSize(timeline.queued_bytes[n])})` : null,
    isThere && n >= 0 ? `${counted(timeline.rows[n], "row")} handed on, ${perSecond(rates(timeline, since)[n])} rows/s` : null,
    held ? `held back for ${duration(held.ns)}: ${causeText(held)}` : null,
    isThere ? null : "not at work",
  ];
}

export const OPERATOR_WIDTH = 252, OPERATOR_HEIGHT = 106;
const GAP_X = 84, GAP_Y = 22, MARGIN = 14, SWEEPS = 4;

/** @typedef {{ id: number, column: number, x: number, y: number }} OperatorBox */
/** @typedef {{ boxes: OperatorBox[], edges: [from: number, to: number][], size: [number, number] }} PipelineLayout */

/** Boxes by the index of their operator. Inputs that are not among the operators have no box.
 * @param {Pick<DatasetOperator, "id" | "inputs">[]} operators @returns {PipelineLayout} */
export function layOutPipeline(operators) {
  const index = new Map(operators.map(({ id }, n) => [id, n]));
  /** @type {[number, number][]} */
  const edges = operators.flatMap(({ inputs }, to) => inputs.flatMap((input) => {
    const from = index.get(input);
    return from === undefined || from === to ? [] : [/** @type {[number, number]} */ ([from, to])];
  }));
  const boxes = operators.map((_, id) => ({ id, column: 0, x: 0, y: 0 }));
  // As many rounds as operators: an input is in a column before; more rounds would only be needed in a cycle.
  for (let round = 0, moved = true; moved && round < boxes.length; round++) {
    moved = false;
    for (const [from, to] of edges) {
      if (boxes[to].column > boxes[from].column) continue;
      boxes[to].column = boxes[from].column + 1;
      moved = true;
    }
  }
  const columns = Array.from({ length: Math.max(0, ...boxes.map(({ column }) => column + 1)) }, (_, n) => boxes.filter(({ column }) => column === n));
  for (let sweep = 0; sweep < SWEEPS; sweep++) for (const column of columns) stack(column, edges, boxes, columns);
  const tallest = Math.max(0, ...columns.map(({ length }) => length));
  for (const box of boxes) {
    box.x = MARGIN + box.column * (OPERATOR_WIDTH + GAP_X);
    box.y += MARGIN + ((tallest - columns[box.column].length) * (OPERATOR_HEIGHT + GAP_Y)) / 2;
  }
  return { boxes, edges, size: [2 * MARGIN + columns.length * (OPERATOR_WIDTH + GAP_X) - GAP_X, 2 * MARGIN + tallest * (OPERATOR_HEIGHT + GAP_Y) - GAP_Y] };
}

/** Order a column by the mean position of what its boxes are connected to, relative to the height of its column.
 * @param {OperatorBox[]} column @param {[number, number][]} edges @param {OperatorBox[]} boxes @param {OperatorBox[][]} columns */
function stack(column, edges, boxes, columns) {
  /** @param {OperatorBox} box */
  const place = (box) => (columns[box.column].indexOf(box) + 0.5) / columns[box.column].length;
  const wanted = new Map(column.map((box) => {
    const near = edges.filter((edge) => edge.includes(box.id)).map(([from, to]) => boxes[from === box.id ? to : from]);
    return [box, near.length ? near.reduce((sum, other) => sum + place(other), 0) / near.length : place(box)];
  }));
  column.sort((a, b) => (wanted.get(a) ?? 0) - (wanted.get(b) ?? 0));
  column.forEach((box, n) => (box.y = n * (OPERATOR_HEIGHT + GAP_Y)));
}

/** The SVG path of an edge from the right side of one box to the left side of another.
 * @param {OperatorBox} from @param {OperatorBox} to */
export function connection(from, to) {
  const x0 = from.x + OPERATOR_WIDTH, y0 = from.y + OPERATOR_HEIGHT / 2, x1 = to.x - 7, y1 = to.y + OPERATOR_HEIGHT / 2;
  const bend = Math.max(30, (x1 - x0) / 2);
  return { shape: `M${x0},${y0} C${x0 + bend},${y0} ${x1 - bend},${y1} ${x1},${y1}`, x: (x0 + x1) / 2, y: (y0 + y1) / 2 - 7 };
}

/** The moment of a timeline before a time, or the first one; -1 without any.
 * @param {number[]} moments @param {number} time */
export function momentAt(moments, time) {
  let found = moments.length ? 0 : -1;
  while (found >= 0 && found + 1 < moments.length && moments[found + 1] <= time) found++;
  return found;
}

/** How many rows per second the operator handed on between each moment and the one before it.
 * @param {DatasetTimeline} timeline @param {number} began when the operator began, on the clock of the timeline */
export function rates({ ns, rows }, began) {
  return ns.map((at, n) => {
    const since = n ? ns[n - 1] : Math.min(began, at), before = n ? rows[n - 1] : 0;
    return at > since ? (Math.max(0, rows[n] - before) / (at - since)) * 1e9 : 0;
  });
}
