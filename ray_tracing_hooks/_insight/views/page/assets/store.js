// The spans in memory and the state of the page: range, filter, selection. Views read it and redraw when it changes.

import { Details } from "./codec.js";
import { plainName, safe } from "./format.js";
import {
  CONSUMER, FAILED, ON_PATH, PRODUCER, STATE_SHIFT, STRIP, WAITING, busyStrip, greatest, isIn, percentile, placeFigures, queuesOf,
  stackFigures,
} from "./figures.js";

export const KINDS = ["unspecified", "internal", "server", "client", "producer", "consumer"];
/** The kind of an edge to a wait. */
export const WAIT = 1;
export const ENDED = 0, RUNNING = 1, LOST = 2;
/** Names of the states, for people. */
export const STATES = ["ended", "running", "lost"];

/** Spans deeper than this are not drawn. */
export const MOST_DEPTH = 250;

/** The least share of the critical path at which something is marked as being on it. */
export const LEAST_ON_PATH = 0.01;

const MOST_SLOWEST = 30;

export class Store {
  /** Call `layOut` next.
   * @param {Meta} meta @param {SpanColumns} spans @param {Details} [details] */
  constructor(meta, spans, details = new Details("", 1)) {
    this.meta = meta;
    this.details = details;
    this.count = spans.start.length;
    this.start = spans.start;
    this.took = spans.took;
    this.name = spans.name;
    this.flags = spans.flags;
    this.lane = spans.lane;
    this.depth = spans.depth;
    this.node = spans.node;
    this.flame = spans.flame;
    /** The graphs that are not shown: with each actor apart if `isApart` is false, else with each class as one. */
    this.other = meta.apart && { graph: meta.apart.graph, flame: meta.apart.flame, node: spans.nodeApart ?? [], stacks: spans.flameApart ?? [] };
    this.isApart = false;
    this.resource = spans.resource;
    this.trace = spans.trace;
    this.detail = spans.detail;
    this.parent = spans.parent;
    this.submission = spans.submission;
    /** Edges between spans; kind 0 is data, 1 a wait, 2 a retry.
     * @type {[from: number, to: number, kind: number][]} */
    this.edges = Array.from(spans.edgeFrom, (from, n) => [from, spans.edgeTo[n], spans.edgeKind[n]]);
    /** The phases of generations of LLM engines, by span; kind 0 is the queue.
     * @type {Map<number, { kind: number, from: number, to: number }[]>} */
    this.phases = new Map();
    for (let n = 0; n < spans.phaseSpan.length; n++) {
      const phase = { kind: spans.phaseKind[n], from: spans.phaseFrom[n], to: spans.phaseTo[n] };
      const known = this.phases.get(spans.phaseSpan[n]);
      if (known) known.push(phase);
      else this.phases.set(spans.phaseSpan[n], [phase]);
    }
    this.end = meta.extent;
    this.names = meta.names;
    this.shownNames = meta.names.map(safe);
    /** @type {((what: Change) => void)[]} */
    this.listeners = [];
    this.range = [0, this.end];
    /** @type {Chosen | null} */
    this.selection = null;
    /** One byte per span, null if nothing is selected.
     * @type {Uint8Array | null} */
    this.matched = null;
    this.query = "";
    /** One byte per span, null without a filter.
     * @type {Uint8Array | null} */
    this.keep = null;
    this.kept = this.count;
    this.notice = "";
    this.showPath = meta.path.steps.length > 0;
    this.moment = 0;
    this.momentShown = false;
    this.tooDeep = 0;
    /** The number of rows of each lane. A lane has a row for each depth, and the bars of a row do not overlap. */
    this.deepest = new Uint32Array(0);
    /** The first row of each lane. */
    this.first = new Uint32Array(1);
    /** The index in `order` at which the spans of each row begin.
     * @type {Numbers} */
    this.begins = new Uint32Array(1);
    this.order = new Uint32Array(0);
    /** @type {Int32Array | null} */
    this.firstChild = null;
    this.sibling = new Int32Array(0);
  }

  layOut() {
    const { count, lane, depth } = this;
    const deepest = (this.deepest = new Uint32Array(this.meta.lanes.length));
    this.tooDeep = 0;
    for (let i = 0; i < count; i++) {
      if (depth[i] >= MOST_DEPTH) this.tooDeep++;
      else if (depth[i] + 1 > deepest[lane[i]]) deepest[lane[i]] = depth[i] + 1;
    }
    this.first = new Uint32Array(deepest.length + 1);
    for (let i = 0; i < deepest.length; i++) this.first[i + 1] = this.first[i] + deepest[i];
    this.sort();
    this.moment = this.defaultMoment();
  }

  /** The spans that match the filter, row by row, each row by start. */
  sort() {
    const { count, lane, depth, first } = this;
    const rows = first[first.length - 1];
    const begins = new Uint32Array(rows + 1);
    /** @param {number} i */
    const isDrawn = (i) => depth[i] < MOST_DEPTH && !this.isHidden(i);
    for (let i = 0; i < count; i++) if (isDrawn(i)) begins[first[lane[i]] + depth[i] + 1]++;
    for (let i = 0; i < rows; i++) begins[i + 1] += begins[i];
    const order = new Uint32Array(begins[rows]);
    const next = begins.slice(0, rows);
    for (let i = 0; i < count; i++) if (isDrawn(i)) order[next[first[lane[i]] + depth[i]]++] = i;
    this.begins = begins;
    this.order = order;
  }

  // --- State changes ---

  /** @param {(what: Change) => void} listener */
  listen(listener) {
    this.listeners.push(listener);
  }

  /** @param {Change} what */
  changed(what) {
    for (const listener of this.listeners) listener(what);
  }

  /** Show a part of the run: at least a microsecond, and within its ends.
   * @param {number} from @param {number} to */
  setRange(from, to) {
    const least = Math.min(1000, this.end || 1);
    const size = Math.max(least, Math.min(this.end || 1, to - from));
    const begin = Math.max(0, Math.min(from, this.end - size));
    this.range = [begin, begin + size];
    this.changed("range");
  }

  /** Zoom in for a factor below 1, and out above; the time `around` keeps its position.
   * @param {number} factor @param {number} [around] */
  zoom(factor, around = (this.range[0] + this.range[1]) / 2) {
    const [from, to] = this.range;
    this.setRange(around - (around - from) * factor, around + (to - around) * factor);
  }

  /** @param {number} share */
  pan(share) {
    const [from, to] = this.range;
    this.setRange(from + share * (to - from), to + share * (to - from));
  }

  /** Show each actor apart in the call graph and the flame graph, or each class as one.
   * @param {boolean} isApart */
  setApart(isApart) {
    const { meta, other } = this;
    if (!other || isApart === this.isApart) return;
    this.other = { graph: meta.graph, flame: meta.flame, node: this.node, stacks: this.flame };
    Object.assign(meta, { graph: other.graph, flame: other.flame });
    Object.assign(this, { node: other.node, flame: other.stacks, isApart });
    // The selection is a number in the graph that was shown.
    if (this.selection && ["function", "flame", "edge"].includes(this.selection.type)) this.select(null);
    this.changed("apart");
  }

  /** Hide all spans but those to keep; null shows all.
   * @param {Uint8Array | null} keep */
  filter(keep) {
    this.keep = keep;
    this.kept = keep ? keep.reduce((sum, each) => sum + each, 0) : this.count;
    this.sort();
    this.changed("filter");
  }

  get isFiltered() {
    return this.keep !== null;
  }

  get isWhole() {
    return this.range[0] <= 0 && this.range[1] >= this.end;
  }

  /** @param {Chosen | null} selection */
  select(selection) {
    this.selection = selection;
    this.match();
    this.changed("selection");
  }

  /** The row of the selected span, or -1. */
  get chosenRow() {
    return this.selection?.type === "span" ? this.selection.row ?? -1 : -1;
  }

  /** The index of the selection, if it is of this type, else -1.
   * @param {Chosen["type"]} type */
  chosenId(type) {
    return this.selection?.type === type ? this.selection.id ?? -1 : -1;
  }

  /** Find the spans of the selection. */
  match() {
    const isMeant = this.selection && this.meaning(this.selection);
    this.matched = isMeant && Uint8Array.from({ length: this.count }, (_, row) => (isMeant(row) ? 1 : 0));
  }

  /** @param {Chosen} chosen @returns {(row: number) => boolean} */
  meaning(chosen) {
    const { type, id = -1, row: of = -1 } = chosen;
    if (type === "span") return (row) => row === of || row === this.submission[of];
    if (chosen.name !== undefined) return (row) => this.name[row] === chosen.name;
    if (chosen.rows) {
      const rows = new Set(chosen.rows);
      return (row) => rows.has(row);
    }
    if (type === "function") return (row) => this.node[row] === id + 1;
    if (type === "place") return (row) => this.place(row) === id;
    const within = type === "flame" ? this.stacksBelow(id) : null;
    return (row) => within !== null && within[this.flame[row]] === 1;
  }

  /** @param {number} id */
  stacksBelow(id) {
    const { parent } = this.meta.flame;
    const within = new Uint8Array(parent.length);
    within[id] = 1;
    for (let i = id + 1; i < parent.length; i++) if (parent[i] >= 0 && within[parent[i]]) within[i] = 1;
    return within;
  }

  /** @returns {number[]} */
  matchedRows() {
    const rows = [];
    if (this.matched) for (let i = 0; i < this.count; i++) if (this.matched[i]) rows.push(i);
    return rows;
  }

  /** Whether to draw unselected spans pale: if several spans are selected, but not for a single one. */
  get lit() {
    return this.selection && this.selection.type !== "span" ? this.matched : null;
  }

  /** Show an error.
   * @param {unknown} error */
  report(error) {
    this.notice = error instanceof Error ? error.message : String(error);
    this.changed("notice");
  }

  // --- Single spans ---

  /** @param {number} row */
  endOf(row) {
    return this.start[row] + this.took[row];
  }

  /** @param {number} row */
  kind(row) {
    return this.flags[row] & 7;
  }

  /** @param {number} row */
  state(row) {
    return (this.flags[row] >> STATE_SHIFT) & 3;
  }

  /** Where another program shows the trace of a span, "" for nowhere.
   * @param {number} row @param {string} [spanId] */
  traceUrl(row, spanId = "") {
    return this.meta.trace_url.replace("{trace_id}", encodeURIComponent(this.meta.traces[this.trace[row]])).replace("{span_id}", encodeURIComponent(spanId));
  }

  /** @param {number} row */
  failed(row) {
    return (this.flags[row] & FAILED) !== 0;
  }

  /** @param {number} row */
  waits(row) {
    return (this.flags[row] & WAITING) !== 0;
  }

  /** @param {number} row */
  onPath(row) {
    return (this.flags[row] & ON_PATH) !== 0;
  }

  /** Whether a span matches `is:...`.
   * @param {number} row @param {string} state */
  is(row, state) {
    if (state === "error") return this.failed(row);
    if (state === "running") return this.state(row) === RUNNING;
    if (state === "lost") return this.state(row) === LOST;
    if (state === "submission") return this.kind(row) === PRODUCER;
    if (state === "execution") return this.kind(row) === CONSUMER;
    return this.onPath(row);
  }

  /** @param {number} row @param {number} moment */
  isOpenAt(row, moment) {
    return this.start[row] <= moment && (moment < this.endOf(row) || (this.state(row) === RUNNING && moment <= this.end));
  }

  /** From the end of the submission to the start of the execution, or -1 if one of them is missing.
   * @param {number} row */
  queued(row) {
    const from = this.submission[row];
    return from < 0 ? -1 : Math.max(0, this.start[row] - this.endOf(from));
  }

  /** @param {number} row */
  label(row) {
    return this.shownNames[this.name[row]];
  }

  /** The label without the suffix of executions, which their position on the timeline makes redundant.
   * @param {number} row */
  shortLabel(row) {
    return plainName(this.label(row));
  }

  /** @param {number} row */
  place(row) {
    return this.meta.lanes[this.lane[row]];
  }

  /** @param {number} row */
  placeLabel(row) {
    return safe(this.meta.places[this.place(row)].label);
  }

  /** @param {number} row @returns {number[]} */
  children(row) {
    const firstChild = this.firstChild ?? this.indexChildren();
    const found = [];
    for (let i = firstChild[row]; i >= 0; i = this.sibling[i]) found.push(i);
    return found;
  }

  indexChildren() {
    const firstChild = (this.firstChild = new Int32Array(this.count).fill(-1));
    this.sibling = new Int32Array(this.count).fill(-1);
    for (let i = this.count - 1; i >= 0; i--) {
      const above = this.parent[i];
      if (above < 0) continue;
      this.sibling[i] = firstChild[above];
      firstChild[above] = i;
    }
    return firstChild;
  }

  /** The function that made a span's call, or -1.
   * @param {number} row */
  callerOf(row) {
    const from = this.submission[row] >= 0 ? this.submission[row] : row;
    for (let above = this.parent[from], n = 0; above >= 0 && n < 10000; above = this.parent[above], n++) {
      if (this.kind(above) !== PRODUCER && this.node[above]) return this.node[above] - 1;
    }
    return -1;
  }

  /** The end of the run if something is still running, else the moment at which most calls ran. */
  defaultMoment() {
    for (let i = 0; i < this.count; i++) if (this.state(i) === RUNNING) return this.end;
    return this.busiest();
  }

  busiest() {
    const { running, most } = this.strip();
    return ((running.indexOf(most) + 0.5) / STRIP) * this.end;
  }

  // --- Queries of the views ---

  /** Calls `visit` for each visible bar of a row: its span, start and end, and flags.
   * @param {number} row @param {number} from @param {number} to
   * @param {(i: number, begin: number, end: number, flags: number) => void} visit */
  eachBar(row, from, to, visit) {
    const { start, took, flags, order, begins } = this;
    for (let at = this.search(row, from), end = begins[row + 1]; at < end; at++) {
      const i = order[at];
      if (start[i] > to) break;
      visit(i, start[i], start[i] + took[i], flags[i]);
    }
  }

  /** The first position in a row whose bar ends after `time`.
   * @param {number} row @param {number} time */
  search(row, time) {
    let low = this.begins[row], high = this.begins[row + 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.endOf(this.order[middle]) <= time) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** @param {number} row */
  firstOf(row) {
    return this.order[this.begins[row]];
  }

  /** The span before (-1) or after (1) this one in its row, or -1.
   * @param {number} row @param {number} step */
  neighbour(row, step) {
    const sub = this.first[this.lane[row]] + this.depth[row];
    let low = this.begins[sub], high = this.begins[sub + 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.order[middle] < row) low = middle + 1;
      else high = middle;
    }
    const at = low + step;
    return at >= this.begins[sub] && at < this.begins[sub + 1] ? this.order[at] : -1;
  }

  /** @param {number} row */
  isHidden(row) {
    return this.keep !== null && !this.keep[row];
  }

  /** @param {number} row @returns {Promise<SpanDetails | null>} */
  async detailsOf(row) {
    return this.details.of(this.detail[row] - 1);
  }

  /** @returns {Strip} */
  strip() {
    const strip = busyStrip(this);
    // For all spans, from the summary.
    return this.keep ? strip : { ...strip, running: this.meta.strip, most: greatest(this.meta.strip) };
  }

  /** The kinds of spans that occur, for the legend. */
  kindsSeen() {
    const found = { submissions: false, waits: false, failures: false, open: false };
    for (let i = 0; i < this.count; i++) {
      found.submissions ||= this.kind(i) === PRODUCER;
      found.waits ||= this.waits(i);
      found.failures ||= this.failed(i);
      found.open ||= this.state(i) !== ENDED;
    }
    return found;
  }

  queues() {
    return queuesOf(this);
  }

  /** For each place the place that called it first, -1 for none. */
  callers() {
    const found = new Int32Array(this.meta.places.length).fill(-1);
    for (let i = 0; i < this.count; i++) {
      const made = this.submission[i], place = this.place(i);
      if (made >= 0 && found[place] < 0 && this.place(made) !== place) found[place] = this.place(made);
    }
    return found;
  }

  flameFigures() {
    return stackFigures(this);
  }

  placeFigures() {
    return placeFigures(this);
  }

  /** The spans that are open at a moment, by start.
   * @param {number} moment @returns {{ open: number[], hidden: number }} */
  openAt(moment) {
    const open = [];
    let hidden = 0;
    for (let i = 0; i < this.count && this.start[i] <= moment; i++) {
      if (!this.isOpenAt(i, moment)) continue;
      if (this.isHidden(i)) hidden++;
      else open.push(i);
    }
    return { open, hidden };
  }

  /** The spans in the range and filter, sorted.
   * @param {string} by @param {boolean} ascending */
  listed(by, ascending) {
    const rows = [];
    for (let i = 0; i < this.count; i++) if (isIn(this, i)) rows.push(i);
    const order = Uint32Array.from(rows);
    if (by === "start") {
      if (!ascending) order.reverse();
      return order;
    }
    const rank = by === "name" ? this.ranks() : [];
    const value = Float64Array.from({ length: this.count }, (_, i) => (by === "name" ? rank[this.name[i]] : by === "took" ? this.took[i] : this.queued(i)));
    return order.sort((a, b) => (ascending ? value[a] - value[b] : value[b] - value[a]));
  }

  /** The rank of each name in alphabetical order. */
  ranks() {
    const rank = new Uint32Array(this.names.length);
    const byName = [...this.shownNames.keys()].sort((a, b) => (this.shownNames[a] < this.shownNames[b] ? -1 : this.shownNames[a] > this.shownNames[b] ? 1 : 0));
    byName.forEach((name, place) => (rank[name] = place));
    return rank;
  }

  /** Figures of the selected spans.
   * @returns {GroupFigures} */
  group() {
    const rows = this.matchedRows();
    const took = Float64Array.from(rows, (row) => this.took[row]).sort();
    return {
      count: rows.length, failed: rows.filter((row) => this.failed(row)).length,
      p50: percentile(took, 0.5), p95: percentile(took, 0.95), max: took[took.length - 1],
      slowest: rows.sort((a, b) => this.took[b] - this.took[a]).slice(0, MOST_SLOWEST),
    };
  }

  /** The places with a selected span.
   * @returns {Set<number>} */
  matchedPlaces() {
    return new Set(this.matchedRows().map((row) => this.place(row)));
  }

  /** Whether each stack of the flame graph has a selected span. */
  matchedStacks() {
    const found = new Uint8Array(this.meta.flame.parent.length);
    for (const row of this.matchedRows()) found[this.flame[row]] = 1;
    return found;
  }

  /** Which functions have a selected span, and which have one in the range and filter; null without either.
   * @returns {{ lit: Numbers | null, shown: Numbers | null }} */
  functionFigures() {
    const functions = this.meta.graph.functions.length;
    const lit = this.matched ? new Uint8Array(functions) : null;
    const shown = this.keep || !this.isWhole ? new Uint8Array(functions) : null;
    for (let i = 0; i < this.count && (lit || shown); i++) {
      const node = this.node[i] - 1;
      if (node < 0) continue;
      if (lit && this.matched?.[i]) lit[node] = 1;
      if (shown && isIn(this, i)) shown[node] = 1;
    }
    return { lit, shown };
  }
}
