// The details of the selection: a span with all its attributes, links, events and exception, or a group of spans.

import { el, emptied } from "./dom.js";
import { PRODUCER } from "./figures.js";
import { clock, counted, cut, duration, number, safe, safeLines, shortened, shown } from "./format.js";
import { KINDS, LOST, RUNNING } from "./store.js";

const MOST_SHOWN = 40, MOST_EDGES = 60, MOST_EVENTS = 50, MOST_TRACEBACK = 60000;

// The label of an edge at its target and at its source, by kind.
const TAKES = ["takes data from", "waits for", "retry of"];
const GIVES = ["gives data to", "is waited for by", "retried as"];

/** @typedef {import("./dom.js").Child} Child */
/** @typedef {[string, Child | Child[]] | null} Pair */

export class DetailsPanel {
  /** @param {Store} store @param {App} app */
  constructor(store, app) {
    this.store = store;
    this.app = app;
    this.root = el("aside", { class: "details", "aria-label": "Details", tabindex: -1 });
    this.turn = 0;
  }

  async update() {
    const chosen = this.store.selection;
    const turn = ++this.turn;
    this.root.hidden = !chosen;
    document.body.classList.toggle("with-details", !!chosen);
    if (!chosen) return;
    try {
      if (chosen.type === "span") await this.showSpan(this.store.chosenRow, turn);
      else this.fill(this.groupHead(chosen));
    } catch (error) {
      this.store.report(error);
    }
  }

  /** @param {(Child | Child[])[]} content */
  fill(...content) {
    emptied(this.root, el("button", { type: "button", class: "close", "aria-label": "Close details", title: "Close (Esc)", onclick: () => this.store.select(null) }, "×"), ...content);
  }

  /** @param {number} row @param {number} turn */
  async showSpan(row, turn) {
    const { store } = this;
    this.fill(this.spanHead(row, null));
    const known = await store.detailsOf(row);
    if (turn === this.turn) this.fill(this.spanHead(row, known), ...this.spanBody(row, known));
  }

  /** @param {number} row @param {string} [text] */
  spanLink(row, text) {
    return el("button", { type: "button", class: "link", onclick: () => this.app.selectSpan(row) }, text || shortened(this.store.label(row), 80));
  }

  /** How long a span took, as far as that is known.
   * @param {number} row @param {boolean} isNeverEnded */
  tookText(row, isNeverEnded) {
    const { store } = this;
    if (isNeverEnded) return "unknown: the program never ended it";
    const took = duration(store.took[row]);
    if (store.state(row) === RUNNING) return `${took} so far`;
    if (store.state(row) !== LOST) return took;
    return store.took[row] ? `${took} (the end is estimated)` : "unknown: its end was not recorded";
  }

  /** An id with buttons, and a link if there is an address.
   * @param {string} label @param {string} id @param {string} [address] */
  id(label, id, address) {
    return el("span", { class: "id" }, el("code", { title: id }, id),
      el("button", { type: "button", class: "quiet", "aria-label": `Copy ${label}`, title: `Copy ${label}`, onclick: () => this.app.copy(id) }, "Copy"),
      address ? el("a", { href: address, target: "_blank", rel: "noreferrer" }, "Open") : null);
  }

  /** @param {number} row @param {SpanDetails | null} known */
  spanHead(row, known) {
    const { store, app } = this;
    const isNeverEnded = !!known?.attributes.some(([key, value]) => key === "ray.never_ended" && value);
    const trace = store.meta.traces[store.trace[row]];
    const queued = store.queued(row), own = store.submission[row], state = store.state(row), parent = store.parent[row];
    const kind = own >= 0 ? "execution of a call" : store.kind(row) === PRODUCER ? "submission of a call" : KINDS[store.kind(row)];
    return el("header", {},
      el("h2", {}, shortened(store.label(row), 200)),
      el("p", { class: "badges" },
        el("span", { class: "badge" }, kind),
        store.failed(row) ? el("span", { class: "badge bad" }, state === LOST ? "✗ lost" : "✗ failed") : null,
        state === RUNNING ? el("span", { class: "badge open" }, "still running") : null,
        store.onPath(row) ? el("span", { class: "badge path" }, "on the critical path") : null),
      pairs([
        ["Trace", this.id("trace id", trace, store.traceUrl(row, known?.spanId))],
        known ? ["Span", this.id("span id", known.spanId)] : null,
        ["Duration", this.tookText(row, isNeverEnded)],
        queued >= 0 ? ["In the queue", duration(queued)] : null,
        own >= 0 ? ["Submission took", duration(store.took[own])] : null,
        ["Start", `${clock(store.meta.start_ms + store.start[row] / 1e6, 1)} · ${duration(store.start[row])} into the run`],
        ["Where", el("button", { type: "button", class: "link", onclick: () => store.select({ type: "place", id: store.place(row) }) }, store.placeLabel(row))],
        parent >= 0 ? ["Parent", this.spanLink(parent)] : null,
        own >= 0 && own !== parent ? ["Submission", this.spanLink(own)] : null,
      ]),
      el("p", { class: "actions" },
        el("button", { type: "button", onclick: () => app.show("timeline", () => app.views.timeline.focus(row, true)) }, "Zoom to span"),
        el("button", { type: "button", onclick: () => app.selectName(store.name[row]) }, "All with this name"),
        el("button", { type: "button", onclick: () => app.openStackAt(store.start[row] + store.took[row] / 2) }, "Stack at its midpoint")));
  }

  /** @param {number} row @param {SpanDetails | null} known */
  spanBody(row, known) {
    const { store } = this;
    if (!known) return [this.calls(row), el("p", { class: "note" }, store.meta.details_note || "This file holds no attributes.")];
    const exception = known.events.findLast((event) => event[0] === "exception");
    const events = known.events.filter((event) => event[0] !== "exception" || known.events.length > 1);
    const resource = store.meta.resources[store.resource[row]] || {};
    return [
      ...(exception || known.message ? [failure(known, exception?.[2] ?? {})] : []),
      this.calls(row),
      ...(known.attributes.length ? [el("section", {}, el("h3", {}, "Attributes"), this.attributes(known.attributes))] : []),
      ...(events.length ? [this.events(row, events)] : []),
      ...(known.links.length ? [this.links(known.links)] : []),
      el("section", {}, el("details", {}, el("summary", {}, "Resource"), this.attributes(Object.entries(resource)))),
      pairs([known.parentId ? ["Parent", `${known.parentId} (not among the spans that were read)`] : null, ["Scope", known.scope]]),
    ];
  }

  /** @param {number} row @param {SpanDetails["events"]} events */
  events(row, events) {
    return el("section", {}, el("h3", {}, counted(events.length, "event")), events.slice(0, MOST_EVENTS).map(([name, at, attributes]) =>
      el("details", {}, el("summary", {}, `${shortened(safe(name), 80)} · ${duration(at - this.store.start[row])} after its start`), this.attributes(Object.entries(attributes)))),
      rest(events.length, MOST_EVENTS));
  }

  /** @param {SpanDetails["links"]} links */
  links(links) {
    return el("section", {}, el("h3", {}, counted(links.length, "link")), links.slice(0, MOST_EVENTS).map(([trace, span, target, attributes]) =>
      el("details", {}, el("summary", {}, target >= 0 ? this.spanLink(target) : `${trace} ${span}`), pairs([["Trace", trace], ["Span", span]]), this.attributes(Object.entries(attributes)))));
  }

  /** The children of a span, and its other relations.
   * @param {number} row */
  calls(row) {
    const { store } = this;
    const own = store.submission[row];
    /** @type {[string, number][]} */
    const edges = [];
    for (const [from, to, kind] of store.edges) {
      if (edges.length >= MOST_EDGES) break;
      if (to === row || (own >= 0 && to === own)) edges.push([TAKES[kind], from]);
      else if (from === row) edges.push([GIVES[kind], to]);
    }
    const children = [...store.children(row)].sort((a, b) => store.took[b] - store.took[a]);
    /** @param {number} other @param {string} [how] */
    const item = (other, how) => el("li", {}, how ? el("span", { class: "soft" }, how + " ") : null, this.spanLink(other),
      el("span", { class: "soft" }, ` ${duration(store.took[other])}`), store.failed(other) ? el("span", { class: "bad" }, " ✗") : null);
    return el("div", {},
      list(counted(children.length, "child", "children"), children.length, children.slice(0, MOST_SHOWN).map((child) => item(child))),
      list("Data, waits, attempts", edges.length, edges.slice(0, MOST_SHOWN).map(([how, other]) => item(other, how))));
  }

  /** @param {[string, unknown][]} values */
  attributes(values) {
    return el("table", { class: "attributes" }, el("tbody", {}, values.map(([key, value]) => el("tr", {},
      el("th", { scope: "row" }, shortened(safe(key), 120)),
      el("td", {}, el("span", { class: "value" }, cut(shown(value))),
        el("button", { type: "button", class: "filter-by", title: "Show only spans with this value", "aria-label": `Filter by ${safe(key)}`,
          onclick: () => this.app.addFilter(key, value) }, "⌕"))))));
  }

  /** @param {Chosen} chosen */
  groupHead(chosen) {
    const { store } = this;
    const group = store.group();
    // The figures above cover a function's executions; its spans include submissions and the spans inside.
    const hasFigures = !["function", "edge", "flame"].includes(chosen.type);
    return el("header", {},
      el("h2", {}, shortened(this.app.selectionLabel(chosen), 200)),
      el("p", { class: "badges" }, el("span", { class: "badge" }, counted(group.count, "span")), group.failed ? el("span", { class: "badge bad" }, `✗ ${counted(group.failed, "error")}`) : null),
      this.figures(chosen),
      group.count && hasFigures ? pairs([["Median", duration(group.p50)], ["p95", duration(group.p95)], ["Longest", duration(group.max)]]) : null,
      group.count ? el("section", {}, el("h3", {}, "Slowest spans"), el("ul", { class: "spans" }, group.slowest.map((row) => el("li", {}, this.spanLink(row),
        el("span", { class: "soft" }, ` ${duration(store.took[row])} · ${store.placeLabel(row)}`), store.failed(row) ? el("span", { class: "bad" }, " ✗") : null)))) : null);
  }

  /** The figures of the selection, if it is not a single span.
   * @param {Chosen} chosen */
  figures({ type, id = -1, edge }) {
    const { meta } = this.store;
    if (type === "function") {
      const each = meta.graph.functions[id];
      return pairs([...runTimes(each), each.queue_p50 === null ? null : ["Queue, median", duration(each.queue_p50)],
        each.queue_max === null ? null : ["Queue, max", duration(each.queue_max)],
        each.actors ? ["Actors", number(each.actors)] : null, each.path ? ["On the critical path", duration(each.path)] : null]);
    }
    if (type === "flame") {
      const { flame } = this.app.views, { spans, summed, wall, own } = flame.shown();
      return pairs([["Stack", flame.stackText(id)], ["Spans", number(spans[id])], ["Summed", duration(summed[id])], ["Wall", duration(wall[id])], ["Self", duration(own[id])]]);
    }
    if (type === "place") {
      const place = meta.places[id];
      return pairs([["Node", safe(meta.nodes[place.node].label)], ["About", place.detail], ["Placement group", place.group], ...Object.entries(place.facts).map(([key, value]) => /** @type {Pair} */ ([key, safe(shown(value))]))]);
    }
    if (!edge) return null;
    return pairs("readers" in edge
      ? [["Objects", number(edge.count)], ["Readers", number(edge.readers)]] : runTimes(edge).slice(0, -1));
  }
}

/** @param {RunTimes} each @returns {Pair[]} */
function runTimes({ count, errors, total, p50, p95, max }) {
  return [["Calls", number(count)], ["Errors", number(errors)], ["Run, total", duration(total)], ["Run, median", duration(p50)], ["Run, p95", duration(p95)], ["Run, max", duration(max)]];
}

/** A list of names and values, without empty values.
 * @param {Pair[]} rows */
function pairs(rows) {
  return el("dl", {}, rows.flatMap((pair) => (!pair || pair[1] === null || pair[1] === undefined || pair[1] === "" ? [] : [
    el("dt", {}, pair[0]), el("dd", {}, pair[1] instanceof Node || Array.isArray(pair[1]) ? pair[1] : safeLines(pair[1]))])));
}

/** @param {number} count @param {number} most */
function rest(count, most) {
  return count > most ? el("p", { class: "note" }, `and ${number(count - most)} more`) : null;
}

/** @param {string} title @param {number} count @param {Child[]} items */
function list(title, count, items) {
  return count ? el("section", {}, el("h3", {}, title), el("ul", { class: "spans" }, items), rest(count, MOST_SHOWN)) : null;
}

/** @param {SpanDetails} known @param {Attributes} attributes */
function failure(known, attributes) {
  const kind = attributes["exception.type"], trace = attributes["exception.stacktrace"];
  return el("section", { class: "failure" }, el("h3", {}, "Error"),
    kind ? el("p", { class: "kind" }, shortened(safe(kind), 200)) : null,
    el("pre", {}, cut(shown(attributes["exception.message"] ?? known.message))),
    trace ? el("details", {}, el("summary", {}, "Traceback"), el("pre", {}, cut(shown(trace), MOST_TRACEBACK))) : null);
}
