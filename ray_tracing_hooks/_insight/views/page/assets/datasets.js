// Datasets of Ray Data: for each execution its operators as a graph, what each did over time, and what iterations waited for.

import { FIGURES, TITLE, View, el, emptied, fitted, inNextFrame, numberColumn, placeIn, shareColumn, sortedTable, svg, textColumn, timeColumn, widthOf } from "./dom.js";
import { byteSize, counted, duration, number, percent, safe, shortened } from "./format.js";
import { METRICS, OPERATOR_HEIGHT, OPERATOR_WIDTH, TRACK_GUTTER, causeText, connection, layOutPipeline, perSecond, trackTip, tracks } from "./tracks.js";

/** @typedef {import("./tracks.js").Metric} Metric */

const LEAST_HELD = 0.02, SMALLEST = 0.8;
const STAGES = ["production", "transfer", "batching", "format", "collate", "finalize"];

export class Datasets extends View {
  /** @param {Store} store @param {Colours} colours @param {App} app */
  constructor(store, colours, app) {
    super(store, colours, app);
    this.executions = store.meta.datasets.executions;
    /** The index of the execution that is shown, at first the longest. */
    this.shown = this.executions.reduce((most, each, n) => (each.ns > this.executions[most].ns ? n : most), 0);
    /** @type {Metric} */
    this.metric = "running";
    this.choice = el("select", { "aria-label": "Execution", onchange: () => this.choose(Number(this.choice.value)) },
      this.executions.map((each, n) => el("option", { value: n }, `${n + 1}. ${safe(titleOf(each))}, ${duration(each.ns)}`)));
    this.metrics = METRICS.map(([key, label]) => el("button", { type: "button", "data-metric": key, "aria-pressed": "false", onclick: () => this.measure(key) }, label));
    this.zoom = el("button", { type: "button", title: "Show the time of this execution in all views", onclick: () => this.zoomIn() }, "Zoom to it");
    this.note = el("p", { class: "note" });
    this.graph = el("div", { class: "pipeline graph", tabindex: 0, "aria-label": "Graph of operators. The table below has the same figures." });
    this.plot = el("div", { class: "plot" });
    this.tables = el("div", { class: "pipelinetables" });
    this.body = el("div", { class: "scroller", tabindex: 0 }, this.graph, el("p", { class: "note graphnote" }, "Bars: the share of each operator in the time of all tasks."),
      el("div", { class: "plothead" }, el("h2", {}, "Over time"), el("div", { class: "segments", role: "group", "aria-label": "What the areas show" }, this.metrics), legend()), this.plot, this.tables);
    this.root = el("div", { class: "view datasets" }, el("div", { class: "viewbar" }, this.choice, this.zoom, this.note), this.body);
    this.plot.addEventListener("pointermove", (event) => this.hover(event));
    this.plot.addEventListener("pointerleave", () => app.hideTip());
    this.plot.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey && !event.altKey) return;
      event.preventDefault();
      store.zoom(Math.exp(event.deltaY * 0.002), this.timeAt(event));
    }, { passive: false });
    this.stale = true;
    this.redraw = inNextFrame(() => this.root.hidden, () => this.draw());
  }

  /** @returns {Dataset | undefined} */
  get dataset() {
    return this.executions[this.shown];
  }

  /** Show another execution; one that does not exist changes nothing.
   * @param {number} n */
  choose(n) {
    if (!this.executions[n]) return;
    this.shown = n;
    this.stale = true;
    this.app.writeHash();
    this.redraw();
  }

  /** @param {Metric} metric */
  measure(metric) {
    this.metric = metric;
    this.redraw();
  }

  zoomIn() {
    const { dataset } = this;
    if (dataset) this.store.setRange(dataset.start, dataset.start + dataset.ns);
  }

  draw() {
    const { store, dataset } = this;
    this.choice.value = String(this.shown);
    for (const button of this.metrics) button.setAttribute("aria-pressed", String(button.dataset.metric === this.metric));
    this.choice.hidden = this.zoom.hidden = !dataset;
    const { left_out: leftOut } = store.meta.datasets;
    this.note.textContent = (dataset ? told(dataset) : "No execution of a dataset is recorded, only iterations.")
      + (leftOut ? ` ${counted(leftOut, "shorter execution")} left out.` : "");
    if (dataset) {
      this.drawGraph(dataset);
      emptied(this.plot, tracks({ dataset, range: store.range, width: this.plot.clientWidth, metric: this.metric, chosen: store.chosenRow, select: (operator) => this.select(operator.span) }));
    }
    if (this.stale) this.fillTables();
    this.stale = false;
  }

  /** @param {Dataset} dataset */
  drawGraph(dataset) {
    const { boxes, edges, size: [width, height] } = layOutPipeline(dataset.operators);
    const scale = Math.max(SMALLEST, Math.min(1, this.graph.clientWidth / width));
    const arrow = svg("marker", { id: "arrow-blocks", viewBox: "0 0 8 8", refX: 1, refY: 4, markerWidth: 8, markerHeight: 8, markerUnits: "userSpaceOnUse", orient: "auto" }, svg("path", { d: "M0,0 L8,4 L0,8 z", class: "tip" }));
    const lines = edges.map(([from, to]) => {
      const { shape, x, y } = connection(boxes[from], boxes[to]);
      const { rows } = dataset.operators[from];
      return [svg("path", { d: shape, "marker-end": "url(#arrow-blocks)" }), rows === null ? null : svg("text", { x, y, "text-anchor": "middle" }, counted(rows, "row"))];
    });
    emptied(this.graph, svg("svg", { width: width * scale, height: height * scale, viewBox: `0 0 ${width} ${height}`, role: "group" }, svg("defs", {}, arrow),
      svg("g", { class: "edge still" }, lines.flat()), boxes.map((box) => this.box(dataset, dataset.operators[box.id], box.x, box.y))));
  }

  /** @param {Dataset} dataset @param {DatasetOperator} operator @param {number} x @param {number} y */
  box(dataset, operator, x, y) {
    const { store } = this;
    const isLimit = dataset.limited_by?.operator === operator.id;
    const badge = isLimit ? (dataset.limited_by?.kind === "memory" ? "held back" : "limits") : operator.is_running ? "running" : "";
    const badgeWidth = badge ? widthOf(badge, FIGURES) + 14 : 0;
    const isChosen = operator.span >= 0 && operator.span === store.chosenRow;
    const share = workShare(operator, dataset);
    const about = {
      class: `operator${isLimit ? " limit" : ""}${isChosen ? " chosen" : ""}`, transform: `translate(${x},${y})`, role: "button", tabindex: 0, "aria-pressed": String(isChosen),
      onclick: () => this.select(operator.span),
      onkeydown: (/** @type {KeyboardEvent} */ event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        this.select(operator.span);
      },
    };
    return svg("g", about, svg("title", {}, [safe(operator.name), ...linesOf(operator, dataset), `${percent(share)} of the time of all tasks`].filter(Boolean).join("\n")),
      svg("rect", { class: "outline", width: OPERATOR_WIDTH, height: OPERATOR_HEIGHT, rx: 7 }),
      svg("text", { class: "title", x: 12, y: 20 }, fitted(safe(operator.name), OPERATOR_WIDTH - 24 - badgeWidth, TITLE)),
      badge ? svg("rect", { class: "pill", x: OPERATOR_WIDTH - badgeWidth - 8, y: 8, width: badgeWidth, height: 17, rx: 8 }) : null,
      badge ? svg("text", { class: "pilltext", x: OPERATOR_WIDTH - 8 - badgeWidth / 2, y: 20, "text-anchor": "middle" }, badge) : null,
      linesOf(operator, dataset).map((line, n) => svg("text", { class: n === 3 ? "heldtext" : "soft", x: 12, y: 39 + n * 16 }, fitted(line, OPERATOR_WIDTH - 24, FIGURES))),
      svg("rect", { class: "trough", x: 0.5, y: OPERATOR_HEIGHT - 6, width: OPERATOR_WIDTH - 1, height: 5 }),
      svg("rect", { class: "share", x: 0.5, y: OPERATOR_HEIGHT - 6, width: (OPERATOR_WIDTH - 1) * share, height: 5 }));
  }

  /** @param {MouseEvent} event */
  hover(event) {
    const { store, dataset, app } = this;
    const lines = dataset && trackTip(dataset, store.range, this.plot.clientWidth, ...placeIn(event, this.plot));
    if (lines) app.tip(event, lines);
    else app.hideTip();
  }

  /** @param {MouseEvent} event */
  timeAt(event) {
    const [from, to] = this.store.range;
    const [x] = placeIn(event, this.plot);
    return from + (Math.max(0, x - TRACK_GUTTER) / Math.max(50, this.plot.clientWidth - TRACK_GUTTER - 1)) * (to - from);
  }

  /** @param {number} row */
  select(row) {
    if (row >= 0) this.app.selectSpan(row, false);
    else this.app.say("The page does not hold that span");
  }

  fillTables() {
    const { dataset } = this;
    emptied(this.tables, dataset ? this.operators(dataset) : null, this.iterations());
  }

  /** @param {Dataset} dataset */
  operators(dataset) {
    /** @param {number | null} n */
    const orEmpty = (n) => (n === null ? "" : number(n));
    return sortedTable({
      rows: dataset.operators.map((operator, place) => ({ ...operator, place })), caption: "Operators", kind: "operators", first: 0, columns: [
        textColumn("Operator", (each) => each.place, (each) => this.link(each.span, each.name)),
        numberColumn("Tasks", (each) => each.tasks, (each) => (each.tasks_recorded < each.tasks ? `${number(each.tasks)} (${number(each.tasks_recorded)} with spans)` : number(each.tasks))),
        numberColumn("Rows in", (each) => each.input_rows ?? -1, (each) => orEmpty(each.input_rows)),
        numberColumn("Rows", (each) => each.rows ?? -1, (each) => orEmpty(each.rows)),
        numberColumn("Size", (each) => each.bytes ?? -1, (each) => (each.bytes === null ? "" : byteSize(each.bytes))),
        numberColumn("Blocks", (each) => each.blocks ?? -1, (each) => orEmpty(each.blocks)),
        numberColumn("Rows/s", (each) => each.rows_per_second ?? -1, (each) => (each.rows_per_second === null ? "" : perSecond(each.rows_per_second))),
        numberColumn("At once", (each) => each.parallelism, (each) => atOnce(each), "Tasks that ran at the same time, on average, and how many may"),
        numberColumn("Queue", (each) => each.longest_queue, (each) => number(each.longest_queue), "The most blocks that waited for it"),
        timeColumn("Took", (each) => each.ns),
        timeColumn("Held back", (each) => each.held_back[0]?.ns ?? null, "By what held it back longest, while it had something to do"),
        textColumn("By", (each) => each.held_back[0]?.resource ?? "", (each) => (each.held_back[0] ? safe(causeText(each.held_back[0])) : "")),
      ],
    });
  }

  iterations() {
    const rows = this.store.meta.datasets.iterations;
    if (!rows.length) return null;
    const stages = STAGES.filter((stage) => rows.some((each) => each.stages_ns[stage]));
    return sortedTable({
      rows, caption: "Iterations: what the program waited for", kind: "iterations", first: 4, most: 200, columns: [
        textColumn("Method", (each) => each.start, (each) => this.link(each.span, each.method)),
        textColumn("Epoch", (each) => each.epoch ?? -1, (each) => (each.epoch === null ? "" : `${each.epoch}${each.split === null ? "" : `, split ${each.split}`}`)),
        numberColumn("Batches", (each) => each.batches), numberColumn("Rows", (each) => each.rows),
        timeColumn("Waited", (each) => each.waited_ns), shareColumn("Of its time", (each) => each.waiting_share ?? 0), timeColumn("First batch", (each) => each.first_batch_ns),
        ...stages.map((stage) => timeColumn(stage[0].toUpperCase() + stage.slice(1), (/** @type {DatasetIteration} */ each) => each.stages_ns[stage] || null, "Part of the wait; parts may overlap")),
      ],
    });
  }

  /** @param {number} row @param {string} label */
  link(row, label) {
    const text = shortened(safe(label), 70);
    return row >= 0 ? el("button", { type: "button", class: "link", onclick: () => this.select(row) }, text) : text;
  }

  /** @param {Change} what */
  update(what) {
    if (what === "range" || what === "selection") this.redraw();
  }
}

/** @param {Dataset} dataset */
function titleOf({ name, consumer }) {
  return [name === "dataset" ? "" : name, consumer].filter(Boolean).join(", ") || name;
}

/** An execution in a sentence.
 * @param {Dataset} dataset */
function told(dataset) {
  const { outcome, is_running: isRunning, ns, rows, bytes, spilled_bytes: spilled, limited_by: limit } = dataset;
  const parts = [`${isRunning ? "running" : outcome || "interrupted"} after ${duration(ns)}`, rows === null ? "" : counted(rows, "row"), bytes ? byteSize(bytes) : "", spilled ? `${byteSize(spilled)} spilled` : ""];
  return parts.filter(Boolean).join(", ") + (limit ? `. ${limitText(dataset, limit)}` : ".");
}

/** @param {Dataset} dataset @param {NonNullable<Dataset["limited_by"]>} limit */
function limitText({ operators }, { kind, operator, share }) {
  const name = shortened(safe(operators.find(({ id }) => id === operator)?.name ?? ""), 60);
  if (kind === "operator") return `Limited by ${name}, whose slots were busy ${percent(share)} of the time it worked.`;
  if (kind === "memory") return `Limited by memory, which held ${name} back ${percent(share)} of the time.`;
  if (kind === "consumer") return `Limited by its consumer, which did something else ${percent(share)} of the time.`;
  return `Limited by the processors: its tasks held ${percent(share)} of them.`;
}

/** The figures in the box of an operator.
 * @param {DatasetOperator} operator @param {Dataset} dataset */
function linesOf(operator, dataset) {
  const { rows, bytes, blocks, rows_per_second: rate, mean_queue: mean, longest_queue: most, tasks, held_back: [held] } = operator;
  const made = [rows === null ? "" : counted(rows, "row"), bytes ? byteSize(bytes) : "", blocks === null ? "" : counted(blocks, "block")];
  const work = [rate === null ? "" : `${perSecond(rate)} rows/s`, tasks ? `${counted(tasks, "task")}${operator.busy_ns ? `, ${atOnce(operator)} at once` : ""}` : ""];
  return [
    made.filter(Boolean).join(" · ") || "nothing handed on yet",
    work.filter(Boolean).join(" · ") || " ",
    most ? `queue: ${mean < 9.95 ? mean.toFixed(1) : number(Math.round(mean))}, at most ${counted(most, "block")}` : "no queue",
    held && held.ns >= LEAST_HELD * dataset.ns ? `held back ${duration(held.ns)}: ${safe(held.resource || held.policy)}` : "",
  ];
}

/** @param {DatasetOperator} operator */
function atOnce({ parallelism, slots }) {
  return `${parallelism.toFixed(1)}${slots ? ` of ${number(slots)}` : ""}`;
}

/** The share of an operator in the time of all tasks.
 * @param {DatasetOperator} operator @param {Dataset} dataset */
function workShare({ busy_ns: busy }, { operators }) {
  return busy / Math.max(1, operators.reduce((sum, { busy_ns: each }) => sum + each, 0));
}

function legend() {
  return el("ul", { class: "legend" }, [["memory", "held back by memory"], ["processors", "by processors"], ["limit", "by another limit"]].map(([key, label]) =>
    el("li", { class: "soft" }, el("span", { class: `sign heldsign ${key}`, "aria-hidden": "true" }), label)));
}
