// The call graph: functions, actors with their methods, and the data passed between them.

import { FIGURES, MEMBER, TITLE, View, el, emptied, fitted, inNextFrame, numberColumn, sortedTable, svg, textColumn, timeColumn, widthOf } from "./dom.js";
import { counted, duration, number, percent, plainName, safe, shortened } from "./format.js";
import { LEAST_ON_PATH } from "./store.js";

/** @typedef {(id: number) => boolean} Asked */

export class Logical extends View {
  /** @param {Store} store @param {Colours} colours @param {App} app */
  constructor(store, colours, app) {
    super(store, colours, app);
    this.showData = true;
    /** 0 fits the graph to the window. */
    this.magnification = 0;
    this.layout = layOut(store.meta.graph);
    this.stale = true;
    this.note = el("p", { class: "note" });
    this.body = el("div", { class: "scroller plain graph", tabindex: 0, "aria-label": "Graph of calls. The tables below have the same figures." });
    this.tables = el("div", { class: "flame-table" });
    /** @param {string} label @param {string} title @param {() => void} change */
    const toggle = (label, title, change) => el("button", { type: "button", title, onclick: change }, label);
    this.dataButton = el("button", { type: "button", "aria-pressed": "true", disabled: !store.meta.graph.data.length, title: "Show data passed between functions", onclick: () => {
      this.showData = !this.showData;
      this.dataButton.setAttribute("aria-pressed", String(this.showData));
      this.draw();
    } }, "Data");
    this.root = el("div", { class: "view logical" },
      el("div", { class: "viewbar" }, app.apartButton(), this.dataButton,
        el("div", { class: "segments", role: "group", "aria-label": "Size" }, toggle("−", "Smaller", () => this.zoom(1 / 1.2)), toggle("+", "Larger", () => this.zoom(1.2)), toggle("Fit", "Fit to the window", () => this.zoom(0))), this.note),
      this.body, this.tables);
    this.redraw = inNextFrame(() => this.root.hidden, () => this.draw());
  }

  /** @param {number} factor */
  zoom(factor) {
    this.magnification = factor && Math.max(0.3, Math.min(2.5, this.scale * factor));
    this.draw();
  }

  /** The magnification, which may be that at which the graph fits above the tables, if its text is legible then. */
  get scale() {
    const [width, height] = this.layout.size;
    return this.magnification || Math.max(0.6, Math.min(1.2, this.root.clientWidth / width, (this.root.clientHeight * 0.66 - 44) / height));
  }

  /** Whether to mark it as on the critical path; items with a tiny share of the path are not marked.
   * @param {GraphFunction | CallEdge | DataEdge} each */
  isOnPath(each) {
    const path = "path" in each ? each.path : 0;
    return this.store.showPath && path > 0 && path >= LEAST_ON_PATH * this.store.meta.path.total;
  }

  draw() {
    const { store } = this;
    const { boxes, boxOf, leftOut, size: [width, height] } = this.layout;
    const { functions, data } = store.meta.graph;
    const { lit, shown } = store.functionFigures();
    /** @type {Asked} */
    const isShown = (id) => boxOf.has(id) && (!shown || shown[id] === 1);
    /** @type {Asked} */
    const isLit = (id) => !lit || lit[id] === 1;
    const edges = this.edges(isShown, isLit);
    const drawn = boxes.filter((box) => box.members.some(isShown)).map((box) => this.box(box, isShown, isLit));
    emptied(this.body, svg("svg", { width: width * this.scale, height: height * this.scale, viewBox: `0 0 ${width} ${height}`, role: "group" },
      svg("defs", {}, ["call", "data", "path"].map(marker)), edges, drawn));
    const hidden = functions.filter((_, id) => !isShown(id)).length - leftOut;
    this.note.textContent = [
      `${this.showData && data.length ? "Solid: calls. Dashed: data. " : ""}Figures are for the whole run.`,
      store.showPath ? "Percentages = share of the critical path in which these calls ran or were waited for, from 1 %." : "",
      leftOut ? `${counted(leftOut, "box", "boxes")} with the least time left out.` : "",
      hidden > 0 ? `${number(hidden)} hidden by the filter or the range.` : "",
    ].filter(Boolean).join(" ");
    if (this.stale) this.fillTables();
  }

  /** @param {Asked} isShown @param {Asked} isLit */
  edges(isShown, isLit) {
    const { store, layout: { boxOf } } = this;
    const { calls, data } = store.meta.graph;
    /** @param {CallEdge | DataEdge} edge @param {EdgeKind} kind */
    const placed = (edge, kind) => {
      const a = boxOf.get(edge.from), b = boxOf.get(edge.to);
      if (!a || !b || !isShown(edge.from) || !isShown(edge.to)) return [];
      const text = this.edgeLabel(edge), shape = edgeShape(a, edge.from, b, edge.to);
      return [{ ...shape, edge, kind, text, y: shape.y + (kind === "data" ? 15 : 0), width: widthOf(text, FIGURES) }];
    };
    const all = [...calls.flatMap((edge) => placed(edge, "call")), ...(this.showData ? data.flatMap((edge) => placed(edge, "data")) : [])];
    const drawn = separated(all).map(({ edge, kind, shape, text, x, y, isForward }) => {
      const isChosen = store.selection?.type === "edge" && store.selection.from === edge.from && store.selection.to === edge.to && store.selection.kind === kind;
      const isOnPath = this.isOnPath(edge);
      const state = isChosen ? "chosen" : isLit(edge.from) && isLit(edge.to) ? "" : "unlit";
      const failed = "errors" in edge && edge.errors ? "failed" : "";
      const about = { class: ["edge", kind, state, failed, isOnPath ? "onpath" : ""].filter(Boolean).join(" "), onclick: () => this.app.selectEdge(edge, kind) };
      const line = svg("g", about,
        svg("path", { d: shape, class: "hit" }), svg("path", { d: shape, "stroke-width": 1.2 + Math.log10(1 + edge.count) * 1.3, "marker-end": `url(#arrow-${isOnPath ? "path" : kind})` }));
      return { line, label: svg("g", about, svg("text", { x, y, "text-anchor": isForward ? "end" : "start" }, text)) };
    });
    // Labels come last, so that no line crosses them.
    return [...drawn.map(({ line }) => line), ...drawn.map(({ label }) => label)];
  }

  /** @param {CallEdge | DataEdge} edge */
  edgeLabel(edge) {
    if ("readers" in edge) return `${number(edge.count)} obj`;
    return `${number(edge.count)}×${edge.errors ? ` ✗${number(edge.errors)}` : ""}${this.isOnPath(edge) ? ` · ${percent(edge.path / this.store.meta.path.total)}` : ""}`;
  }

  /** @param {Box} box @param {Asked} isShown @param {Asked} isLit */
  box(box, isShown, isLit) {
    const members = box.members.map((id) => this.store.meta.graph.functions[id]);
    const most = Math.max(...members.map((each) => each.actors));
    const instances = box.isActor && most > 1 ? ` ×${number(most)}` : "";
    return svg("g", { class: `box ${members[0].kind}`, transform: `translate(${box.x},${box.y})` },
      svg("rect", { width: BOX_WIDTH, height: box.height, rx: 7, class: "outline" }),
      svg("text", { x: 12, y: 20, class: "title" }, fitted(plainName(safe(box.title)), BOX_WIDTH - 24 - widthOf(instances, TITLE), TITLE) + instances), svg("title", {}, safe(box.title)),
      box.members.filter(isShown).map((id) => this.member(box, id, BOX_HEAD + box.members.indexOf(id) * METHOD_HEIGHT - (box.isActor ? 0 : 4), isLit(id))));
  }

  /** @param {Box} box @param {number} id @param {number} y @param {boolean} isLit */
  member(box, id, y, isLit) {
    const { store, colours } = this;
    const each = store.meta.graph.functions[id];
    const errors = each.errors ? `✗ ${number(each.errors)}` : "";
    const figures = `${box.isActor ? number(each.count) + "× " : ""}${each.count ? duration(each.p50) : ""}`;
    const room = (errors ? BOX_WIDTH - 120 : BOX_WIDTH - 34) - widthOf(figures, FIGURES);
    const label = box.isActor ? safe(each.method || each.label) : counted(each.count, each.kind === "driver" ? "run" : "call");
    const select = () => store.select({ type: "function", id });
    /** @param {KeyboardEvent} event */
    const onkeydown = (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      event.stopPropagation();
      select();
    };
    return svg("g", { class: `member${isLit ? "" : " unlit"}${id === store.chosenId("function") ? " chosen" : ""}`, "data-function": id, tabindex: 0, role: "button", onclick: select, onkeydown },
      svg("title", {}, summary(each)),
      svg("rect", { x: 1, y, width: BOX_WIDTH - 2, height: METHOD_HEIGHT, class: "memberbox" }),
      this.isOnPath(each) ? svg("rect", { x: 1, y: y + 2, width: 4, height: METHOD_HEIGHT - 4, class: "pathmark" }) : null,
      svg("rect", { x: 10, y: y + 7, width: 8, height: 8, rx: 2, fill: colours.ofNameIndex(each.name) }),
      svg("text", { x: 24, y: y + 15 }, fitted(label, room, MEMBER)),
      errors ? svg("text", { x: BOX_WIDTH - 18 - widthOf(figures, FIGURES), y: y + 15, class: "bad", "text-anchor": "end" }, errors) : null,
      svg("text", { x: BOX_WIDTH - 10, y: y + 15, class: "soft", "text-anchor": "end" }, figures));
  }

  fillTables() {
    this.stale = false;
    const { store, app } = this;
    const { functions, calls, data } = store.meta.graph;
    /** @template R
     * @param {string} title @param {(row: R) => string} label @param {(row: R) => void} action */
    const linked = (title, label, action) => textColumn(title, label, (/** @type {R} */ row) => el("button", { type: "button", class: "link", onclick: () => action(row) }, shortened(safe(label(row)), 70)));
    /** @type {import("./dom.js").Column<RunTimes>[]} */
    const figures = [
      numberColumn("Calls", (each) => each.count), numberColumn("Errors", (each) => each.errors, (each) => (each.errors ? `✗ ${number(each.errors)}` : "0")),
      timeColumn("Run, total", (each) => each.total, "Run time of all executions added up"), timeColumn("Run, median", (each) => each.p50, "Run time of an execution, without submission and queueing"),
      timeColumn("Run, p95", (each) => each.p95), timeColumn("Run, max", (each) => each.max),
    ];
    /** @template {CallEdge | DataEdge} E
     * @param {EdgeKind} kind @param {string} from @param {string} to @returns {import("./dom.js").Column<E>[]} */
    const ends = (kind, from, to) => [linked(from, (edge) => functions[edge.from].label, (edge) => app.selectEdge(edge, kind)), linked(to, (edge) => functions[edge.to].label, (edge) => app.selectEdge(edge, kind))];
    const rows = functions.map((each, id) => ({ ...each, id }));
    emptied(this.tables,
      sortedTable({ rows, caption: "Functions and methods", kind: "functions", first: 3, most: 200, about: ({ id }) => ({ "data-function": id }), columns: [
        linked("Function", (each) => each.label, ({ id }) => store.select({ type: "function", id })), ...figures,
        timeColumn("Queue, median", (each) => each.queue_p50, "From submission to the start of the execution"), timeColumn("Queue, max", (each) => each.queue_max)] }),
      calls.length ? sortedTable({ rows: calls, caption: "Calls", first: 4, most: 200, columns: [...ends("call", "Caller", "Callee"), ...figures] }) : null,
      data.length ? sortedTable({ rows: data, caption: "Data", first: 3, most: 200, columns: [...ends("data", "Producer", "Consumer"), numberColumn("Objects", (edge) => edge.count), numberColumn("Readers", (edge) => edge.readers)] }) : null);
  }

  /** @param {Change} what */
  update(what) {
    if (what === "apart") {
      this.layout = layOut(this.store.meta.graph);
      this.stale = true;
    }
    this.redraw();
  }
}

/** An arrowhead.
 * @param {string} kind */
function marker(kind) {
  return svg("marker", { id: `arrow-${kind}`, viewBox: "0 0 8 8", refX: 1, refY: 4, markerWidth: 8, markerHeight: 8, markerUnits: "userSpaceOnUse", orient: "auto" }, svg("path", { d: "M0,0 L8,4 L0,8 z", class: `tip ${kind}` }));
}

/** @param {GraphFunction} each */
function summary(each) {
  return `${safe(each.label)}\n${counted(each.count, "call")}, ${counted(each.errors, "error")}\nrun: total ${duration(each.total)}, median ${duration(each.p50)}, p95 ${duration(each.p95)}, max ${duration(each.max)}`;
}

export const BOX_WIDTH = 248, BOX_HEAD = 30, METHOD_HEIGHT = 22;
const COLUMN_GAP = 130, ROW_SPACE = 26, MARGIN = 30, MOST_BOXES = 300, SWEEPS = 6;

/** A function, or an actor with its methods; `members` are functions, largest time first.
 * @typedef {{ title: string, isActor: boolean, kind: string, members: number[], time: number, column: number, x: number, y: number, height: number }} Box */
/** @typedef {{ boxes: Box[], boxOf: Map<number, Box>, leftOut: number, size: [number, number] }} Layout */

/** @param {Meta["graph"]} graph @returns {Layout} */
export function layOut({ functions, calls, data }) {
  const all = boxesOf(functions);
  const byTime = [...all].sort((a, b) => Number(b.kind === "driver") - Number(a.kind === "driver") || b.time - a.time);
  const boxes = all.length > MOST_BOXES ? byTime.slice(0, MOST_BOXES) : all;
  /** @type {Map<number, Box>} */
  const boxOf = new Map();
  for (const box of boxes) for (const id of box.members) boxOf.set(id, box);
  const called = joined(boxes, boxOf, calls, false), near = joined(boxes, boxOf, [...calls, ...data], true);
  const columns = intoColumns(boxes, called);
  /** @param {Box[]} column */
  const heightOf = (column) => column.reduce((sum, box) => sum + box.height + ROW_SPACE, -ROW_SPACE);
  for (const column of columns) stack(column.sort((a, b) => b.time - a.time));
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    for (const column of sweep % 2 ? [...columns].reverse() : columns) {
      const want = new Map(column.map((box) => [box, wantedPlace(box, near)]));
      stack(column.sort((a, b) => (want.get(a) ?? 0) - (want.get(b) ?? 0)));
    }
  }
  const tallest = Math.max(0, ...columns.map(heightOf));
  columns.forEach((column, n) => column.forEach((box) => {
    box.x = MARGIN + n * (BOX_WIDTH + COLUMN_GAP);
    box.y += MARGIN + (tallest - heightOf(column)) / 2;
  }));
  return { boxes, boxOf, leftOut: all.length - boxes.length, size: [60 + Math.max(1, columns.length) * (BOX_WIDTH + COLUMN_GAP) - COLUMN_GAP + 90, tallest + 70] };
}

/** @param {GraphFunction[]} functions @returns {Box[]} */
function boxesOf(functions) {
  /** @type {Map<string, Box>} */
  const found = new Map();
  functions.forEach((each, id) => {
    const key = each.actor ? "a" + each.actor : "f" + id;
    const box = found.get(key) ?? { title: each.actor || each.label, isActor: !!each.actor, kind: each.kind, members: [], time: 0, column: -1, x: 0, y: 0, height: 0 };
    found.set(key, box);
    box.members.push(id);
    box.time += each.total;
  });
  for (const box of found.values()) {
    box.height = box.isActor ? BOX_HEAD + box.members.length * METHOD_HEIGHT + 8 : BOX_HEAD + METHOD_HEIGHT;
    box.members.sort((a, b) => functions[b].total - functions[a].total);
  }
  return [...found.values()];
}

/** For each box the boxes that its edges lead to; with `isBoth`, also those whose edges lead to it.
 * @param {Box[]} boxes @param {Map<number, Box>} boxOf @param {{ from: number, to: number }[]} edges @param {boolean} isBoth */
function joined(boxes, boxOf, edges, isBoth) {
  /** @type {Map<Box, Set<Box>>} */
  const found = new Map(boxes.map((box) => [box, new Set()]));
  for (const { from, to } of edges) {
    const a = boxOf.get(from), b = boxOf.get(to);
    if (!a || !b || a === b) continue;
    found.get(a)?.add(b);
    if (isBoth) found.get(b)?.add(a);
  }
  return found;
}

/** Sets the column of each box: drivers first, then those that they call, and so on.
 * @param {Box[]} boxes @param {Map<Box, Set<Box>>} next @returns {Box[][]} */
function intoColumns(boxes, next) {
  const called = new Set([...next.values()].flatMap((set) => [...set]));
  const drivers = boxes.filter((box) => box.kind === "driver");
  const uncalled = boxes.filter((box) => box.kind !== "driver" && !called.has(box));
  const firsts = drivers.length ? drivers : uncalled.length ? uncalled : boxes.slice(0, 1);
  spread(firsts, 0, next);
  for (const box of uncalled) spread([box], called.size ? 1 : 0, next);
  for (const box of boxes) spread([box], 0, next);
  /** @type {Box[][]} */
  const columns = [];
  for (const box of boxes) (columns[box.column] ||= []).push(box);
  return columns.filter(Boolean);
}

/** Puts boxes without a column into this one, and the boxes that they lead to into the next ones, by their shortest
 * distance.
 * @param {Box[]} firsts @param {number} first @param {Map<Box, Set<Box>>} next */
function spread(firsts, first, next) {
  for (let column = first, wave = firsts.filter((box) => box.column < 0); wave.length; column++) {
    for (const box of wave) box.column = column;
    wave = [...new Set(wave.flatMap((box) => [...(next.get(box) ?? [])]))].filter((box) => box.column < 0);
  }
}

/** @param {Box[]} column */
function stack(column) {
  let y = 0;
  for (const box of column) {
    box.y = y;
    y += box.height + ROW_SPACE;
  }
}

/** The position at which a box is closest to its neighbours in other columns.
 * @param {Box} box @param {Map<Box, Set<Box>>} near */
function wantedPlace(box, near) {
  const others = [...(near.get(box) ?? [])].filter((other) => other.column !== box.column);
  return others.length ? others.reduce((sum, other) => sum + other.y + other.height / 2, 0) / others.length : box.y;
}

/** Where an edge leaves the box of a function, on the right, or reaches it, on the left.
 * @param {Box} box @param {number} id @param {"out" | "in"} side @returns {[number, number]} */
export function anchor(box, id, side) {
  const at = box.isActor ? BOX_HEAD + (box.members.indexOf(id) + 0.5) * METHOD_HEIGHT : box.height / 2;
  return [box.x + (side === "out" ? BOX_WIDTH : 0), box.y + at];
}

/** The SVG path of an edge, and the best position for its label.
 * @param {Box} a @param {number} from @param {Box} b @param {number} to */
export function edgeShape(a, from, b, to) {
  const [x0, y0] = anchor(a, from, "out"), [x1, y1] = anchor(b, to, "in");
  if (b.x > a.x) {
    const bend = Math.max(40, (x1 - x0) / 2);
    return { shape: `M${x0},${y0} C${x0 + bend},${y0} ${x1 - bend},${y1} ${x1 - 7},${y1}`, x: x1 - 34, y: y1 - 6 + (y0 - y1) * 0.06, isForward: true };
  }
  // Within a column, or back: around the right side, so that the line crosses no box in the column.
  const right = b.x + BOX_WIDTH, out = Math.max(x0, right) + 46 + Math.min(40, Math.abs(y1 - y0) / 6), isLoop = y0 === y1;
  const end = isLoop ? y1 + 9 : y1;
  const shape = `M${x0},${isLoop ? y0 - 5 : y0} C${out},${y0 - (isLoop ? 16 : 0)} ${out},${end + (isLoop ? 10 : 0)} ${right + 7},${end}`;
  return { shape, x: out - 8, y: (y0 + end) / 2 + 4, isForward: false };
}

/** A text at its baseline; `x` is its end if `isForward`, else its start.
 * @typedef {{ x: number, y: number, width: number, isForward: boolean }} Label */

const LINE = 13;

/** Move labels down until none overlaps an earlier one.
 * @template {Label} L
 * @param {L[]} labels */
export function separated(labels) {
  /** @type {L[]} */
  const placed = [];
  /** @param {Label} label */
  const left = ({ x, width, isForward }) => (isForward ? x - width : x);
  for (const label of [...labels].sort((a, b) => a.y - b.y)) {
    const beside = placed.filter((other) => left(other) < left(label) + label.width && left(label) < left(other) + other.width);
    for (const other of beside.sort((a, b) => a.y - b.y)) if (Math.abs(other.y - label.y) < LINE) label.y = other.y + LINE;
    placed.push(label);
  }
  return labels;
}
