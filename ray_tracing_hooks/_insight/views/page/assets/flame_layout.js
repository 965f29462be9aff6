// The layout of the flame graph: the width of each frame is its own time plus that of all frames below it.

/** How the graph is drawn: `zoomed` is the frame that fills it, -1 for none.
 * @typedef {{ mode: "wall" | "summed", order: "size" | "time", zoomed: number }} Look */
/** For each frame its value in nanoseconds, its left edge and size as shares of the width, and its level. `levels` has the
 * frames that are drawn; those above `firstLevel` are the ancestors of the zoomed frame, with its width.
 * @typedef {{ value: Float64Array, left: Float64Array, size: Float64Array, depth: Uint32Array, levels: number[][], total: number, firstLevel: number }} Frames */

/** Below frames narrower than this share of the width, nothing is drawn. */
const NARROWEST = 1 / 4000;

/** @param {Numbers} parent @returns {{ children: number[][], roots: number[] }} */
export function tree(parent) {
  /** @type {number[][]} */
  const children = Array.from({ length: parent.length }, () => []);
  /** @type {number[]} */
  const roots = [];
  for (let id = 0; id < parent.length; id++) (parent[id] < 0 ? roots : children[parent[id]]).push(id);
  return { children, roots };
}

/** @param {Pick<FlameMeta, "parent" | "first" | "wait">} flame @param {Pick<StackFigures, "own" | "share">} figures @param {Look} look @returns {Frames} */
export function layOut({ parent, first, wait }, { own, share }, { mode, order, zoomed }) {
  const count = parent.length;
  const { children, roots } = tree(parent);
  const value = mode === "wall" ? Float64Array.from(share) : Float64Array.from(own, (ns, id) => (wait[id] ? 0 : ns));
  for (let id = count - 1; id >= 0; id--) if (parent[id] >= 0) value[parent[id]] += value[id];
  const left = new Float64Array(count), size = new Float64Array(count), depth = new Uint32Array(count);
  /** @param {number} a @param {number} b */
  const by = (a, b) => (order === "size" ? wait[a] - wait[b] || value[b] - value[a] : first[a] - first[b]);
  /** @type {number[][]} */
  const levels = [];
  /** @type {number[]} */
  const pending = [];
  /** @param {number} id @param {number} x @param {number} width @param {number} level */
  const put = (id, x, width, level) => {
    left[id] = x;
    size[id] = width;
    depth[id] = level;
    (levels[level] ||= []).push(id);
  };
  /** @param {number[]} ids @param {number} from @param {number} scale @param {number} level */
  const beside = (ids, from, scale, level) => {
    let x = from;
    for (const id of [...ids].sort(by)) {
      const width = value[id] * scale;
      if (width > 0) put(id, x, width, level);
      if (width > NARROWEST) pending.push(id);
      x += width;
    }
  };
  const above = [];
  for (let id = zoomed >= 0 ? parent[zoomed] : -1; id >= 0; id = parent[id]) above.unshift(id);
  above.forEach((id, level) => put(id, 0, 1, level));
  const all = zoomed >= 0 ? [zoomed] : roots;
  const total = all.reduce((sum, id) => sum + value[id], 0) || 1;
  beside(all, 0, 1 / total, above.length);
  for (let id = pending.pop(); id !== undefined; id = pending.pop()) beside(children[id], left[id], size[id] / (value[id] || 1), depth[id] + 1);
  return { value, left, size, depth, levels, total, firstLevel: above.length };
}

/** The frame that an arrow key leads to from a frame, or from none (-1): the parent, the largest child, or a neighbour.
 * @param {string} key @param {number} id @param {Pick<FlameMeta, "parent">} flame @param {Frames} frames */
export function neighbour(key, id, { parent }, { left, size, depth, levels }) {
  if (key === "ArrowUp") return id >= 0 ? parent[id] : -1;
  if (key === "ArrowDown") {
    const { children, roots } = tree(parent);
    return (id < 0 ? roots : children[id]).reduce((best, each) => (size[each] > 0 && (best < 0 || size[each] > size[best]) ? each : best), -1);
  }
  if (id < 0) return -1;
  const row = [...(levels[depth[id]] || [])].sort((a, b) => left[a] - left[b]);
  return row[row.indexOf(id) + (key === "ArrowLeft" ? -1 : 1)] ?? -1;
}
