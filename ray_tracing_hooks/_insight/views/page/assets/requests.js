// Requests to Ray Serve: how long they took, what that time went to, and how the methods of deployments did.

import { View, el, emptied, numberColumn, shareColumn, sortedTable, textColumn, timeColumn } from "./dom.js";
import { counted, duration, number, safe, shortened } from "./format.js";

export class Requests extends View {
  /** @param {Store} store @param {Colours} colours @param {App} app */
  constructor(store, colours, app) {
    super(store, colours, app);
    this.note = el("p", { class: "note" });
    this.tables = el("div", { class: "pipelinetables" });
    this.root = el("div", { class: "view requests" }, el("div", { class: "viewbar" }, this.note), el("div", { class: "scroller", tabindex: 0 }, this.tables));
    this.fill();
  }

  fill() {
    const { requests } = this.store.meta;
    if (!requests) return;
    this.note.textContent = told(requests);
    emptied(this.tables, partsOf(requests), this.routes(requests), requests.first_chunks.map((each) => this.firstChunks(each)), this.generations(requests), this.methods(requests));
  }

  /** @param {ServeRequests} requests */
  routes({ routes }) {
    return sortedTable({
      rows: routes, caption: "Requests", kind: "routes", first: 1, columns: [
        textColumn("Request", (each) => each.name, (each) => safe(each.name) + (each.is_handle ? ", by handle" : "")),
        numberColumn("Count", (each) => each.count),
        numberColumn("Failed", (each) => each.failed, (each) => (each.failed ? number(each.failed) : "")),
        timeColumn("Median", (each) => each.p50), timeColumn("P95", (each) => each.p95), timeColumn("P99", (each) => each.p99), timeColumn("Max", (each) => each.p100),
        textColumn("Example", (each) => each.slowest, (each) => this.link(each.slowest, "the slowest")),
      ],
    });
  }

  /** @param {ServeRequests} requests */
  methods({ methods }) {
    const batched = methods.some((each) => each.batches);
    return sortedTable({
      rows: methods, caption: "Methods of deployments", kind: "methods", first: 1, columns: [
        textColumn("Method", (each) => each.name, (each) => safe(each.name)),
        numberColumn("Ran", (each) => each.executions, (each) => (each.executions ? number(each.executions) : "")),
        numberColumn("Failed", (each) => each.failed, (each) => (each.failed ? number(each.failed) : "")),
        timeColumn("Waited", (each) => each.waited_p50, "From the call until it began in a replica: the median"), timeColumn("P95", (each) => each.waited_p95),
        timeColumn("Ran for", (each) => each.ran_p50, "The median"), timeColumn("P95", (each) => each.ran_p95),
        numberColumn("Replicas", (each) => each.replicas, (each) => (each.replicas ? number(each.replicas) : "")),
        ...(batched ? [numberColumn("Batches", (/** @type {RequestMethod} */ each) => each.batches, (each) => (each.batches ? number(each.batches) : "")), timeColumn("Of", (/** @type {RequestMethod} */ each) => each.batch_p50, "The median")] : []),
        textColumn("Example", (each) => each.longest, (each) => this.link(each.longest, "the longest wait")),
      ],
    });
  }

  /** @param {FirstChunks} chunks */
  firstChunks({ name, model, count, slow, slowest, parts, p50, p95 }) {
    const of = `${safe(name)}${model && !name.endsWith(model) ? `, ${safe(model)}` : ""}`;
    const table = sortedTable({
      rows: parts.map((part, place) => ({ ...part, place })), caption: `Time to the first chunk of ${counted(count, "streamed request")} to ${of}: median ${duration(p50 ?? 0)}, p95 ${duration(p95 ?? 0)}`, kind: "firstchunks", first: 0, columns: [
        textColumn("Part", (each) => each.place, (each) => each.about),
        shareColumn("All", (each) => each.share),
        ...(slow ? [shareColumn("Slowest 5 %", (/** @type {FirstPart} */ each) => each.slow_share)] : []),
        timeColumn("Median", (each) => each.p50),
      ],
    });
    return el("div", {}, table, this.link(slowest, "the slowest"));
  }

  /** @param {ServeRequests} requests */
  generations({ generations }) {
    return generations.length ? sortedTable({
      rows: generations, caption: "Generations of LLM engines", kind: "generations", first: 1, columns: [
        textColumn("Model", (each) => each.model, (each) => safe(each.model || "(unknown)") + (each.replica ? ` in ${safe(each.replica)}` : "")),
        numberColumn("Count", (each) => each.count),
        numberColumn("Failed", (each) => each.failed, (each) => (each.failed ? number(each.failed) : "")),
        numberColumn("Aborted", (each) => each.aborted, (each) => (each.aborted ? number(each.aborted) : "")),
        numberColumn("Tokens in", (each) => each.input), numberColumn("Cached", (each) => each.cached), numberColumn("Out", (each) => each.output),
        timeColumn("First token", (each) => each.first_p50, "The median"), timeColumn("P95", (each) => each.first_p95),
        timeColumn("Each token", (each) => each.each_p50, "After the first one: the median"), timeColumn("P95", (each) => each.each_p95),
        timeColumn("Queue P95", (each) => each.queue_p95),
      ],
    }) : "";
  }

  /** @param {number} row @param {string} label */
  link(row, label) {
    return row >= 0 ? el("button", { type: "button", class: "link", onclick: () => this.app.selectSpan(row, false) }, shortened(label, 70)) : "";
  }
}

/** The parts of the time of requests, as a table of at most as many rows.
 * @param {ServeRequests} requests @param {number} [most] */
export function partsOf({ parts, slow, count }, most) {
  return sortedTable({
    rows: parts, most, caption: "Where the time of requests went: what each waited for, back from its end", kind: "parts", first: 1, columns: [
      textColumn("Part", (each) => each.about, (each) => safe(each.about)),
      shareColumn("All", (each) => each.share),
      ...(slow ? [shareColumn("Slowest 5 %", (/** @type {RequestPart} */ each) => each.slow_share)] : []),
      timeColumn("Each, on average", (each) => each.ns / Math.max(1, count)),
    ],
  });
}

/** @param {ServeRequests} requests */
function told({ count, failed, running, unrecorded, ns, left_out: leftOut }) {
  const parts = [`${counted(count, "request")} to Ray Serve in ${duration(ns)} altogether`, failed ? `${number(failed)} failed` : "", running ? `${number(running)} that have not ended` : "", unrecorded ? `${number(unrecorded)} whose end is not recorded` : ""];
  return `${parts.filter(Boolean).join(", ")}.${leftOut ? ` ${counted(leftOut, "row")} of the tables with less time left out.` : ""}`;
}
