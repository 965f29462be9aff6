// The layout of the call graph: boxes are in columns by distance from a driver, and in a column close to the boxes that they
// are connected to. Labels of edges are placed so that they do not overlap.

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
