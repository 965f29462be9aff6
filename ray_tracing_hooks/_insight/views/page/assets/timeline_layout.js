// The vertical layout of the timeline: nodes, then their workers and actors, then lanes.

import { WAIT } from "./store.js";

export const ROW = 15, QUEUE_HEIGHT = 9, NODE_HEIGHT = 26, PLACE_GAP = 5;
const ROW_GAP = 1, MOST_ARROWS = 400, COLLAPSED_HEIGHT = 16, LABEL_HEIGHT = 30, COLLAPSED_LABEL_HEIGHT = 18, MARGIN = 24;

/** @typedef {{ y: number, height: number }} Stripe */
/** @typedef {Stripe & { kind: "node", node: number }} NodeRow */
/** @typedef {Stripe & { kind: "place", place: number, isCollapsed: boolean, level: number }} PlaceRow */
/** @typedef {Stripe & { kind: "queue", place: number }} QueueRow */
/** @typedef {Stripe & { kind: "bars", place: number, sub: number }} BarsRow */
/** @typedef {NodeRow | PlaceRow | QueueRow | BarsRow} Row */

/** The places in the order in which they are drawn, each below the one that called it first if both are on one node; with its
 * level: 0 for drivers and what they called first.
 * @param {Place[]} places @param {Numbers} callers @returns {[place: number, level: number][]} */
export function nested(places, callers) {
  /** @param {number} id */
  const above = (id) => (callers[id] >= 0 && places[callers[id]].node === places[id].node ? callers[id] : -1);
  /** @type {number[][]} */
  const below = places.map(() => []);
  places.forEach((_, id) => above(id) >= 0 && below[above(id)].push(id));
  /** @type {Map<number, number>} */
  const levels = new Map();
  /** @param {number} id @param {number} level */
  const put = (id, level) => {
    if (levels.has(id)) return;
    levels.set(id, level);
    const inside = places[id].kind === "driver" ? 0 : level + 1;
    for (const other of below[id]) put(other, inside);
  };
  for (let id = 0; id < places.length; id++) {
    let top = id;
    for (const seen = new Set(); above(top) >= 0 && !seen.has(top); top = above(top)) seen.add(top);
    put(top, 0);
  }
  return [...levels];
}

/** The rows of the timeline from the top. A place with nothing to show is left out; a collapsed place (such as `p3`) shows
 * its outermost spans, and a collapsed node (such as `n0`) nothing.
 * @param {Pick<Store, "meta" | "begins" | "first" | "deepest">} store @param {(Queue | null)[]} queues @param {Set<string>} collapsed @param {[place: number, level: number][]} order
 * @returns {{ rows: Row[], height: number, hiddenPlaces: number }} */
export function layOut({ meta, begins, first, deepest }, queues, collapsed, order = [...meta.places.keys()].map((place) => [place, 0])) {
  /** @type {Row[]} */
  const rows = [];
  let y = 0, node = -1, hiddenPlaces = 0;
  /** @type {number[][]} */
  const lanesOf = meta.places.map(() => []);
  meta.lanes.forEach((place, lane) => lanesOf[place].push(lane));
  order.forEach(([index, level]) => {
    const place = meta.places[index];
    const lanes = lanesOf[index];
    if (lanes.every((lane) => begins[first[lane]] === begins[first[lane + 1]])) {
      hiddenPlaces += lanes.length > 0 ? 1 : 0;
      return;
    }
    if (place.node !== node) {
      node = place.node;
      rows.push({ kind: "node", y, height: NODE_HEIGHT, node });
      y += NODE_HEIGHT;
    }
    if (collapsed.has("n" + node)) return;
    const isCollapsed = collapsed.has("p" + index), top = y;
    /** @type {Row[]} */
    const inside = [];
    /** @param {QueueRow | BarsRow} row */
    const put = (row) => {
      inside.push(row);
      y += row.height + ROW_GAP;
    };
    if (isCollapsed) {
      for (const lane of lanes) if (deepest[lane]) inside.push({ kind: "bars", y, height: COLLAPSED_HEIGHT, sub: first[lane], place: index });
      y += COLLAPSED_HEIGHT + ROW_GAP;
    } else {
      if (queues[index]) put({ kind: "queue", y, height: QUEUE_HEIGHT, place: index });
      for (const lane of lanes) {
        for (let sub = first[lane]; sub < first[lane] + deepest[lane]; sub++) {
          if (begins[sub] !== begins[sub + 1]) put({ kind: "bars", y, height: ROW, sub, place: index });
        }
      }
    }
    // The label of a worker needs two lines.
    y = Math.max(y, top + (isCollapsed ? COLLAPSED_LABEL_HEIGHT : LABEL_HEIGHT));
    rows.push({ kind: "place", y: top, height: y - top, place: index, isCollapsed, level }, ...inside);
    y += PLACE_GAP;
  });
  return { rows, height: y + MARGIN, hiddenPlaces };
}

/** The arrows of one call: from its submission, to the calls it makes, for the data it takes and returns, and to its waits.
 * Each connects a span at a time to another one; the arrow to a wait points to the end of the wait.
 * @param {Store} store @param {number} row
 * @returns {{ from: number, fromTime: number, to: number, toTime: number, isWait: boolean }[]} */
export function arrowsOf(store, row) {
  /** @type {ReturnType<typeof arrowsOf>} */
  const found = [];
  /** @param {number} execution */
  const submitted = (execution) => {
    const from = store.submission[execution];
    if (from >= 0) found.push({ from, fromTime: store.endOf(from), to: execution, toTime: store.start[execution], isWait: false });
  };
  submitted(row);
  let made = 0;
  for (const child of store.children(row)) {
    if (store.submission[child] === row) submitted(child);
    for (const grandchild of store.is(child, "submission") && made < 200 ? store.children(child) : []) {
      if (store.submission[grandchild] !== child) continue;
      made++;
      submitted(grandchild);
    }
  }
  const own = store.submission[row];
  for (const [from, to, kind] of store.edges) {
    if (found.length >= MOST_ARROWS) break;
    if (from !== row && to !== row && to !== own && from !== own) continue;
    const isWait = kind === WAIT;
    found.push({ from, fromTime: store.endOf(from), to, toTime: isWait ? store.endOf(to) : store.start[to], isWait });
  }
  return found;
}
