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
    emptied(this.tables, partsOf(requests), this.routes(requests), (requests.generations?.first_chunks ?? []).map((each) => this.firstChunks(each)), this.generations(requests), this.methods(requests));
  }

  /** @param {ServeRequests} requests */
  routes({ routes }) {
    return sortedTable({
      rows: routes, caption: "Requests", kind: "routes", first: 1, columns: [
        textColumn("Request", (each) => each.label, (each) => safe(each.label) + (each.is_handle ? ", by handle" : "")),
        numberColumn("Count", (each) => each.count),
        numberColumn("Failed", (each) => each.failed, (each) => (each.failed ? number(each.failed) : "")),
        percentile("Median", (each) => each.duration, "median_ns"), percentile("P95", (each) => each.duration, "p95_ns"), percentile("P99", (each) => each.duration, "p99_ns"), percentile("Max", (each) => each.duration, "max_ns"),
        textColumn("Example", (each) => each.slowest, (each) => this.link(each.slowest, "the slowest")),
      ],
    });
  }

  /** @param {ServeRequests} requests */
  methods({ methods }) {
    const batched = methods.some((each) => each.batches);
    return sortedTable({
      rows: methods, caption: "Methods of deployments", kind: "methods", first: 1, columns: [
        textColumn("Method", (each) => each.label, (each) => safe(each.label)),
        numberColumn("Ran", (each) => each.executions, (each) => (each.executions ? number(each.executions) : "")),
        numberColumn("Failed", (each) => each.failed, (each) => (each.failed ? number(each.failed) : "")),
        percentile("Waited", (each) => each.waited, "median_ns", "From the call until it began in a replica: the median"), percentile("P95", (each) => each.waited, "p95_ns"),
        percentile("Ran for", (each) => each.duration, "median_ns", "The median"), percentile("P95", (each) => each.duration, "p95_ns"),
        numberColumn("Replicas", (each) => each.replicas, (each) => (each.replicas ? number(each.replicas) : "")),
        ...(batched ? [numberColumn("Batches", (/** @type {RequestMethod} */ each) => each.batches, (each) => (each.batches ? number(each.batches) : "")), percentile("Of", (/** @type {RequestMethod} */ each) => each.batch, "median_ns", "The median")] : []),
        textColumn("Example", (each) => each.longest ?? -1, (each) => this.link(each.longest ?? -1, "the longest wait")),
      ],
    });
  }

  /** @param {FirstChunks} chunks */
  firstChunks({ deployment, model, count, duration: times, slowest, time }) {
    const of = `${safe(deployment)}${model && !deployment.endsWith(model) ? `, ${safe(model)}` : ""}`;
    const table = sortedTable({
      rows: time.map((part, place) => ({ ...part, place })), caption: `Time to the first chunk of ${counted(count, "streamed request")} to ${of}: median ${duration(times?.median_ns ?? 0)}, p95 ${duration(times?.p95_ns ?? 0)}`, kind: "firstchunks", first: 0, columns: [
        textColumn("Part", (each) => each.place, (each) => each.about),
        ...shares(time),
        timeColumn("Median", (each) => each.median_ns),
      ],
    });
    return el("div", {}, table, this.link(slowest, "the slowest"));
  }

  /** By model; a row with the replica for each of several.
   * @param {ServeRequests} requests */
  generations({ generations }) {
    const rows = (generations?.models ?? []).flatMap((model) => [model, ...((model.replicas?.length ?? 0) > 1 ? model.replicas ?? [] : [])]);
    return rows.length ? sortedTable({
      rows, caption: "Generations of LLM engines", kind: "generations", first: 1, columns: [
        textColumn("Model", (each) => each.model, (each) => safe(each.model || "(unknown)") + (each.is_prefill ? ", prefill only" : "") + (each.replica ? ` in ${safe(each.replica)}` : "")),
        numberColumn("Count", (each) => each.count),
        numberColumn("Failed", (each) => each.failed, (each) => (each.failed ? number(each.failed) : "")),
        numberColumn("Aborted", (each) => each.aborted, (each) => (each.aborted ? number(each.aborted) : "")),
        numberColumn("Tokens in", (each) => each.input_tokens), numberColumn("Cached", (each) => each.cached_tokens), numberColumn("Out", (each) => each.output_tokens),
        percentile("First token", (each) => each.time_to_first_token, "median_ns", "The median"), percentile("P95", (each) => each.time_to_first_token, "p95_ns"),
        percentile("Each token", (each) => each.time_per_output_token, "median_ns", "After the first one: the median"), percentile("P95", (each) => each.time_per_output_token, "p95_ns"),
        percentile("Queue P95", (each) => each.queue, "p95_ns"),
      ],
    }) : "";
  }

  /** @param {number} row @param {string} label */
  link(row, label) {
    return row >= 0 ? el("button", { type: "button", class: "link", onclick: () => this.app.selectSpan(row, false) }, shortened(label, 70)) : "";
  }
}

/** A column of one of some percentiles.
 * @template R
 * @param {string} title @param {(row: R) => Percentiles} times @param {keyof NonNullable<Percentiles>} which @param {string | null} [hint] */
const percentile = (title, times, which, hint = null) => timeColumn(title, (/** @type {R} */ row) => times(row)?.[which] ?? null, hint);

/** The share of each part, and that in the slowest requests if there are enough.
 * @param {TimePart[]} parts */
function shares(parts) {
  const all = shareColumn("All", (/** @type {TimePart} */ each) => each.share);
  return parts.some((each) => each.slow_share !== null) ? [all, shareColumn("Slowest 5 %", (/** @type {TimePart} */ each) => each.slow_share ?? 0)] : [all];
}

/** The parts of the time of requests, as a table of at most as many rows.
 * @param {ServeRequests} requests @param {number} [most] */
export function partsOf({ time, count }, most) {
  return sortedTable({
    rows: time, most, caption: "Where the time of requests went: what each waited for, back from its end", kind: "parts", first: 1, columns: [
      textColumn("Part", (each) => each.about, (each) => safe(each.about)),
      ...shares(time),
      timeColumn("Each, on average", (each) => each.ns / Math.max(1, count)),
    ],
  });
}

/** @param {ServeRequests} requests */
function told({ count, failed, running, unrecorded, time_ns: ns, left_out: leftOut }) {
  const parts = [`${counted(count, "request")} to Ray Serve in ${duration(ns)} altogether`, failed ? `${number(failed)} failed` : "", running ? `${number(running)} that have not ended` : "", unrecorded ? `${number(unrecorded)} whose end is not recorded` : ""];
  return `${parts.filter(Boolean).join(", ")}.${leftOut ? ` ${counted(leftOut, "row")} of the tables with less time left out.` : ""}`;
}
