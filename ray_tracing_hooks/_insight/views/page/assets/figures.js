// Figures of the spans in the range and filter.

export const PRODUCER = 4, CONSUMER = 5;
export const FAILED = 8, STATE_SHIFT = 4, WAITING = 64, ON_PATH = 128;
/** The number of slices in the overview of the whole run. */
export const STRIP = 600;

/** Prefix sums: of no values, of the first one, of the first two, and so on.
 * @param {Numbers} values */
export function sums(values) {
  const found = new Float64Array(values.length + 1);
  for (let i = 0; i < values.length; i++) found[i + 1] = found[i] + values[i];
  return found;
}

/** How many of the ascending values are at most `limit`.
 * @param {Numbers} values @param {number} limit */
export function upTo(values, limit) {
  let low = 0, high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] <= limit) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** @param {ArrayLike<number> & { reduce(step: (a: number, b: number) => number, first: number): number }} numbers */
export function greatest(numbers) {
  return numbers.reduce((a, b) => Math.max(a, b), 0);
}

/** A percentile of ascending values, by the same definition as percentile() in functions.py.
 * @param {Numbers} values @param {number} share */
export function percentile(values, share) {
  const low = Math.max(0, Math.ceil(share * values.length) - 1), high = Math.min(values.length - 1, Math.floor(share * values.length));
  return (values[low] + values[high]) / 2;
}

/** Whether a span matches the filter and overlaps the range.
 * @param {Counted} spans @param {number} i */
export function isIn({ start, took, keep, range: [from, to] }, i) {
  return (!keep || keep[i] === 1) && start[i] <= to && start[i] + took[i] >= from;
}

/** For each stack of the flame graph: number of spans, total duration, wall time (each moment once), self time, in which no
 * span below it ran, and share of the wall time.
 * @param {Counted} spans @returns {StackFigures} */
export function stackFigures(spans) {
  const { count, start, took, flame, range: [from, to], meta } = spans;
  const stacks = meta.flame.parent.length;
  const many = new Uint32Array(stacks), summed = new Float64Array(stacks), wall = new Float64Array(stacks);
  const until = new Float64Array(stacks).fill(-1);
  for (let i = 0; i < count; i++) {
    if (!isIn(spans, i)) continue;
    const begin = Math.max(start[i], from), end = Math.min(start[i] + took[i], to), stack = flame[i];
    many[stack]++;
    summed[stack] += end - begin;
    wall[stack] += Math.max(0, end - Math.max(begin, until[stack]));
    until[stack] = Math.max(until[stack], end);
  }
  return { spans: many, summed, wall, ...spent(spans, stacks) };
}

/** The span above one in its stack: for an execution the span that made the call, not its submission.
 * @param {Counted} spans @param {number} i */
function caller({ parent, flags }, i) {
  const above = parent[i];
  return above >= 0 && (flags[i] & 7) === CONSUMER && (flags[above] & 7) === PRODUCER ? parent[above] : above;
}

const PARTS = 4096;

/** For each stack the self time of its spans, and their share of the wall time, as in flame.py.
 * @param {Counted} spans @param {number} stacks */
function spent(spans, stacks) {
  const { count, start, took, flame, range: [from, to] } = spans;
  const own = new Float64Array(stacks), share = new Float64Array(stacks);
  const done = new Float64Array(count), until = new Float64Array(count);
  for (let i = 0; i < count; i++) {
    done[i] = Math.max(start[i], from);
    until[i] = Math.max(done[i], Math.min(start[i] + took[i], to));
  }
  /** Visits each interval in which a span ran but none below it.
   * @param {(i: number, begin: number, end: number) => void} visit */
  const pieces = (visit) => {
    const counted = done.slice();
    for (let i = 0; i < count; i++) {
      const above = isIn(spans, i) ? caller(spans, i) : -1;
      if (above < 0 || !isIn(spans, above)) continue;
      const inside = Math.min(until[i], until[above]), since = Math.max(done[i], counted[above]);
      if (inside <= since) continue;
      if (since > counted[above]) visit(above, counted[above], since);
      counted[above] = inside;
    }
    for (let i = 0; i < count; i++) if (isIn(spans, i) && until[i] > counted[i]) visit(i, counted[i], until[i]);
  };
  const width = Math.max(1, Math.ceil((to - from) / PARTS)), { wait } = spans.meta.flame;
  /** @param {number} time */
  const at = (time) => Math.min(PARTS - 1, Math.floor((time - from) / width));
  // How many run, and how many wait, on average in each slice; then the rate of the clock of each in that slice.
  const many = [new Float64Array(PARTS), new Float64Array(PARTS)], whole = [new Float64Array(PARTS + 1), new Float64Array(PARTS + 1)];
  pieces((i, begin, end) => {
    const which = wait[flame[i]], first = at(begin), last = at(end);
    if (first === last) many[which][first] += end - begin;
    else {
      many[which][first] += from + (first + 1) * width - begin;
      many[which][last] += end - from - last * width;
      whole[which][first + 1]++;
      whole[which][last]--;
    }
  });
  const passed = [new Float64Array(PARTS + 1), new Float64Array(PARTS + 1)];
  const filling = [0, 0];
  for (let n = 0; n < PARTS; n++) {
    const size = Math.max(1, Math.min(width, to - from - n * width));
    for (const which of [0, 1]) {
      filling[which] += whole[which][n];
      many[which][n] = (many[which][n] + filling[which] * width) / size;
    }
    const ran = many[0][n];
    many[0][n] = 1 / Math.max(1, ran);
    many[1][n] = (1 - Math.min(1, ran)) / Math.max(1, many[1][n]);
    for (const which of [0, 1]) passed[which][n + 1] = passed[which][n] + many[which][n] * width;
  }
  pieces((i, begin, end) => {
    const which = wait[flame[i]];
    /** @param {number} time */
    const clock = (time) => passed[which][at(time)] + (time - from - at(time) * width) * many[which][at(time)];
    own[flame[i]] += end - begin;
    share[flame[i]] += clock(end) - clock(begin);
  });
  return { own, share };
}

/** Adds the time from `a` to `b` to equal slices of `size` from 0: to `within` where it covers a part of a slice, and to
 * `whole`, as a difference to the slice before, where it covers all of it.
 * @param {Float64Array} within @param {Float64Array} whole @param {number} size @param {number} a @param {number} b @param {number} sign */
function slice(within, whole, size, a, b, sign) {
  /** @param {number} time */
  const part = (time) => Math.max(0, Math.min(within.length - 1, Math.floor(time / size)));
  const first = part(a), last = part(b);
  if (first === last) within[first] += (sign * (b - a)) / size;
  else {
    within[first] += (sign * ((first + 1) * size - a)) / size;
    whole[first + 1] += sign;
    whole[last] -= sign;
    within[last] += (sign * (b - last * size)) / size;
  }
}

/** The mean of what `slice` added, in each slice.
 * @param {Float64Array} within @param {Float64Array} whole */
function filled(within, whole) {
  let covering = 0;
  return within.map((value, n) => Math.max(0, value + (covering += whole[n])));
}

/** The number of slices in which the share of the time in which a place is busy is drawn. */
const PLACE_STRIP = 60;

/** For each place: the time in which something ran without waiting (each moment once), also by slices of the range, the
 * number of outermost spans that started, and of failed ones. If several executions run at the same time, a waiting one does
 * not stop the others.
 * @param {Counted} spans @returns {PlaceFigures} */
export function placeFigures(spans) {
  const { count, start, took, flags, lane, depth, range: [from, to], meta } = spans;
  const places = meta.places.length;
  const lanes = new Uint32Array(places), idle = new Float64Array(places).fill(-1);
  for (const place of meta.lanes) lanes[place]++;
  const busy = new Float64Array(places), calls = new Uint32Array(places), errors = new Uint32Array(places);
  const until = new Float64Array(places).fill(-1), size = (to - from) / PLACE_STRIP || 1;
  const within = Array.from(busy, () => new Float64Array(PLACE_STRIP)), whole = Array.from(busy, () => new Float64Array(PLACE_STRIP + 1));
  /** @param {number} place @param {number} begin @param {number} end @param {number} sign */
  const add = (place, begin, end, sign) => {
    if (end <= begin) return;
    busy[place] += sign * (end - begin);
    slice(within[place], whole[place], size, begin - from, end - from, sign);
  };
  for (let i = 0; i < count; i++) {
    if (!isIn(spans, i)) continue;
    const begin = Math.max(start[i], from), end = Math.min(start[i] + took[i], to), place = meta.lanes[lane[i]];
    if (flags[i] & FAILED) errors[place]++;
    if (flags[i] & WAITING && lanes[place] === 1) {
      add(place, Math.max(begin, idle[place]), end, -1);
      idle[place] = Math.max(idle[place], end);
    }
    if (depth[i]) continue;
    calls[place]++;
    add(place, Math.max(begin, until[place]), end, 1);
    until[place] = Math.max(until[place], end);
  }
  // A filter may show waits without what waited.
  return { busy: busy.map((time) => Math.max(0, time)), calls, errors, strips: within.map((each, place) => filled(each, whole[place])) };
}

/** The execution that a span is in, or -1.
 * @param {Counted} spans @param {number} row */
function executionOf({ parent, flags }, row) {
  for (let n = 0, above = parent[row]; above >= 0 && n < 1000; n++, above = parent[above]) if ((flags[above] & 7) === CONSUMER) return above;
  return -1;
}

/** How many executions (if there are none, spans) run at the same time: the mean in each of `parts` slices of the run. An
 * execution does not run while it waits.
 * @param {Counted} spans @param {number} [parts] @returns {Strip} */
export function busyStrip(spans, parts = STRIP) {
  const { count, start, took, flags, keep, end: extent, meta } = spans;
  const running = new Float64Array(parts), whole = new Float64Array(parts + 1), failed = new Uint8Array(parts);
  const size = extent / parts || 1;
  /** @param {number} time */
  const part = (time) => Math.min(parts - 1, Math.floor(time / size));
  const hasCalls = meta.executions > 0;
  const waited = new Map();
  for (let i = 0; i < count; i++) {
    const isKept = !keep || keep[i], waits = flags[i] & WAITING;
    // Waits that the filter hides count too: their execution does not run during them.
    if (!isKept && !(hasCalls && waits)) continue;
    let a = start[i], b = start[i] + took[i], sign = 1;
    if (isKept && flags[i] & FAILED) failed[part(b)] = 1;
    if (hasCalls && (flags[i] & 7) !== CONSUMER) {
      const held = waits ? executionOf(spans, i) : -1;
      if (held < 0 || (keep && !keep[held])) continue;
      // Count each moment once: an execution may wait in several threads.
      a = Math.max(a, waited.get(held) || 0);
      b = Math.min(b, start[held] + took[held]);
      if (b <= a) continue;
      waited.set(held, b);
      sign = -1;
    }
    slice(running, whole, size, a, b, sign);
  }
  const found = filled(running, whole);
  return { running: found, failed, most: greatest(found), keep };
}

/** The queue of each place: the most calls that waited at the same time, the number waiting at a moment, and the total time
 * that calls have waited by a moment. Null if hardly any calls wait.
 * @param {Counted} spans @returns {(Queue | null)[]} */
export function queuesOf({ count, start, took, lane, submission, end: extent, meta }) {
  /** @type {[number[], number[]][]} */
  const waits = Array.from({ length: meta.places.length }, () => [[], []]);
  for (let i = 0; i < count; i++) {
    const made = submission[i];
    if (made < 0 || start[i] <= start[made] + took[made]) continue;
    const [begun, done] = waits[meta.lanes[lane[i]]];
    begun.push(start[made] + took[made]);
    done.push(start[i]);
  }
  return waits.map((wait) => {
    if (!wait[0].length) return null;
    const begun = Float64Array.from(wait[0]).sort(), done = Float64Array.from(wait[1]);
    const begunSum = sums(begun), doneSum = sums(done);
    let depth = 0, most = 0;
    for (let i = 0, j = 0; i < begun.length; i++) {
      depth++;
      while (done[j] <= begun[i]) { depth--; j++; }
      most = Math.max(most, depth);
    }
    /** @param {number} time */
    const waited = (time) => {
      const first = upTo(begun, time), last = upTo(done, time);
      return first * time - begunSum[first] - (last * time - doneSum[last]);
    };
    const total = doneSum[done.length] - begunSum[begun.length];
    return most >= 2 || total > extent / 100 ? { most, waited, at: (time) => upTo(begun, time) - upTo(done, time) } : null;
  });
}
