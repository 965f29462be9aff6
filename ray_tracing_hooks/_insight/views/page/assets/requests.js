// Requests to Ray Serve: how long they took, what that time went to, and how the methods of deployments did.

import { el, emptied } from "./dom.js";
import { counted, duration, number, safe, shortened } from "./format.js";
import { numberColumn, shareColumn, sortedTable, textColumn, timeColumn } from "./tables.js";

export class Requests {
  /** @param {Store} store @param {App} app */
  constructor(store, app) {
    this.store = store;
    this.app = app;
    this.note = el("p", { class: "note" });
    this.tables = el("div", { class: "pipelinetables" });
    this.root = el("div", { class: "view requests" }, el("div", { class: "viewbar" }, this.note), el("div", { class: "scroller", tabindex: 0 }, this.tables));
    this.fill();
  }

  resize() {
    // Tables need no drawing.
  }

  update() {
    // They cover the whole run, whatever is chosen.
  }

  fill() {
    const { requests } = this.store.meta;
    if (!requests) return;
    this.note.textContent = told(requests);
    emptied(this.tables, partsOf(requests), this.routes(requests), this.methods(requests));
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
