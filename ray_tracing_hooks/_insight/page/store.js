// The spans in memory, and what is looked at: range, filter, selection. Views read from here and redraw on its changes.

const PRODUCER = 4, CONSUMER = 5;
const KINDS = ["unspecified", "internal", "server", "client", "producer", "consumer"];
const STATES = ["ended", "running", "lost"];
const FAILED = 8, STATE_SHIFT = 4, WAITING = 64, ON_PATH = 128;

class Store {
  constructor(meta, columns, details) {
    this.meta = meta;
    this.details = details;
    this.count = columns.start.length;
    this.unfold(columns);
    this.end = meta.extent;
    this.names = meta.names;
    this.shownNames = meta.names.map(safe);
    this.listeners = [];
    this.range = [0, this.end];
    this.selection = null;
    this.matched = null;
    this.query = "";
    this.keep = null; // one byte a span, or null where nothing is filtered
    this.kept = this.count;
    this.showPath = false;
    this.moment = this.defaultMoment();
    this.layOut();
  }

  unfold(columns) {
    const count = this.count;
    const start = (this.start = new Float64Array(count));
    for (let i = 0, at = 0; i < count; i++) start[i] = at += columns.start[i];
    this.took = columns.took;
    this.name = columns.name;
    this.flags = columns.flags;
    this.lane = columns.lane;
    this.depth = columns.depth;
    this.node = columns.function;
    this.flame = columns.flame;
    this.resource = columns.resource;
    this.trace = columns.trace;
    this.detail = columns.detail;
    const parent = (this.parent = new Int32Array(count));
    const submission = (this.submission = new Int32Array(count));
    for (let i = 0; i < count; i++) {
      const back = columns.parent[i] - 1;
      parent[i] = back < 0 ? -1 : i - (back % 2 ? -(back + 1) / 2 : back / 2);
      const of = columns.submission[i];
      submission[i] = of === 0 ? -1 : of === 1 ? parent[i] : of - 2;
    }
    this.edgeFrom = columns.edge_from;
    this.edgeTo = columns.edge_to;
    this.edgeKind = columns.edge_kind;
  }

  // Where spans stand: each lane has a row for each depth, and the bars of a row do not overlap.
  layOut() {
    const { count, lane, depth } = this;
    const lanes = this.meta.lanes.length;
    const deepest = new Uint32Array(lanes);
    this.tooDeep = 0;
    for (let i = 0; i < count; i++) {
      if (depth[i] >= MOST_DEPTH) this.tooDeep++;
      else if (depth[i] + 1 > deepest[lane[i]]) deepest[lane[i]] = depth[i] + 1;
    }
    this.deepest = deepest;
    this.first = new Uint32Array(lanes + 1);
    for (let i = 0; i < lanes; i++) this.first[i + 1] = this.first[i] + deepest[i];
    this.sort();
  }

  // The rows of spans that are not filtered out, one after the other, each by start.
  sort() {
    const { count, lane, depth, first, keep } = this;
    const rows = first[first.length - 1];
    const begins = new Uint32Array(rows + 1);
    for (let i = 0; i < count; i++) if (depth[i] < MOST_DEPTH && (!keep || keep[i])) begins[first[lane[i]] + depth[i] + 1]++;
    for (let i = 0; i < rows; i++) begins[i + 1] += begins[i];
    const order = new Uint32Array(begins[rows]);
    const next = begins.slice(0, rows);
    for (let i = 0; i < count; i++) if (depth[i] < MOST_DEPTH && (!keep || keep[i])) order[next[first[lane[i]] + depth[i]]++] = i;
    this.begins = begins;
    this.order = order;
  }

  // --- Changes ---

  listen(listener) {
    this.listeners.push(listener);
  }

  changed(what) {
    for (const listener of this.listeners) listener(what);
  }

  setRange(from, to) {
    const least = Math.min(1000, this.end || 1);
    let size = Math.max(least, Math.min(this.end || 1, to - from));
    from = Math.max(0, Math.min(from, this.end - size));
    this.range = [from, from + size];
    this.changed("range");
  }

  // How many spans the run has, wherever they are.
  get total() {
    return this.count;
  }

  get isWhole() {
    return this.range[0] <= 0 && this.range[1] >= this.end;
  }

  select(selection) {
    this.selection = selection;
    this.match();
    this.changed("selection");
  }

  // Which spans the selection means, as one byte a span.
  match() {
    const chosen = this.selection;
    this.matched = null;
    if (!chosen) return;
    const { count } = this;
    const matched = (this.matched = new Uint8Array(count));
    if (chosen.type === "span") {
      matched[chosen.row] = 1;
      if (this.submission[chosen.row] >= 0) matched[this.submission[chosen.row]] = 1;
    } else if (chosen.name !== undefined) {
      for (let i = 0; i < count; i++) if (this.name[i] === chosen.name) matched[i] = 1;
    } else if (chosen.rows) {
      for (const row of chosen.rows) matched[row] = 1;
    } else if (chosen.type === "function") {
      for (let i = 0; i < count; i++) if (this.node[i] === chosen.id + 1) matched[i] = 1;
    } else if (chosen.type === "flame") {
      const within = this.flameBelow(chosen.id);
      for (let i = 0; i < count; i++) if (within[this.flame[i]]) matched[i] = 1;
    } else if (chosen.type === "place") {
      const lanes = this.lanesOf(chosen.id);
      for (let i = 0; i < count; i++) if (lanes[this.lane[i]]) matched[i] = 1;
    }
  }

  flameBelow(id) {
    const parents = this.meta.flame.parent;
    const within = new Uint8Array(parents.length);
    within[id] = 1;
    for (let i = id + 1; i < parents.length; i++) if (parents[i] >= 0 && within[parents[i]]) within[i] = 1;
    return within;
  }

  lanesOf(place) {
    return Uint8Array.from(this.meta.lanes, (of) => (of === place ? 1 : 0));
  }

  matchedRows() {
    const rows = [];
    if (this.matched) for (let i = 0; i < this.count; i++) if (this.matched[i]) rows.push(i);
    return rows;
  }

  // --- Single spans ---

  endOf(row) {
    return this.start[row] + this.took[row];
  }

  kind(row) {
    return this.flags[row] & 7;
  }

  state(row) {
    return (this.flags[row] >> STATE_SHIFT) & 3;
  }

  failed(row) {
    return (this.flags[row] & FAILED) !== 0;
  }

  onPath(row) {
    return (this.flags[row] & ON_PATH) !== 0;
  }

  isOpenAt(row, moment) {
    return this.start[row] <= moment && (moment < this.endOf(row) || (this.state(row) === 1 && moment <= this.end));
  }

  // From the end of the submission to the beginning of the execution, or -1 where there are not both.
  queued(row) {
    const from = this.submission[row];
    return from < 0 ? -1 : Math.max(0, this.start[row] - this.endOf(from));
  }

  label(row) {
    return this.shownNames[this.name[row]];
  }

  // Without what says that it is a call's execution: on the timeline its place says so.
  shortLabel(row) {
    return plainName(this.label(row));
  }

  place(row) {
    return this.meta.lanes[this.lane[row]];
  }

  placeLabel(row) {
    return safe(this.meta.places[this.place(row)].label);
  }

  children(row) {
    if (!this.childOf) this.indexChildren();
    const found = [];
    for (let i = this.childOf[row]; i >= 0; i = this.sibling[i]) found.push(i);
    return found;
  }

  indexChildren() {
    this.childOf = new Int32Array(this.count).fill(-1);
    this.sibling = new Int32Array(this.count).fill(-1);
    for (let i = this.count - 1; i >= 0; i--) {
      const above = this.parent[i];
      if (above < 0) continue;
      this.sibling[i] = this.childOf[above];
      this.childOf[above] = i;
    }
  }

  // Where something still runs, the end; else when most ran at once.
  defaultMoment() {
    for (let i = 0; i < this.count; i++) if (this.state(i) === 1) return this.end;
    return this.busiest();
  }

  busiest() {
    const strip = this.strip();
    return ((strip.running.indexOf(strip.most) + 0.5) / 600) * this.end;
  }

  // What is not selected is drawn pale where several spans are selected, not where one is.
  get lit() {
    return this.selection && this.selection.type !== "span" ? this.matched : null;
  }

  // The first position of a row whose bar ends after `time`.
  search(row, time) {
    let low = this.begins[row], high = this.begins[row + 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      const span = this.order[middle];
      if (this.start[span] + this.took[span] <= time) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  // --- What views ask: of the spans here, and in ServedStore of a server ---

  // Calls `visit` for each bar of a row that is to be seen: its span, begin and end, flags, how many spans it stands for
  // and the share of its time in which they ran.
  eachBar(row, from, to, visit) {
    const { start, took, flags, order, begins } = this;
    for (let at = this.search(row, from), end = begins[row + 1]; at < end; at++) {
      const i = order[at];
      if (start[i] > to) break;
      visit(i, start[i], start[i] + took[i], flags[i], 1, 1);
    }
  }

  beginFrame() {}

  firstOf(row) {
    return this.order[this.begins[row]];
  }

  // The span before or after one in its row, or -1.
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

  isHidden(row) {
    return !!this.keep && !this.keep[row];
  }

  // A span's number in the address, and back.
  numberOf(row) {
    return row;
  }

  rowAt(number) {
    return Number.isInteger(number) && number >= 0 && number < this.count ? number : -1;
  }

  load() {}

  detailsOf(row) {
    return this.details.of(this.detail[row] - 1);
  }

  strip() {
    return busyStrip(this, 600);
  }

  queues() {
    return queuesOf(this);
  }

  get figuresNote() {
    return "";
  }

  // What is open at a moment, by start.
  openAt(moment) {
    const open = [];
    let hidden = 0;
    for (let i = 0; i < this.count; i++) {
      if (this.start[i] > moment) break;
      if (!this.isOpenAt(i, moment)) continue;
      if (this.isHidden(i)) hidden++;
      else open.push(i);
    }
    return { open, count: open.length, hidden };
  }

  // The spans of range and filter in an order.
  listed(by, ascending) {
    const [from, to] = this.range;
    const rows = [];
    for (let i = 0; i < this.count; i++) {
      if (!this.isHidden(i) && this.start[i] <= to && this.endOf(i) >= from) rows.push(i);
    }
    const order = Uint32Array.from(rows);
    const found = (rows) => ({ rows, count: rows.length });
    if (by === "start") return found(ascending ? order : order.reverse());
    const value = new Float64Array(this.count);
    if (by === "name") {
      const rank = new Uint32Array(this.names.length);
      this.shownNames.map((name, i) => [name, i]).sort((a, b) => (a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : 0)).forEach(([, i], n) => (rank[i] = n));
      for (let i = 0; i < this.count; i++) value[i] = rank[this.name[i]];
    } else for (let i = 0; i < this.count; i++) value[i] = by === "took" ? this.took[i] : this.queued(i);
    return found(ascending ? order.sort((a, b) => value[a] - value[b]) : order.sort((a, b) => value[b] - value[a]));
  }

  // Figures of what is selected, if it is more than a span.
  group() {
    const rows = this.matchedRows();
    const took = Float64Array.from(rows, (row) => this.took[row]).sort();
    const at = (share) => took[Math.min(took.length - 1, Math.floor(share * took.length))];
    return {
      count: rows.length, failed: rows.reduce((sum, row) => sum + (this.failed(row) ? 1 : 0), 0),
      p50: at(0.5), p95: at(0.95), max: took[took.length - 1], slowest: rows.sort((a, b) => this.took[b] - this.took[a]).slice(0, 30),
    };
  }

  // The places that have a selected span, and for each stack of the flame graph whether it has one.
  matchedPlaces() {
    const found = new Set();
    if (this.matched) for (let i = 0; i < this.count; i++) if (this.matched[i]) found.add(this.place(i));
    return found;
  }

  matchedStacks() {
    const found = new Uint8Array(this.meta.flame.parent.length);
    for (let i = 0; i < this.matched.length; i++) if (this.matched[i]) found[this.flame[i]] = 1;
    return found;
  }

  // Which functions have a selected span, and one in range and filter; null where there is no such thing.
  functionFigures() {
    const functions = this.meta.graph.functions.length;
    const lit = this.matched ? new Uint8Array(functions) : null;
    const shown = this.keep || !this.isWhole ? new Uint8Array(functions) : null;
    const [from, to] = this.range;
    if (lit || shown) {
      for (let i = 0; i < this.count; i++) {
        const node = this.node[i] - 1;
        if (node < 0) continue;
        if (lit && this.matched[i]) lit[node] = 1;
        if (shown && !this.isHidden(i) && this.start[i] <= to && this.endOf(i) >= from) shown[node] = 1;
      }
    }
    return { lit, shown };
  }

  // For each node of the flame graph: spans, summed time and wall time (no moment twice) in range and filter.
  flameFigures() {
    const nodes = this.meta.flame.parent.length;
    const { count, start, took, flame, keep, range: [from, to] } = this;
    const spans = new Uint32Array(nodes), summed = new Float64Array(nodes), wall = new Float64Array(nodes);
    const until = new Float64Array(nodes).fill(-1);
    for (let i = 0; i < count; i++) {
      if (keep && !keep[i]) continue;
      const begin = Math.max(start[i], from), end = Math.min(start[i] + took[i], to);
      if (end < begin || start[i] > to) continue;
      const node = flame[i];
      spans[node]++;
      summed[node] += end - begin;
      if (begin >= until[node]) wall[node] += end - begin;
      else if (end > until[node]) wall[node] += end - until[node];
      if (end > until[node]) until[node] = end;
    }
    return { spans, summed, wall };
  }

  // For each place: the time in which it ran something, no moment twice, and how many executions it began.
  placeFigures() {
    const places = this.meta.places.length;
    const { count, start, took, keep, range: [from, to] } = this;
    const busy = new Float64Array(places), calls = new Uint32Array(places), errors = new Uint32Array(places);
    const until = new Float64Array(places).fill(-1);
    for (let i = 0; i < count; i++) {
      if (keep && !keep[i]) continue;
      const begin = Math.max(start[i], from), end = Math.min(start[i] + took[i], to);
      if (end < begin || start[i] > to) continue;
      const place = this.place(i);
      if (this.failed(i)) errors[place]++;
      if (this.depth[i]) continue;
      calls[place]++;
      if (begin >= until[place]) busy[place] += end - begin;
      else if (end > until[place]) busy[place] += end - until[place];
      if (end > until[place]) until[place] = end;
    }
    return { busy, calls, errors };
  }
}

const MOST_DEPTH = 250;

// Without the module that scripts have, and without what says that a span is an execution.
function plainName(name) {
  return name.replace(/^__main__\./, "").replace(/ ray\.remote_worker$/, "");
}
