// The spans in memory, and what is looked at: range, filter, selection. Views read from here and redraw on its changes.

import { Details } from "./codec.js";
import { plainName, safe } from "./format.js";
import {
  CONSUMER, FAILED, ON_PATH, PRODUCER, STATE_SHIFT, STRIP, WAITING, busyStrip, greatest, isIn, percentile, placeFigures, queuesOf,
  stackFigures,
} from "./figures.js";

export const KINDS = ["unspecified", "internal", "server", "client", "producer", "consumer"];
/** The kind of an edge to what waits for it. */
export const WAIT = 1;
export const ENDED = 0, RUNNING = 1, LOST = 2;
/** By state, as a person reads it. */
export const STATES = ["ended", "running", "lost"];

/** Spans deeper than this are not drawn. */
export const MOST_DEPTH = 250;

/** From this share of the critical path on, something is marked as being on it. */
export const LEAST_ON_PATH = 0.01;

const MOST_SLOWEST = 30;

export class Store {
  /** `layOut` comes next.
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
    this.resource = spans.resource;
    this.trace = spans.trace;
    this.detail = spans.detail;
    this.parent = spans.parent;
    this.submission = spans.submission;
    /** What goes from a span to another one; kind 0 is data, 1 a wait, 2 a further attempt.
     * @type {[from: number, to: number, kind: number][]} */
    this.edges = Array.from(spans.edgeFrom, (from, n) => [from, spans.edgeTo[n], spans.edgeKind[n]]);
    this.end = meta.extent;
    this.names = meta.names;
    this.shownNames = meta.names.map(safe);
    /** @type {((what: Change) => void)[]} */
    this.listeners = [];
    this.range = [0, this.end];
    /** @type {Chosen | null} */
    this.selection = null;
    /** One byte a span, null where nothing is selected.
     * @type {Uint8Array | null} */
    this.matched = null;
    this.query = "";
    /** One byte a span, null where nothing is filtered.
     * @type {Uint8Array | null} */
    this.keep = null;
    this.kept = this.count;
    this.notice = "";
    this.showPath = meta.path.steps.length > 0;
    this.moment = 0;
    this.momentShown = false;
    this.tooDeep = 0;
    /** By lane, how many rows it has. Each lane has a row for each depth, and the bars of a row do not overlap.
     * @type {Numbers} */
    this.deepest = [];
    /** By lane, its first row. */
    this.first = new Uint32Array(1);
    /** By row, where its spans begin in `order`.
     * @type {Numbers} */
    this.begins = new Uint32Array(1);
    this.order = new Uint32Array(0);
    /** @type {Int32Array | null} */
    this.firstChild = null;
    this.sibling = new Int32Array(0);
  }

  layOut() {
    const { count, lane, depth } = this;
    const deepest = new Uint32Array(this.meta.lanes.length);
    this.tooDeep = 0;
    for (let i = 0; i < count; i++) {
      if (depth[i] >= MOST_DEPTH) this.tooDeep++;
      else if (depth[i] + 1 > deepest[lane[i]]) deepest[lane[i]] = depth[i] + 1;
    }
    this.stackLanes(deepest);
    this.sort();
    this.moment = this.defaultMoment();
  }

  /** @param {Numbers} deepest */
  stackLanes(deepest) {
    this.deepest = deepest;
    this.first = new Uint32Array(deepest.length + 1);
    for (let i = 0; i < deepest.length; i++) this.first[i + 1] = this.first[i] + deepest[i];
  }

  /** The rows of spans that are not filtered out, one after the other, each by start. */
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

  // --- Changes ---

  /** @param {(what: Change) => void} listener */
  listen(listener) {
    this.listeners.push(listener);
  }

  /** @param {Change} what */
  changed(what) {
    for (const listener of this.listeners) listener(what);
  }

  /** Look at a part of the run: not less than a microsecond, and not past its ends.
   * @param {number} from @param {number} to */
  setRange(from, to) {
    const least = Math.min(1000, this.end || 1);
    const size = Math.max(least, Math.min(this.end || 1, to - from));
    const begin = Math.max(0, Math.min(from, this.end - size));
    this.range = [begin, begin + size];
    this.changed("range");
  }

  /** A smaller part for a factor below 1, a larger one above; what is at `around` stays where it is.
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

  /** Hide all spans but those that are kept; null shows all.
   * @param {Uint8Array | null} keep */
  filter(keep) {
    this.keep = keep;
    this.kept = keep ? keep.reduce((sum, each) => sum + each, 0) : this.count;
    this.sort();
    this.changed("filter");
  }

  /** How many spans the run has, wherever they are. */
  get total() {
    return this.count;
  }

  /** Whether a server is asked for spans. */
  get served() {
    return false;
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

  /** The index of what is selected, if it is of this type, or -1.
   * @param {Chosen["type"]} type */
  chosenId(type) {
    return this.selection?.type === type ? this.selection.id ?? -1 : -1;
  }

  /** Find the spans that the selection means. */
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

  /** What is not selected is drawn pale where several spans are selected, not where one is. */
  get lit() {
    return this.selection && this.selection.type !== "span" ? this.matched : null;
  }

  /** Show what went wrong.
   * @param {unknown} error */
  report(error) {
    this.notice = error instanceof TypeError ? "The server does not answer" : error instanceof Error ? error.message : String(error);
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

  /** Whether it is what `is:...` asks for.
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

  /** From the end of the submission to the beginning of the execution, or -1 where there are not both.
   * @param {number} row */
  queued(row) {
    const from = this.submission[row];
    return from < 0 ? -1 : Math.max(0, this.start[row] - this.endOf(from));
  }

  /** @param {number} row */
  label(row) {
    return this.shownNames[this.name[row]];
  }

  /** Without what says that it is a call's execution: on the timeline its place says so.
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

  /** The function that a span's call was made in, or -1.
   * @param {number} row */
  callerOf(row) {
    const from = this.submission[row] >= 0 ? this.submission[row] : row;
    for (let above = this.parent[from], n = 0; above >= 0 && n < 10000; above = this.parent[above], n++) {
      if (this.kind(above) !== PRODUCER && this.node[above]) return this.node[above] - 1;
    }
    return -1;
  }

  /** Where something still runs, the end; else when most ran at once. */
  defaultMoment() {
    for (let i = 0; i < this.count; i++) if (this.state(i) === RUNNING) return this.end;
    return this.busiest();
  }

  busiest() {
    const { running, most } = this.strip();
    return ((running.indexOf(most) + 0.5) / STRIP) * this.end;
  }

  // --- What views ask: of the spans here, and in ServedStore of a server ---

  /** Calls `visit` for each bar of a row that is to be seen: its span, begin and end, flags, how many spans it stands for
   * and the share of its time in which they ran.
   * @param {number} row @param {number} from @param {number} to
   * @param {(i: number, begin: number, end: number, flags: number, count: number, share: number) => void} visit */
  eachBar(row, from, to, visit) {
    const { start, took, flags, order, begins } = this;
    for (let at = this.search(row, from), end = begins[row + 1]; at < end; at++) {
      const i = order[at];
      if (start[i] > to) break;
      visit(i, start[i], start[i] + took[i], flags[i], 1, 1);
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

  /** Comes before a frame of so many pixels.
   * @param {number} _pixels */
  beginFrame(_pixels) {}

  /** @param {number} row */
  firstOf(row) {
    return this.order[this.begins[row]];
  }

  /** The span before (-1) or after (1) one in its row, or -1.
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

  /** A span's number in the address.
   * @param {number} row @returns {number} */
  numberOf(row) {
    return row;
  }

  /** The row of a number in the address, or -1.
   * @param {number} number @returns {Promise<number>} */
  async rowAt(number) {
    return Number.isInteger(number) && number >= 0 && number < this.count ? number : -1;
  }

  /** Fetch what a span has to do with.
   * @param {number} _row @returns {Promise<void>} */
  async load(_row) {}

  /** @param {number} row @returns {Promise<SpanDetails | null>} */
  async detailsOf(row) {
    return this.details.of(this.detail[row] - 1);
  }

  /** @returns {Strip} */
  strip() {
    const strip = busyStrip(this);
    // Of all spans, as the summary has it.
    return this.keep ? strip : { ...strip, running: this.meta.strip, most: greatest(this.meta.strip) };
  }

  /** Which kinds of spans there are, for the legend. */
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

  /** What is to be said of figures that are estimated. */
  get figuresNote() {
    return "";
  }

  flameFigures() {
    return stackFigures(this);
  }

  placeFigures() {
    return placeFigures(this);
  }

  /** What is open at a moment, by start.
   * @param {number} moment @returns {{ open: number[], count: number, hidden: number }} */
  openAt(moment) {
    const open = [];
    let hidden = 0;
    for (let i = 0; i < this.count && this.start[i] <= moment; i++) {
      if (!this.isOpenAt(i, moment)) continue;
      if (this.isHidden(i)) hidden++;
      else open.push(i);
    }
    return { open, count: open.length, hidden };
  }

  /** The spans of range and filter in an order.
   * @param {string} by @param {boolean} ascending @returns {{ rows: Numbers, count: number }} */
  listed(by, ascending) {
    const rows = [];
    for (let i = 0; i < this.count; i++) if (isIn(this, i)) rows.push(i);
    const order = Uint32Array.from(rows);
    if (by === "start") {
      if (!ascending) order.reverse();
      return { rows: order, count: order.length };
    }
    const rank = by === "name" ? this.ranks() : [];
    const value = Float64Array.from({ length: this.count }, (_, i) => (by === "name" ? rank[this.name[i]] : by === "took" ? this.took[i] : this.queued(i)));
    order.sort((a, b) => (ascending ? value[a] - value[b] : value[b] - value[a]));
    return { rows: order, count: order.length };
  }

  /** By name, its place in the order of names. */
  ranks() {
    const rank = new Uint32Array(this.names.length);
    const byName = [...this.shownNames.keys()].sort((a, b) => (this.shownNames[a] < this.shownNames[b] ? -1 : this.shownNames[a] > this.shownNames[b] ? 1 : 0));
    byName.forEach((name, place) => (rank[name] = place));
    return rank;
  }

  /** Figures of what is selected, if it is more than a span.
   * @param {Chosen} _chosen @returns {GroupFigures | null | Promise<GroupFigures | null>} */
  group(_chosen) {
    const rows = this.matchedRows();
    const took = Float64Array.from(rows, (row) => this.took[row]).sort();
    return {
      count: rows.length, failed: rows.filter((row) => this.failed(row)).length,
      p50: percentile(took, 0.5), p95: percentile(took, 0.95), max: took[took.length - 1],
      slowest: rows.sort((a, b) => this.took[b] - this.took[a]).slice(0, MOST_SLOWEST),
    };
  }

  /** The places that have a selected span.
   * @returns {Set<number>} */
  matchedPlaces() {
    return new Set(this.matchedRows().map((row) => this.place(row)));
  }

  /** For each stack of the flame graph whether it has a selected span. */
  matchedStacks() {
    const found = new Uint8Array(this.meta.flame.parent.length);
    for (const row of this.matchedRows()) found[this.flame[row]] = 1;
    return found;
  }

  /** Which functions have a selected span, and one in range and filter; null where there is no such thing.
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
