// The layout of a pipeline of operators: columns by the longest way from a source, so that all edges lead to the right.

export const OPERATOR_WIDTH = 252, OPERATOR_HEIGHT = 106;
const GAP_X = 84, GAP_Y = 22, MARGIN = 14, SWEEPS = 4;

/** @typedef {{ id: number, column: number, x: number, y: number }} OperatorBox */
/** @typedef {{ boxes: OperatorBox[], edges: [from: number, to: number][], size: [number, number] }} PipelineLayout */

/** Boxes by the index of their operator. Inputs that are not among the operators have no box.
 * @param {Pick<DatasetOperator, "id" | "inputs">[]} operators @returns {PipelineLayout} */
export function layOutPipeline(operators) {
  const index = new Map(operators.map(({ id }, n) => [id, n]));
  /** @type {[number, number][]} */
  const edges = operators.flatMap(({ inputs }, to) => inputs.flatMap((input) => {
    const from = index.get(input);
    return from === undefined || from === to ? [] : [/** @type {[number, number]} */ ([from, to])];
  }));
  const boxes = operators.map((_, id) => ({ id, column: 0, x: 0, y: 0 }));
  // As many rounds as operators: an input is in a column before; more rounds would only be needed in a cycle.
  for (let round = 0, moved = true; moved && round < boxes.length; round++) {
    moved = false;
    for (const [from, to] of edges) {
      if (boxes[to].column > boxes[from].column) continue;
      boxes[to].column = boxes[from].column + 1;
      moved = true;
    }
  }
  const columns = Array.from({ length: Math.max(0, ...boxes.map(({ column }) => column + 1)) }, (_, n) => boxes.filter(({ column }) => column === n));
  for (let sweep = 0; sweep < SWEEPS; sweep++) for (const column of columns) stack(column, edges, boxes, columns);
  const tallest = Math.max(0, ...columns.map(({ length }) => length));
  for (const box of boxes) {
    box.x = MARGIN + box.column * (OPERATOR_WIDTH + GAP_X);
    box.y += MARGIN + ((tallest - columns[box.column].length) * (OPERATOR_HEIGHT + GAP_Y)) / 2;
  }
  return { boxes, edges, size: [2 * MARGIN + columns.length * (OPERATOR_WIDTH + GAP_X) - GAP_X, 2 * MARGIN + tallest * (OPERATOR_HEIGHT + GAP_Y) - GAP_Y] };
}

/** Order a column by the mean position of what its boxes are connected to, relative to the height of its column.
 * @param {OperatorBox[]} column @param {[number, number][]} edges @param {OperatorBox[]} boxes @param {OperatorBox[][]} columns */
function stack(column, edges, boxes, columns) {
  /** @param {OperatorBox} box */
  const place = (box) => (columns[box.column].indexOf(box) + 0.5) / columns[box.column].length;
  const wanted = new Map(column.map((box) => {
    const near = edges.filter((edge) => edge.includes(box.id)).map(([from, to]) => boxes[from === box.id ? to : from]);
    return [box, near.length ? near.reduce((sum, other) => sum + place(other), 0) / near.length : place(box)];
  }));
  column.sort((a, b) => (wanted.get(a) ?? 0) - (wanted.get(b) ?? 0));
  column.forEach((box, n) => (box.y = n * (OPERATOR_HEIGHT + GAP_Y)));
}

/** The SVG path of an edge from the right side of one box to the left side of another.
 * @param {OperatorBox} from @param {OperatorBox} to */
export function connection(from, to) {
  const x0 = from.x + OPERATOR_WIDTH, y0 = from.y + OPERATOR_HEIGHT / 2, x1 = to.x - 7, y1 = to.y + OPERATOR_HEIGHT / 2;
  const bend = Math.max(30, (x1 - x0) / 2);
  return { shape: `M${x0},${y0} C${x0 + bend},${y0} ${x1 - bend},${y1} ${x1},${y1}`, x: (x0 + x1) / 2, y: (y0 + y1) / 2 - 7 };
}

/** The moment of a timeline before a time, or the first one; -1 without any.
 * @param {number[]} moments @param {number} time */
export function momentAt(moments, time) {
  let found = moments.length ? 0 : -1;
  while (found >= 0 && found + 1 < moments.length && moments[found + 1] <= time) found++;
  return found;
}

/** How many rows per second the operator handed on between each moment and the one before it.
 * @param {DatasetTimeline} timeline @param {number} began when the operator began, on the clock of the timeline */
export function rates({ ns, rows }, began) {
  return ns.map((at, n) => {
    const since = n ? ns[n - 1] : Math.min(began, at), before = n ? rows[n - 1] : 0;
    return at > since ? (Math.max(0, rows[n] - before) / (at - since)) * 1e9 : 0;
  });
}
