// A run that is too large for a page: the spans that were looked at are here, what else is shown is asked of the server.
//
// The timeline comes in tiles of a power of two nanoseconds. In a tile what is narrower than a bucket, about a pixel, is
// put together; the closer one looks, the more spans are themselves. While a tile is on its way a coarser one stands in.

const BUCKET_BITS = 9, BLOCK = 32, MOST_ASKED_AT_ONCE = 4, MOST_TILES = 4000;

class ServedStore extends Store {
  unfold(columns) {
    this.served = true;
    this.address = `ask/`;
    this.version = new URLSearchParams(location.search).get("version") || "0";
    this.count = 0;
    this.capacity = 0;
    this.here = new Map();
    this.below = new Map();
    this.beside = new Map();
    this.edgeFrom = [];
    this.edgeTo = [];
    this.edgeKind = [];
    this.edgesHere = new Set();
    this.tiles = new Map();
    this.wanted = new Map();
    this.asking = 0;
    this.recent = new Map();
    this.notice = "";
    this.pixels = 1200;
    this.allBegins = columns.begins;
    this.adopt(columns);
    columns.edge_from.forEach((from, n) => this.addEdge(from, columns.edge_to[n], columns.edge_kind[n]));
    const { flame } = this.meta;
    this.whole = {
      every: 1, spans: flame.count, summed: flame.total, wall: flame.wall,
      busy: columns.place_busy, calls: columns.place_calls, errors: columns.place_errors, functions: null,
    };
    const { strip } = this.meta;
    this.wholeStrip = { running: strip, failed: columns.strip_failed, most: greatest(strip), keep: null };
    this.waited = columns.waited;
    this.top = Math.max(BUCKET_BITS, Math.ceil(Math.log2(this.meta.extent + 1)));
  }

  layOut() {
    this.deepest = this.meta.deepest;
    this.tooDeep = 0;
    this.first = new Uint32Array(this.deepest.length + 1);
    this.deepest.forEach((many, lane) => (this.first[lane + 1] = this.first[lane] + many));
    this.begins = this.allBegins;
  }

  get total() {
    return this.meta.spans;
  }

  // --- Spans that are here ---

  grow(most) {
    if (most <= this.capacity) return;
    this.capacity = Math.max(4096, most, this.capacity * 2);
    for (const [name, Column] of SPAN_COLUMNS) {
      const grown = new Column(this.capacity);
      if (this[name]) grown.set(this[name]);
      this[name] = grown;
    }
    this.trace = this.detail = new Uint32Array(this.capacity);
  }

  // The places here of spans that the server described.
  adopt(columns) {
    const many = columns.row.length;
    this.grow(this.count + many);
    const found = new Int32Array(many);
    let isNew = false;
    for (let n = 0; n < many; n++) {
      let i = this.here.get(columns.row[n]);
      if (i === undefined) {
        i = this.count++;
        isNew = true;
        this.here.set(columns.row[n], i);
        for (const [name, , from] of SPAN_COLUMNS) if (from) this[name][i] = columns[from][n];
      }
      found[n] = i;
    }
    const at = (row) => (row < 0 ? -1 : this.here.get(row) ?? -1);
    for (let n = 0; n < many; n++) {
      this.parent[found[n]] = at(columns.parent[n] - 1);
      this.submission[found[n]] = at(columns.submission[n] - 1);
    }
    if (isNew && this.selection) this.match();
    return found;
  }

  addEdge(from, to, kind) {
    const key = `${from}-${to}-${kind}`;
    const a = this.here.get(from), b = this.here.get(to);
    if (this.edgesHere.has(key) || a === undefined || b === undefined) return;
    this.edgesHere.add(key);
    this.edgeFrom.push(a);
    this.edgeTo.push(b);
    this.edgeKind.push(kind);
  }

  defaultMoment() {
    return this.meta.running ? this.end : this.busiest();
  }

  queued(row) {
    return this.queuedFor[row] - 1;
  }

  children(row) {
    return this.below.get(row) || [];
  }

  isHidden() {
    return false;
  }

  numberOf(row) {
    return this.row[row];
  }

  async rowAt(number) {
    if (!Number.isInteger(number) || number < 0 || number >= this.total) return -1;
    if (!this.here.has(number)) this.adopt((await this.ask("rows", { rows: number })).columns);
    return this.here.get(number) ?? -1;
  }

  neighbour(row, step) {
    return (this.beside.get(row) || [-1, -1])[step < 0 ? 0 : 1];
  }

  firstOf(sub) {
    let first = -1;
    this.eachBar(sub, this.range[0], this.range[1], (i) => (first = first < 0 ? i : first));
    return first;
  }

  // What a span has to do with, and all that is known of it.
  async load(row) {
    const { head, columns } = await this.ask("span", { row: this.row[row], q: this.query });
    this.adopt(columns);
    const here = (number) => this.here.get(number);
    for (const [above, children] of head.below) this.below.set(here(above), children.map(here));
    for (const [from, to, kind] of head.edges) this.addEdge(from, to, kind);
    this.beside.set(row, head.beside.map((number) => (number < 0 ? -1 : here(number))));
    this.known = { row, head };
    this.changed("loaded");
  }

  detailsOf(row) {
    if (this.known?.row !== row) return null;
    return { ...Details.expanded(this.known.head, this.known.head.span), trace: this.known.head.trace };
  }

  // --- Questions ---

  async ask(what, asked) {
    const answer = await fetch(`${this.address}${what}?${new URLSearchParams({ version: this.version, ...asked })}`);
    if (answer.status === 410) throw new Gone("There are newer spans: show what is new");
    if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
    const bytes = new Uint8Array(await answer.arrayBuffer());
    const size = new DataView(bytes.buffer).getUint32(0, true);
    return { head: JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + size))), columns: columnsOf(bytes.subarray(4 + size)) };
  }

  // Say what went wrong.
  tell(error) {
    this.notice = error instanceof TypeError ? "The server does not answer" : error.message;
    this.changed("notice");
  }

  // The newest answer to a question of a kind; asks again where the question has changed, and tells of its answer.
  latest(kind, asked, take) {
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
          known.of = key;
          this.changed("data");
        } catch (error) {
          this.tell(error);
        }
      }, known.value ? 120 : 0);
    }
    return known.value;
  }

  get asked() {
    const [from, to] = this.range;
    return { from: Math.floor(from), to: Math.ceil(Math.min(to, this.end)), q: this.query };
  }

  figures() {
    if (this.isWhole && !this.keep) return this.whole;
    return this.latest("figures", this.asked, ({ head, columns }) => ({ ...columns, every: head.every })) || this.whole;
  }

  flameFigures() {
    return this.figures();
  }

  placeFigures() {
    return this.figures();
  }

  matchedPlaces() {
    return this.groupOf === this.selection && this.selection ? new Set(this.groupFound.places) : super.matchedPlaces();
  }

  matchedStacks() {
    if (this.groupOf !== this.selection) return super.matchedStacks();
    return marked(this.meta.flame.parent.length, this.groupFound.stacks);
  }

  functionFigures() {
    const lit = this.selection && this.groupOf === this.selection ? marked(this.meta.graph.functions.length, this.groupFound.functions) : super.functionFigures().lit;
    return { lit, shown: this.keep || !this.isWhole ? this.figures().functions : null };
  }

  get figuresNote() {
    const { every } = this.figures();
    return every > 1 ? ` Estimated from one of ${number(every)} spans.` : "";
  }

  strip() {
    return this.keep ? this.keep.strip : this.wholeStrip;
  }

  queues() {
    const parts = 1024, size = this.end / parts;
    let at = 0;
    return this.meta.waiting.map((most) => {
      if (!most) return null;
      const sums = new Float64Array(parts + 1);
      for (let n = 0; n < parts; n++) sums[n + 1] = sums[n] + this.waited[at++];
      const waited = (time) => {
        const place = Math.max(0, Math.min(parts - 1e-9, time / size)), part = Math.floor(place);
        return sums[part] + (sums[part + 1] - sums[part]) * (place - part);
      };
      return { most, waited, at: (time) => Math.round((waited(time + size / 2) - waited(time - size / 2)) / size) };
    });
  }

  async askFilter(query, isWanted) {
    const wanted = query.trim();
    this.notice = "";
    let keep = null;
    if (wanted) {
      // What was there before stays until the answer is.
      this.notice = "Searching …";
      this.changed("notice");
      try {
        const { head, columns } = await this.ask("filter", { q: wanted });
        if (!isWanted()) return;
        if (head.problem) throw new Error(head.problem);
        const strip = { running: head.running, failed: head.failed, most: greatest(head.running) };
        keep = { kept: head.kept, begins: columns.begins, strip };
        strip.keep = keep;
        this.notice = "";
      } catch (error) {
        if (!isWanted()) return;
        this.tell(error);
      }
    }
    this.query = keep ? wanted : "";
    this.keep = keep;
    this.kept = keep ? keep.kept : this.total;
    this.begins = keep ? keep.begins : this.allBegins;
    this.changed("filter");
  }

  listed(by, ascending) {
    const found = this.latest("list", { ...this.asked, by, ascending: ascending ? 1 : 0 }, ({ head, columns }) => ({ rows: this.adopt(columns), count: head.count }));
    return found || { rows: [], count: 0 };
  }

  openAt(moment) {
    return this.latest("stack", { at: Math.floor(Math.max(0, Math.min(this.end, moment))), q: this.query }, ({ head, columns }) => {
      this.adopt(columns);
      for (const [from, to, kind] of head.edges) this.addEdge(from, to, kind);
      return { open: head.open.map((number) => this.here.get(number)), count: head.count, hidden: head.hidden };
    }) || { open: [], count: 0, hidden: 0 };
  }

  async group(chosen) {
    const asked = chosen.name !== undefined ? { name: chosen.name } : ["function", "flame", "place"].includes(chosen.type) ? { [chosen.type]: chosen.id } : null;
    if (!asked) return chosen.type === "edge" ? null : super.group(chosen);
    const { head, columns } = await this.ask("group", asked);
    this.adopt(columns);
    if (this.selection === chosen) {
      [this.groupOf, this.groupFound] = [chosen, head];
      this.match();
      this.changed("group");
    }
    return { ...head, slowest: head.slowest.map((number) => this.here.get(number)) };
  }

  // --- Tiles ---

  // Before a frame: what was wanted for the one before, and is not on its way, is wanted no more.
  beginFrame(pixels) {
    this.pixels = pixels;
    this.wanted.clear();
  }

  get level() {
    const [from, to] = this.range;
    return Math.max(BUCKET_BITS, Math.min(this.top, Math.floor(Math.log2((to - from) / this.pixels)) + BUCKET_BITS));
  }

  eachBar(sub, from, to, visit) {
    const { level } = this;
    const size = 2 ** level;
    let last = -1;
    for (let index = Math.max(0, Math.floor(from / size)); index * size <= to && index * size <= this.end; index++) {
      const tile = this.tileFor(level, index, sub);
      if (!tile) continue;
      const begin = Math.max(from, index * size), end = Math.min(to, (index + 1) * size);
      const at = sub - tile.first, high = tile.offsets[at + 1];
      let low = tile.offsets[at], up = high;
      while (low < up) {
        const middle = (low + up) >> 1;
        if (tile.until[middle] <= begin && tile.begin[middle] < begin) low = middle + 1;
        else up = middle;
      }
      for (let n = low; n < high && tile.begin[n] <= end; n++) {
        const i = tile.spans[n], count = tile.count[n];
        if (count === 1 && i === last) continue;
        last = i;
        const flags = tile.failures[n] ? this.flags[i] | FAILED : this.flags[i];
        visit(i, tile.begin[n], tile.until[n], flags, count, tile.ran[n] / (tile.until[n] - tile.begin[n] || 1));
      }
    }
  }

  // The tile itself, which is asked for where it is not there, or the best that is.
  tileFor(level, index, sub) {
    const block = Math.floor(sub / BLOCK);
    for (let up = 0; level + up <= this.top; up++) {
      const key = `${this.query}|${level + up}|${Math.floor(index / 2 ** up)}|${block}`;
      const tile = this.tiles.get(key);
      if (tile && tile !== ASKED) return tile;
      // The coarsest one is a stand-in for all.
      if (!tile && (up === 0 || level + up === this.top)) this.want(key, { level: level + up, index: Math.floor(index / 2 ** up), block });
    }
    return null;
  }

  want(key, asked) {
    this.wanted.set(key, asked);
    if (this.pumping) return;
    this.pumping = true;
    queueMicrotask(() => {
      this.pumping = false;
      this.pump();
    });
  }

  pump() {
    while (this.asking < MOST_ASKED_AT_ONCE && this.wanted.size) {
      const [key, asked] = this.wanted.entries().next().value;
      this.wanted.delete(key);
      this.fetchTile(key, asked);
    }
  }

  async fetchTile(key, { level, index, block }) {
    this.asking++;
    if (this.tiles.size > MOST_TILES) this.tiles.clear();
    this.tiles.set(key, ASKED);
    try {
      const first = block * BLOCK;
      const { columns } = await this.ask("tile", { level, index, first, last: first + BLOCK, q: key.slice(0, key.length - `|${level}|${index}|${block}`.length) });
      const many = columns.row.length;
      const offsets = new Uint32Array(BLOCK + 1), until = new Float64Array(many);
      for (let n = 0; n < many; n++) {
        offsets[columns.sub[n] + 1]++;
        until[n] = columns.begin[n] + columns.length[n];
      }
      for (let n = 0; n < BLOCK; n++) offsets[n + 1] += offsets[n];
      const { begin, count, ran, failures } = columns;
      this.tiles.set(key, { first, offsets, spans: this.adopt(columns), begin, until, count, ran, failures });
    } catch (error) {
      this.tiles.delete(key);
      this.wanted.clear();
      this.asking--;
      return this.tell(error);
    }
    this.asking--;
    this.pump();
    this.changed("tiles");
  }
}

const ASKED = "asked";

class Gone extends Error {}

// Here, and in what the server sends.
const SPAN_COLUMNS = [
  ["row", Uint32Array, "row"], ["start", Float64Array, "start"], ["took", Float64Array, "took"], ["flags", Uint8Array, "flags"],
  ["name", Uint32Array, "name"], ["node", Uint32Array, "function"], ["flame", Uint32Array, "flame"], ["resource", Uint32Array, "resource"],
  ["lane", Uint32Array, "lane"], ["depth", Uint32Array, "depth"], ["queuedFor", Float64Array, "queued"], ["parent", Int32Array, ""], ["submission", Int32Array, ""],
];

function marked(size, places) {
  const found = new Uint8Array(size);
  for (const place of places) found[place] = 1;
  return found;
}

function greatest(numbers) {
  return numbers.reduce((a, b) => Math.max(a, b), 0);
}
