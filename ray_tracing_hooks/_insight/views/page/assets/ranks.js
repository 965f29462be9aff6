// Ranks by steps: a heat map of each attempt of a run of Ray Train, with how long the last rank delayed each step above it.

import { FIGURES, View, el, fitCanvas, fitted, inNextFrame, pen, placeIn } from "./dom.js";
import { counted, duration, number, safe } from "./format.js";

const GUTTER = 230, HEAD = 56, FOOT = 22;
const LEAST_HEIGHT = 7, MOST_HEIGHT = 30, MOST_WIDTH = 48;
/** Labels of ranks and steps are at least so far apart, in pixels. */
const LABEL_HEIGHT = 14, LABEL_WIDTH = 60;

export class Ranks extends View {
  /** @param {Store} store @param {Colours} colours @param {App} app */
  constructor(store, colours, app) {
    super(store, colours, app);
    const { training, trainings } = store.meta;
    // The newest attempt is the one to look at first.
    this.shown = training.length - 1;
    /** @type {Measure} */
    this.measure = "took";
    /** @type {Cell} */
    this.cursor = { rank: 0, column: 0 };
    this.darkest = 0;
    this.canvas = el("canvas", { "aria-hidden": "true" });
    this.stage = el("div", { class: "stage" }, this.canvas);
    this.spacer = el("div", { class: "spacer" });
    this.scroller = el("div", {
      class: "scroller", tabindex: 0, role: "application",
      "aria-label": "Ranks by steps. Arrow keys go from cell to cell, and each is read out. Enter selects its span. The Spans tab has the same spans as a table.",
    }, this.stage, this.spacer);
    this.chooser = el("select", { "aria-label": "Attempt", onchange: () => this.choose(Number(this.chooser.value)) },
      training.map((attempt, n) => el("option", { value: n, selected: n === this.shown }, labelOf(attempt))));
    this.buttons = new Map(/** @type {Measure[]} */ (Object.keys(MEASURES)).map((measure) => [measure,
      el("button", { type: "button", title: MEASURES[measure][1], onclick: () => this.setMeasure(measure) }, MEASURES[measure][0])]));
    this.key = el("span", { class: "heatkey" });
    this.note = el("span", { class: "soft" }, trainings > training.length ? `the latest ${training.length} of ${counted(trainings, "attempt")}` : "");
    const bar = el("div", { class: "viewbar" }, this.chooser, el("div", { class: "segments", role: "group", "aria-label": "Measure" }, [...this.buttons.values()]), this.key, this.note);
    this.root = el("div", { class: "view ranks" }, bar, this.scroller);
    this.redraw = inNextFrame(() => this.root.hidden || !this.attempt, () => this.draw());
    this.listen();
    this.setMeasure(this.measure);
  }

  get attempt() {
    return this.store.meta.training[this.shown];
  }

  /** @param {number} shown */
  choose(shown) {
    this.shown = shown;
    this.cursor = { rank: 0, column: 0 };
    this.setMeasure(this.measure);
  }

  /** @param {Measure} measure */
  setMeasure(measure) {
    this.measure = measure;
    for (const [each, button] of this.buttons) button.setAttribute("aria-pressed", String(each === measure));
    if (!this.attempt) return;
    this.darkest = darkest(this.attempt, measure);
    this.key.replaceChildren(el("span", {}, "0"), el("span", { class: "ramp", "aria-hidden": "true" }), el("span", {}, `${duration(this.darkest)} or more`));
    this.resize();
  }

  // --- Layout ---

  get rowHeight() {
    const room = this.scroller.clientHeight - HEAD - FOOT;
    return Math.max(LEAST_HEIGHT, Math.min(MOST_HEIGHT, Math.floor(room / this.attempt.ranks.length)));
  }

  get columnWidth() {
    return Math.min(MOST_WIDTH, (this.scroller.clientWidth - GUTTER - 14) / this.attempt.delays.length);
  }

  resize() {
    const { clientWidth: width, clientHeight: height } = this.scroller;
    if (!width || !height || !this.attempt) return;
    fitCanvas(this.canvas, width, height, window.devicePixelRatio || 1);
    this.stage.style.height = height + "px";
    this.spacer.style.height = Math.max(0, HEAD + FOOT + this.attempt.ranks.length * this.rowHeight - height) + "px";
    this.redraw();
  }

  /** The cell at a position, or null.
   * @param {number} x @param {number} y @returns {Cell | null} */
  at(x, y) {
    const column = Math.floor((x - GUTTER) / this.columnWidth), rank = Math.floor((y - HEAD + this.scroller.scrollTop) / this.rowHeight);
    const isInside = x >= GUTTER && y >= HEAD && column < this.attempt.delays.length && rank < this.attempt.ranks.length;
    return isInside ? { rank, column } : null;
  }

  // --- Drawing ---

  draw() {
    const { canvas, colours, attempt, scroller } = this;
    const ratio = window.devicePixelRatio || 1, { clientWidth: width, clientHeight: height, scrollTop } = scroller;
    const context = pen(canvas, { alpha: false });
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.fillStyle = colours.surface;
    context.fillRect(0, 0, width, height);
    context.font = FIGURES;
    context.textBaseline = "middle";
    const { rowHeight } = this;
    const first = Math.floor(scrollTop / rowHeight), last = Math.min(attempt.ranks.length, first + Math.ceil((height - HEAD) / rowHeight) + 1);
    for (let rank = first; rank < last; rank++) this.drawRank(context, rank, HEAD + rank * rowHeight - scrollTop);
    this.drawSteps(context, HEAD + attempt.ranks.length * rowHeight - scrollTop);
    this.drawMarks(context, HEAD - scrollTop);
    this.drawHead(context, width);
  }

  /** @param {CanvasRenderingContext2D} context @param {number} rank @param {number} y */
  drawRank(context, rank, y) {
    const { attempt, colours, columnWidth, rowHeight } = this;
    const gap = Math.min(1, columnWidth / 4, rowHeight / 8);
    for (let column = 0; column < attempt.delays.length; column++) {
      const value = valueOf(attempt, this.measure, { rank, column });
      const x = GUTTER + column * columnWidth, size = Math.max(0.5, columnWidth - gap);
      context.fillStyle = value < 0 ? colours.hatch(context, colours.line) : colours.panel;
      context.fillRect(x, y, size, rowHeight - gap);
      if (value <= 0) continue;
      // Even the least differs from nothing.
      context.globalAlpha = 0.06 + 0.94 * Math.min(1, value / (this.darkest || 1));
      context.fillStyle = colours.path;
      context.fillRect(x, y, size, rowHeight - gap);
      context.globalAlpha = 1;
    }
    if (rank % Math.ceil(LABEL_HEIGHT / rowHeight)) return;
    const { rank: given, node, failed, last } = attempt.ranks[rank];
    context.fillStyle = failed ? colours.failed : colours.ink;
    context.fillText(`${failed ? "✗ " : ""}rank ${given}`, 12, y + rowHeight / 2);
    context.fillStyle = colours.soft;
    context.fillText(fitted(last ? `last at ${number(last)} of ${number(attempt.met)}` : node && `node ${node}`, GUTTER - 110, FIGURES), 98, y + rowHeight / 2);
  }

  /** The numbers of steps, below the cells.
   * @param {CanvasRenderingContext2D} context @param {number} y */
  drawSteps(context, y) {
    const { attempt, colours, columnWidth } = this;
    const every = Math.ceil(LABEL_WIDTH / columnWidth);
    context.fillStyle = colours.soft;
    for (let column = 0; column < attempt.delays.length; column += every) {
      context.fillText(column ? number(column * attempt.size + 1) : "step 1", GUTTER + column * columnWidth, y + FOOT / 2);
    }
  }

  /** The selected span and the cell of the keyboard.
   * @param {CanvasRenderingContext2D} context @param {number} top */
  drawMarks(context, top) {
    const { attempt, colours, columnWidth, cursor, rowHeight, store } = this;
    const chosen = store.chosenRow;
    /** @param {Cell} cell @param {string} colour @param {number} line */
    const outline = ({ rank, column }, colour, line) => {
      context.strokeStyle = colour;
      context.lineWidth = line;
      context.strokeRect(GUTTER + column * columnWidth - 0.5, top + rank * rowHeight - 0.5, Math.max(2, columnWidth), rowHeight);
    };
    if (chosen >= 0) attempt.ranks.forEach(({ rows }, rank) => rows.forEach((row, column) => row === chosen && outline({ rank, column }, colours.ink, 2)));
    if (document.activeElement === this.scroller) outline(cursor, colours.accent, 2);
  }

  /** How much earlier each step would have been over without the last rank to come.
   * @param {CanvasRenderingContext2D} context @param {number} width */
  drawHead(context, width) {
    const { attempt: { delays, met, size }, colours, columnWidth } = this;
    const most = Math.max(...delays), height = HEAD - 12;
    context.fillStyle = colours.surface;
    context.fillRect(0, 0, width, HEAD - 4);
    context.fillStyle = colours.accent;
    delays.forEach((delay, column) => {
      const drawn = most ? (height - 4) * (delay / most) : 0;
      context.fillRect(GUTTER + column * columnWidth, height - drawn, Math.max(1, columnWidth - 1), drawn);
    });
    context.fillStyle = colours.line;
    context.fillRect(GUTTER, height, columnWidth * delays.length, 1);
    context.fillStyle = colours.soft;
    context.fillText("Delay by the last rank", 12, 16);
    context.fillText(met ? `${size > 1 ? `per ${number(size)} steps ` : ""}at most ${duration(1e3 * most)}` : "ranks did not meet", 12, 32);
  }

  // --- Pointer and keyboard ---

  listen() {
    const { app, scroller, stage } = this;
    scroller.addEventListener("scroll", () => this.redraw(), { passive: true });
    scroller.addEventListener("focus", () => this.redraw());
    scroller.addEventListener("blur", () => this.redraw());
    stage.addEventListener("pointermove", (event) => {
      const [x, y] = placeIn(event, stage);
      const cell = this.at(x, y);
      stage.style.cursor = cell ? "pointer" : "default";
      if (cell) app.tip(event, textOf(this.attempt, cell));
      else if (y < HEAD && x >= GUTTER) this.tipOfStep(event, Math.floor((x - GUTTER) / this.columnWidth));
      else app.hideTip();
    });
    stage.addEventListener("pointerleave", () => app.hideTip());
    stage.addEventListener("click", (event) => {
      const cell = this.at(...placeIn(event, stage));
      if (!cell) return this.store.select(null);
      this.cursor = cell;
      this.select();
    });
    scroller.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const next = cellAfter(this.attempt, this.cursor, event.key);
      const isNew = event.key === "Enter" && this.number >= 0 && this.store.chosenRow !== this.number;
      if (next) this.move(next);
      else if (isNew) this.select();
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
  }

  /** @param {PointerEvent} event @param {number} column */
  tipOfStep(event, column) {
    const { attempt } = this;
    const delay = attempt.delays[column];
    if (delay === undefined) this.app.hideTip();
    else this.app.tip(event, [stepsOf(attempt, column).replace("s", "S"), `${duration(1e3 * delay)} earlier over without the last rank`]);
  }

  /** The number of the span of the cell, or -1. */
  get number() {
    return this.attempt.ranks[this.cursor.rank].rows[this.cursor.column];
  }

  select() {
    if (this.number >= 0) this.app.selectSpan(this.number, false);
    else this.app.say("The page does not hold this span");
  }

  /** @param {Cell} cell */
  move(cell) {
    const { rowHeight, scroller } = this;
    this.cursor = cell;
    const top = cell.rank * rowHeight, room = scroller.clientHeight - HEAD - FOOT;
    if (top < scroller.scrollTop) scroller.scrollTop = top;
    else if (top + rowHeight > scroller.scrollTop + room) scroller.scrollTop = top + rowHeight - room;
    this.app.say(textOf(this.attempt, cell).join(", "));
    this.redraw();
  }

  /** @param {Change} what */
  update(what) {
    if (what === "selection" || what === "range") this.redraw();
  }
}

/** @typedef {{ rank: number, column: number }} Cell Both are indexes, not numbers of a rank or step. */
/** @typedef {"took" | "waited"} Measure */

/** What can be shown, with the meaning of each for people.
 * @type {Record<Measure, [label: string, about: string]>} */
export const MEASURES = {
  took: ["Own time", "from the end of the rank's step before to the start of this one, without waiting"],
  waited: ["Waiting", "for the last rank to come to the step"],
};

/** The measured value of a cell in nanoseconds, -1 if the rank has no such step.
 * @param {TrainAttempt} attempt @param {Measure} measure @param {Cell} cell */
export function valueOf(attempt, measure, { rank, column }) {
  const { took, waited } = attempt.ranks[rank];
  return took[column] ? 1e3 * (measure === "took" ? took[column] - 1 : waited[column]) : -1;
}

/** The value of the darkest colour. A first step that takes long would leave all others pale, so greater values share its colour.
 * @param {TrainAttempt} attempt @param {Measure} measure */
export function darkest(attempt, measure) {
  /** @type {number[]} */
  const values = [];
  for (let rank = 0; rank < attempt.ranks.length; rank++) {
    for (let column = 0; column < attempt.delays.length; column++) {
      const value = valueOf(attempt, measure, { rank, column });
      if (value >= 0) values.push(value);
    }
  }
  values.sort((a, b) => a - b);
  /** @param {number} share */
  const at = (share) => values[Math.min(values.length - 1, Math.floor(share * values.length))] ?? 0;
  const usual = Math.max(3 * at(0.5), at(0.9)), most = at(0.99);
  return usual ? Math.min(usual, most) : most;
}

/** The steps of a column.
 * @param {TrainAttempt} attempt @param {number} column */
export function stepsOf({ size, steps }, column) {
  const first = column * size + 1, last = Math.min(steps, first + size - 1);
  return first === last ? `step ${number(first)}` : `steps ${number(first)} – ${number(last)}`;
}

/** The text about a cell, for the tooltip and for screen readers.
 * @param {TrainAttempt} attempt @param {Cell} cell */
export function textOf(attempt, cell) {
  const { rank, node } = attempt.ranks[cell.rank];
  const most = attempt.size > 1 ? " at most" : "";
  const took = valueOf(attempt, "took", cell);
  return [
    `Rank ${rank}, ${stepsOf(attempt, cell.column)}`, took < 0 ? "no such step" : `own time ${duration(took)}${most}`,
    took < 0 ? null : `waited ${duration(valueOf(attempt, "waited", cell))}${most} for others`, node ? `node ${safe(node)}` : null,
  ].filter((line) => line !== null);
}

/** The label of an attempt.
 * @param {TrainAttempt} attempt */
export function labelOf({ run, attempt, failed, world, steps }) {
  return `${safe(run)}, attempt ${attempt}${failed ? " ✗" : ""}: ${counted(world, "rank")}, ${counted(steps, "step")}`;
}

/** The cell that a key leads to, or null for another key. Rows and columns end at their edges.
 * @param {TrainAttempt} attempt @param {Cell} here @param {string} key @returns {Cell | null} */
export function cellAfter(attempt, { rank, column }, key) {
  const last = attempt.delays.length - 1;
  /** @type {Record<string, Cell>} */
  const next = {
    ArrowLeft: { rank, column: Math.max(0, column - 1) }, ArrowRight: { rank, column: Math.min(last, column + 1) },
    ArrowUp: { rank: Math.max(0, rank - 1), column }, ArrowDown: { rank: Math.min(attempt.ranks.length - 1, rank + 1), column },
    Home: { rank, column: 0 }, End: { rank, column: last },
  };
  return Object.hasOwn(next, key) ? next[key] : null;
}
