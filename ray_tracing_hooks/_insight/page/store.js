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
    } else if (chosen.type === "rows") {
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
    const strip = busyStrip(this, 600);
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
