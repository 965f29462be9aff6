// A store whose spans are on a server: it caches those that it has received, and requests what a view needs.
//
// The timeline consists of tiles, each a power of two nanoseconds long. Spans narrower than a bucket, which is about a pixel,
// are merged; zooming in separates them. While a tile is being fetched, a coarser one is drawn.

import { columnsOf, expanded, headOf } from "./codec.js";
import { FAILED, greatest, sums } from "./figures.js";
import { Store } from "./store.js";

const BUCKET_BITS = 9, BLOCK = 32, MOST_ASKED_AT_ONCE = 4, MOST_TILES = 4000;
/** The number of slices of the run for which queue times are known. */
const QUEUE_PARTS = 1024;
const ASKED = "asked";

/** @typedef {{ first: number, offsets: Uint32Array, spans: Int32Array, begin: Numbers, until: Float64Array, count: Numbers, ran: Numbers, failures: Numbers }} Tile */
/** @typedef {{ level: number, index: number, block: number, query: string }} TileAsked */
/** @typedef {StackFigures & PlaceFigures & { every: number, functions: Numbers | null }} Figures */
/** @typedef {{ head: any, columns: Columns }} Answer */
/** @typedef {{ asked: string, value: any, timer?: ReturnType<typeof setTimeout> }} Recent */

export class Gone extends Error {}

const none = () => ({
  start: new Float64Array(0), took: new Float64Array(0), name: new Uint32Array(0), flags: new Uint8Array(0), lane: new Uint32Array(0),
  depth: new Uint32Array(0), node: new Uint32Array(0), flame: new Uint32Array(0), resource: new Uint32Array(0), trace: new Uint32Array(0),
  detail: new Uint32Array(0), parent: new Int32Array(0), submission: new Int32Array(0), edgeFrom: [], edgeTo: [], edgeKind: [],
});

export class ServedStore extends Store {
  /** @param {Meta} meta @param {Columns} columns @param {string} [version] */
  constructor(meta, columns, version = "0") {
    super(meta, none());
    this.version = version;
    this.capacity = 0;
    /** The local row, by the server's number. */
    this.here = new Map();
    /** The server's number, by local row. */
    this.row = new Uint32Array(0);
    this.queuedFor = new Float64Array(0);
    /** @type {Map<number, number[]>} */
    this.below = new Map();
    /** @type {Map<number, number[]>} */
    this.beside = new Map();
    /** @type {[from: number, to: number, kind: number][]} */
    this.edges = [];
    this.edgesHere = new Set();
    /** @type {Map<string, Tile | typeof ASKED>} */
    this.tiles = new Map();
    /** @type {Map<string, TileAsked>} */
    this.wanted = new Map();
    this.asking = 0;
    this.isPumping = false;
    /** @type {Map<string, Recent>} */
    this.recent = new Map();
    this.pixels = 1200;
    this.filterTurn = 0;
    /** @type {Strip | null} */
    this.filterStrip = null;
    /** The details of the selected span.
     * @type {{ row: number, head: any } | null} */
    this.known = null;
    /** @type {{ of: Chosen, places: number[], stacks: number[], functions: number[] } | null} */
    this.groupFound = null;
    this.allBegins = columns.begins;
    this.kept = this.total;
    this.adopt(columns);
    columns.edge_from.forEach((from, n) => this.addEdge(from, columns.edge_to[n], columns.edge_kind[n]));
    const { flame } = meta;
    /** @type {Figures} */
    this.whole = {
      every: 1, spans: flame.count, summed: flame.total, wall: flame.wall, own: flame.self, share: flame.share,
      busy: columns.place_busy, calls: columns.place_calls, errors: columns.place_errors, functions: null,
    };
    /** @type {Strip} */
    this.wholeStrip = { running: meta.strip, failed: columns.strip_failed, most: greatest(meta.strip), keep: null };
    this.waited = columns.waited;
    this.top = Math.max(BUCKET_BITS, Math.ceil(Math.log2(meta.extent + 1)));
  }

  layOut() {
    this.stackLanes(this.meta.deepest ?? []);
    this.begins = this.allBegins;
    this.moment = this.defaultMoment();
  }

  get total() {
    return this.meta.spans;
  }

  get served() {
    return true;
  }

  get isFiltered() {
    return this.filterStrip !== null;
  }

  // --- Cached spans ---

  /** @param {number} most */
  grow(most) {
    if (most <= this.capacity) return;
    const capacity = (this.capacity = Math.max(4096, most, this.capacity * 2));
    /** @template {Uint8Array | Uint32Array | Int32Array | Float64Array} A
     * @param {A} larger @param {Numbers} column */
    const into = (larger, column) => (larger.set(column), larger);
    this.start = into(new Float64Array(capacity), this.start);
    this.took = into(new Float64Array(capacity), this.took);
    this.queuedFor = into(new Float64Array(capacity), this.queuedFor);
    this.flags = into(new Uint8Array(capacity), this.flags);
    this.parent = into(new Int32Array(capacity), this.parent);
    this.submission = into(new Int32Array(capacity), this.submission);
    this.row = into(new Uint32Array(capacity), this.row);
    this.name = into(new Uint32Array(capacity), this.name);
    this.node = into(new Uint32Array(capacity), this.node);
    this.flame = into(new Uint32Array(capacity), this.flame);
    this.resource = into(new Uint32Array(capacity), this.resource);
    this.lane = into(new Uint32Array(capacity), this.lane);
    this.depth = into(new Uint32Array(capacity), this.depth);
    this.trace = this.detail = new Uint32Array(capacity);
  }

  /** The local rows of spans that the server sent.
   * @param {Columns} columns */
  adopt(columns) {
    const many = columns.row.length;
    this.grow(this.count + many);
    /** @type {[any, Numbers][]} */
    const taken = [
      [this.row, columns.row], [this.start, columns.start], [this.took, columns.took], [this.flags, columns.flags],
      [this.name, columns.name], [this.node, columns.function], [this.flame, columns.flame], [this.resource, columns.resource],
      [this.lane, columns.lane], [this.depth, columns.depth], [this.queuedFor, columns.queued],
    ];
    const found = new Int32Array(many);
    let isNew = false;
    for (let n = 0; n < many; n++) {
      let i = this.here.get(columns.row[n]);
      if (i === undefined) {
        i = this.count++;
        isNew = true;
        this.here.set(columns.row[n], i);
        for (const [column, from] of taken) column[i] = from[n];
      }
      found[n] = i;
    }
    /** @param {number} row */
    const at = (row) => (row < 0 ? -1 : this.here.get(row) ?? -1);
    for (let n = 0; n < many; n++) {
      this.parent[found[n]] = at(columns.parent[n] - 1);
      this.submission[found[n]] = at(columns.submission[n] - 1);
    }
    if (isNew && this.selection) this.match();
    return found;
  }

  /** @param {number} from @param {number} to @param {number} kind */
  addEdge(from, to, kind) {
    const key = `${from}-${to}-${kind}`;
    const a = this.here.get(from), b = this.here.get(to);
    if (this.edgesHere.has(key) || a === undefined || b === undefined) return;
    this.edgesHere.add(key);
    this.edges.push([a, b, kind]);
  }

  defaultMoment() {
    return this.meta.running ? this.end : this.busiest();
  }

  /** @param {number} row */
  queued(row) {
    return this.queuedFor[row] - 1;
  }

  /** @param {number} row */
  children(row) {
    return this.below.get(row) || [];
  }

  isHidden() {
    return false;
  }

  /** @param {number} row */
  numberOf(row) {
    return this.row[row];
  }

  /** @param {number} number */
  async rowAt(number) {
    if (!Number.isInteger(number) || number < 0 || number >= this.total) return -1;
    if (!this.here.has(number)) this.adopt((await this.ask("rows", { rows: number })).columns);
    return this.here.get(number) ?? -1;
  }

  /** @param {number} row @param {number} step */
  neighbour(row, step) {
    return (this.beside.get(row) || [-1, -1])[step < 0 ? 0 : 1];
  }

  /** @param {number} sub */
  firstOf(sub) {
    let first = -1;
    this.eachBar(sub, this.range[0], this.range[1], (i) => (first = first < 0 ? i : first));
    return first;
  }

  /** @param {number} row */
  async load(row) {
    const { head, columns } = await this.ask("span", { row: this.row[row], q: this.query });
    this.adopt(columns);
    /** @param {number} number */
    const here = (number) => this.here.get(number);
    for (const [above, children] of head.below) this.below.set(here(above), children.map(here));
    for (const [from, to, kind] of head.edges) this.addEdge(from, to, kind);
    this.beside.set(row, head.beside.map((/** @type {number} */ number) => (number < 0 ? -1 : here(number))));
    this.known = { row, head };
    this.changed("loaded");
  }

  /** @param {number} row */
  async detailsOf(row) {
    if (this.known?.row !== row) return null;
    const { shapes, span, trace } = this.known.head;
    const found = expanded(shapes, span);
    return found && { ...found, trace };
  }

  /** Any of these may occur among spans that are not cached.
   * @type {Store["kindsSeen"]} */
  kindsSeen() {
    const failures = greatest(Array.from(this.wholeStrip.failed)) > 0;
    return { submissions: this.meta.executions > 0, waits: true, failures, open: failures || this.meta.running === true };
  }

  // --- Requests ---

  /** @param {string} what @param {Record<string, string | number>} asked @returns {Promise<Answer>} */
  async ask(what, asked) {
    const parameters = Object.entries({ version: this.version, ...asked }).map(([key, value]) => [key, String(value)]);
    const answer = await fetch(`ask/${what}?${new URLSearchParams(parameters)}`);
    if (answer.status === 410) throw new Gone("There are newer spans: reload to see them");
    if (!answer.ok) throw new Error(`The server answered ${answer.status}`);
    const [head, rest] = headOf(new Uint8Array(await answer.arrayBuffer()));
    return { head, columns: columnsOf(rest) };
  }

  /** The latest answer to a kind of request. Sends a new request if it has changed, and reports when the answer arrives.
   * @template T
   * @param {string} kind @param {Record<string, string | number>} asked @param {(answer: Answer) => T} take @returns {T | null} */
  latest(kind, asked, take) {
    /** @type {Recent} */
    const known = this.recent.get(kind) || { asked: "", value: null };
    this.recent.set(kind, known);
    const key = JSON.stringify(asked);
    if (known.asked !== key) {
      known.asked = key;
      clearTimeout(known.timer);
      known.timer = setTimeout(async () => {
        try {
          const value = take(await this.ask(kind, asked));
          if (known.asked !== key) return;
          known.value = value;
          this.changed("data");
        } catch (error) {
          this.report(error);
        }
      }, known.value ? 120 : 0);
    }
    return known.value;
  }

  get asked() {
    const [from, to] = this.range;
    return { from: Math.floor(from), to: Math.ceil(Math.min(to, this.end)), q: this.query };
  }

  /** @returns {Figures} */
  figures() {
    if (this.isWhole && !this.isFiltered) return this.whole;
    /** @param {Answer} answer */
    const take = ({ head, columns }) => /** @type {Figures} */ (/** @type {unknown} */ ({ ...columns, every: head.every }));
    return this.latest("figures", this.asked, take) || this.whole;
  }

  flameFigures() {
    return this.figures();
  }

  placeFigures() {
    return this.figures();
  }

  /** The server's answer about the selected group. */
  get chosenGroup() {
    return this.selection && this.groupFound?.of === this.selection ? this.groupFound : null;
  }

  matchedPlaces() {
    return this.chosenGroup ? new Set(this.chosenGroup.places) : super.matchedPlaces();
  }

  matchedStacks() {
    return this.chosenGroup ? marked(this.meta.flame.parent.length, this.chosenGroup.stacks) : super.matchedStacks();
  }

  functionFigures() {
    const lit = this.chosenGroup ? marked(this.meta.graph.functions.length, this.chosenGroup.functions) : super.functionFigures().lit;
    return { lit, shown: this.isFiltered || !this.isWhole ? this.figures().functions : null };
  }

  get figuresNote() {
    const { every } = this.figures();
    return every > 1 ? ` Estimated from one span in ${every.toLocaleString("en-US")}.` : "";
  }

  strip() {
    return this.filterStrip ?? this.wholeStrip;
  }

  queues() {
    const size = this.end / QUEUE_PARTS;
    let at = 0;
    return (this.meta.waiting ?? []).map((most) => {
      if (!most) return null;
      const passed = sums(this.waited.subarray(at, (at += QUEUE_PARTS)));
      /** @param {number} time */
      const waited = (time) => {
        const place = Math.max(0, Math.min(QUEUE_PARTS - 1e-9, time / size)), part = Math.floor(place);
        return passed[part] + (passed[part + 1] - passed[part]) * (place - part);
      };
      return { most, waited, at: (/** @type {number} */ time) => Math.round((waited(time + size / 2) - waited(time - size / 2)) / size) };
    });
  }

  /** Show only what matches the query; the previous view stays until the answer arrives.
   * @param {string} query */
  async askFilter(query) {
    const turn = ++this.filterTurn;
    const wanted = query.trim();
    this.notice = "";
    let found = null;
    if (wanted) {
      this.notice = "Searching …";
      this.changed("notice");
      try {
        found = await this.ask("filter", { q: wanted });
        if (found.head.problem) throw new Error(found.head.problem);
        this.notice = "";
      } catch (error) {
        found = null;
        if (turn === this.filterTurn) this.report(error);
      }
      if (turn !== this.filterTurn) return;
    }
    this.query = found ? wanted : "";
    this.filterStrip = found && { running: found.head.running, failed: found.head.failed, most: greatest(found.head.running), keep: found };
    this.kept = found ? found.head.kept : this.total;
    this.begins = found ? found.columns.begins : this.allBegins;
    this.changed("filter");
  }

  /** @param {string} by @param {boolean} ascending */
  listed(by, ascending) {
    const found = this.latest("list", { ...this.asked, by, ascending: ascending ? 1 : 0 }, ({ head, columns }) => ({ rows: this.adopt(columns), count: Number(head.count) }));
    return found || { rows: [], count: 0 };
  }

  /** @param {number} moment */
  openAt(moment) {
    return this.latest("stack", { at: Math.floor(Math.max(0, Math.min(this.end, moment))), q: this.query }, ({ head, columns }) => {
      this.adopt(columns);
      for (const [from, to, kind] of head.edges) this.addEdge(from, to, kind);
      return { open: head.open.map((/** @type {number} */ number) => this.here.get(number)), count: head.count, hidden: head.hidden };
    }) || { open: [], count: 0, hidden: 0 };
  }

  /** @param {Chosen} chosen */
  async group(chosen) {
    /** @type {Record<string, number>} */
    const asked = {};
    if (chosen.name !== undefined) asked.name = chosen.name;
    else if (["function", "flame", "place"].includes(chosen.type)) asked[chosen.type] = chosen.id ?? -1;
    else return chosen.type === "edge" ? null : super.group(chosen);
    const { head, columns } = await this.ask("group", asked);
    this.adopt(columns);
    if (this.selection === chosen) {
      this.groupFound = { of: chosen, ...head };
      this.match();
      this.changed("group");
    }
    return { ...head, slowest: head.slowest.map((/** @type {number} */ number) => this.here.get(number)) };
  }

  // --- Tiles ---

  /** Discard tiles that were queued for the previous frame and not yet requested.
   * @param {number} pixels */
  beginFrame(pixels) {
    this.pixels = pixels;
    this.wanted.clear();
  }

  /** The level of tiles whose buckets are about a pixel wide. */
  get level() {
    const [from, to] = this.range;
    return Math.max(BUCKET_BITS, Math.min(this.top, Math.floor(Math.log2((to - from) / this.pixels)) + BUCKET_BITS));
  }

  /** @type {Store["eachBar"]} */
  eachBar(sub, from, to, visit) {
    const { level } = this;
    const size = 2 ** level;
    let last = -1;
    for (let index = Math.max(0, Math.floor(from / size)); index * size <= to && index * size <= this.end; index++) {
      const tile = this.tileFor(level, index, sub);
      if (!tile) continue;
      const begin = Math.max(from, index * size), end = Math.min(to, (index + 1) * size);
      const at = sub - tile.first, high = tile.offsets[at + 1];
      for (let n = firstWithin(tile, at, begin); n < high && tile.begin[n] <= end; n++) {
        const i = tile.spans[n], count = tile.count[n];
        if (count === 1 && i === last) continue;
        last = i;
        const flags = tile.failures[n] ? this.flags[i] | FAILED : this.flags[i];
        visit(i, tile.begin[n], tile.until[n], flags, count, tile.ran[n] / (tile.until[n] - tile.begin[n] || 1));
      }
    }
  }

  /** The tile, or the best cached substitute while the tile is requested.
   * @param {number} level @param {number} index @param {number} sub @returns {Tile | null} */
  tileFor(level, index, sub) {
    const block = Math.floor(sub / BLOCK), { query } = this;
    for (let up = 0; level + up <= this.top; up++) {
      const asked = { level: level + up, index: Math.floor(index / 2 ** up), block, query };
      const key = `${query}|${asked.level}|${asked.index}|${block}`;
      const tile = this.tiles.get(key);
      if (tile && tile !== ASKED) return tile;
      // The coarsest one can stand in for all others.
      if (!tile && (up === 0 || level + up === this.top)) this.want(key, asked);
    }
    return null;
  }

  /** @param {string} key @param {TileAsked} asked */
  want(key, asked) {
    this.wanted.set(key, asked);
    if (this.isPumping) return;
    this.isPumping = true;
    queueMicrotask(() => {
      this.isPumping = false;
      this.pump();
    });
  }

  pump() {
    for (const [key, asked] of this.wanted) {
      if (this.asking >= MOST_ASKED_AT_ONCE) return;
      this.wanted.delete(key);
      this.fetchTile(key, asked);
    }
  }

  /** @param {string} key @param {TileAsked} asked */
  async fetchTile(key, { level, index, block, query }) {
    this.asking++;
    if (this.tiles.size > MOST_TILES) this.tiles.clear();
    this.tiles.set(key, ASKED);
    try {
      const first = block * BLOCK;
      const { columns } = await this.ask("tile", { level, index, first, last: first + BLOCK, q: query });
      this.tiles.set(key, tileOf(first, this.adopt(columns), columns));
    } catch (error) {
      this.tiles.delete(key);
      this.wanted.clear();
      this.report(error);
      return;
    } finally {
      this.asking--;
    }
    this.pump();
    this.changed("tiles");
  }
}

/** A tile from its columns, which are by row, with the start of each row and the end of each bar.
 * @param {number} first @param {Int32Array} spans @param {Columns} columns @returns {Tile} */
export function tileOf(first, spans, { sub, begin, length, count, ran, failures }) {
  const offsets = new Uint32Array(BLOCK + 1), until = new Float64Array(begin.length);
  for (let n = 0; n < begin.length; n++) {
    offsets[sub[n] + 1]++;
    until[n] = begin[n] + length[n];
  }
  for (let n = 0; n < BLOCK; n++) offsets[n + 1] += offsets[n];
  return { first, offsets, spans, begin, until, count, ran, failures };
}

/** The first bar in a row of a tile that ends after a time, or starts at it.
 * @param {Tile} tile @param {number} at @param {number} time */
export function firstWithin({ offsets, begin, until }, at, time) {
  let low = offsets[at], high = offsets[at + 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (until[middle] <= time && begin[middle] < time) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** @param {number} size @param {number[]} places */
function marked(size, places) {
  const found = new Uint8Array(size);
  for (const place of places) found[place] = 1;
  return found;
}
