// The first screen: the summary of the run, with links to the spans behind it.

import { category } from "./colours.js";
import { el, emptied } from "./dom.js";
import { counted, duration, number, percent, safe, shortened } from "./format.js";
import { partsOf } from "./requests.js";
import { numberColumn, shareColumn, sortedTable, textColumn, timeColumn } from "./tables.js";

/** @type {Record<string, string>} */
const LEVEL_MARKS = { error: "✗", warning: "!", note: "i" };

/** Parts of the time of requests that are listed here; the tab on requests has all. */
const MOST_PARTS = 12;

export class Findings {
  /** @param {Store} store @param {Colours} colours @param {App} app */
  constructor(store, colours, app) {
    this.store = store;
    this.colours = colours;
    this.app = app;
    /** The kind of the part of the split whose breakdown is open, "" for none. */
    this.opened = "";
    this.scope = el("p", { class: "scope", role: "status", hidden: true });
    this.inside = el("div", { class: "inside", id: "split-inside", hidden: true });
    this.parts = (store.meta.split?.parts ?? []).filter((part) => part.ns > 0);
    this.partButtons = this.parts.map((part) => el("button", {
      type: "button", class: "partbutton", "data-kind": part.kind, "aria-expanded": "false", "aria-controls": "split-inside", onclick: () => this.toggle(part.kind),
    }, key(part.kind), el("span", {}, part.label), el("strong", {}, percent(part.share)), el("span", { class: "soft" }, duration(part.ns))));
    this.root = el("div", { class: "view findings" }, el("div", { class: "scroller plain", tabindex: 0 }, this.page()));
  }

  page() {
    const { meta } = this.store;
    return el("div", { class: "report" },
      this.scope,
      meta.notes.map((note) => el("p", { class: "warning" }, note)),
      this.facts(),
      el("section", {}, el("h2", {}, "Findings"), this.findings()),
      meta.requests && (meta.serves || !meta.split) ? this.requests(meta.requests) : null,
      el("div", { class: "columns" }, this.path(), this.functions()),
      meta.split ? this.split(meta.split.of) : null,
      this.queues(),
      el("section", { class: "quality" }, el("h2", {}, "Data quality"), el("ul", {}, meta.quality.map((line) => el("li", {}, line)))));
  }

  facts() {
    return el("div", { class: "facts" }, this.store.meta.facts.map(([label, value, isBad]) => el("div", { class: isBad ? "fact bad" : "fact" },
      el("span", { class: "value" }, value), el("span", { class: "label" }, label))));
  }

  /** The wall time with queues, as a bar and a list with the same figures. Each part opens its breakdown.
   * @param {string} about */
  split(about) {
    const bar = el("div", { class: "splitbar", "aria-hidden": "true" }, this.parts.map((part) => el("span", {
      class: "part", title: `${part.label}: ${percent(part.share)}, ${duration(part.ns)}`, style: { "flex-grow": Math.max(part.share, 0.004) }, onclick: () => this.toggle(part.kind),
    }, key(part.kind))));
    return el("section", {}, el("h2", {}, "The same time with queues"), el("p", { class: "soft" }, about), bar,
      el("ul", { class: "splitlist", "aria-label": "The time with queues: choose a part to see its breakdown" }, this.partButtons.map((button) => el("li", {}, button))), this.inside);
  }

  /** @param {ServeRequests} requests */
  requests(requests) {
    const more = requests.parts.length - MOST_PARTS;
    return el("section", {}, el("h2", {}, this.store.meta.split ? "Where the time of requests went" : "Where the time went"), partsOf(requests, MOST_PARTS),
      more > 0 ? el("p", { class: "soft" }, `and ${counted(more, "other part")}: see `, el("button", { type: "button", class: "link", onclick: () => this.app.show("requests") }, "Requests")) : null);
  }

  /** @param {string} kind */
  toggle(kind) {
    this.openPart(this.opened === kind ? "" : kind);
  }

  /** Opens the breakdown of a part of the split, or closes it if it is open.
   * @param {string} kind */
  openPart(kind) {
    const part = this.parts.find((each) => each.kind === kind);
    this.opened = part ? kind : "";
    for (const button of this.partButtons) button.setAttribute("aria-expanded", String(button.dataset.kind === this.opened));
    this.inside.hidden = !part;
    if (part) emptied(this.inside, this.breakdown(part));
    this.app.writeHash();
  }

  /** @param {SplitPart} part */
  breakdown(part) {
    const { store, app } = this;
    const { places } = store.meta;
    /** @param {SplitGroup} each */
    const place = (each) => (each.place >= 0 ? safe(places[each.place].label) : "");
    /** @param {SplitGroup} each */
    const timeline = ({ rows, calls, label }) => (rows.length ? el("button", { type: "button", onclick: () => app.showRows(rows, `${part.label}: ${label}`) },
      rows.length < calls ? `Show the longest ${number(rows.length)} on the timeline` : "Show on the timeline") : "");
    const hasPlaces = part.by.some((each) => each.place >= 0);
    return [
      el("h3", {}, key(part.kind), `Breakdown: ${part.label}`),
      sortedTable({ rows: part.by, first: hasPlaces ? 3 : 2, kind: "parts", columns: [
        textColumn("Function", (each) => each.label, (each) => this.functionLink(each.function, each.label)),
        ...(hasPlaces ? [textColumn("Waited for", place, (/** @type {SplitGroup} */ each) => (each.place >= 0
          ? el("button", { type: "button", class: "link", onclick: () => store.select({ type: "place", id: each.place }) }, shortened(place(each), 40)) : ""))] : []),
        shareColumn("Share of the run", (each) => (each.ns / part.ns) * part.share),
        timeColumn("Time", (each) => each.ns),
        numberColumn("Spans", (each) => each.calls),
        timeColumn("Longest", (each) => each.most),
        textColumn("Timeline", (each) => each.rows.length, timeline),
      ] }),
      part.others > 0 ? el("p", { class: "soft" }, `and ${duration(part.others)} in other functions`) : null,
    ];
  }

  /** @param {number} id @param {string} label */
  functionLink(id, label) {
    const text = shortened(safe(label), 60);
    return id >= 0 ? el("button", { type: "button", class: "link", onclick: () => this.store.select({ type: "function", id }) }, text) : text;
  }

  findings() {
    const { meta } = this.store;
    if (!meta.findings.length) return el("p", { class: "good" }, meta.nothing_found);
    return el("ol", { class: "findinglist" }, meta.findings.map((finding) => this.finding(finding)));
  }

  /** @param {Finding} finding */
  finding({ kind, title, text, cost, advice, level, rows }) {
    const { store, app } = this;
    /** @param {number} row */
    const example = (row) => el("button", { type: "button", class: "link", onclick: () => app.show("timeline", () => app.selectSpan(row)) },
      `${shortened(store.label(row), 44)} ${duration(store.took[row])}`);
    return el("li", { class: level, "data-finding": kind },
      el("p", { class: "sentence" }, el("span", { class: "levelmark", role: "img", "aria-label": level }, LEVEL_MARKS[level] || "i"), el("strong", {}, title), cost ? `: ${cost}` : null),
      el("p", { class: "told" }, text),
      advice ? el("p", { class: "advice" }, advice) : null,
      rows.length ? el("p", { class: "evidence" },
        el("button", { type: "button", onclick: () => app.showRows(rows, title) }, `Show ${counted(rows.length, "span")}`), rows.slice(0, 3).map(example)) : null);
  }

  path() {
    const { store, app } = this;
    const { path, graph } = store.meta;
    if (!path.steps.length) return null;
    return el("section", {}, el("h2", {}, "Where the time went, along the critical path"), el("p", { class: "soft" }, path.about),
      sortedTable({ rows: path.by, first: 2, columns: [
        textColumn("What", (each) => each.label, (each) => (each.function >= 0
          ? [this.swatch(graph.functions[each.function].name), this.functionLink(each.function, each.label)] : [key(each.kind), safe(each.label)])),
        shareColumn("Share", (each) => each.share),
        timeColumn("Time", (each) => each.ns),
      ] }),
      el("p", {}, el("button", { type: "button", onclick: () => { app.setPath(true); app.show("timeline"); } }, "Show on the timeline")));
  }

  /** @param {number} name */
  swatch(name) {
    return el("span", { class: "swatch", "aria-hidden": "true", style: { background: this.colours.ofNameIndex(name) } });
  }

  functions() {
    const { top, top_about: about } = this.store.meta;
    if (!top.length) return null;
    return el("section", {}, el("h2", {}, "Self time"), el("p", { class: "soft" }, about),
      sortedTable({ rows: top, first: 1, columns: [
        textColumn("Function", (each) => each.label, (each) => [
          this.swatch(each.name), el("button", { type: "button", class: "link", onclick: () => this.app.selectName(each.name) }, shortened(safe(each.label), 48)),
          each.errors ? el("span", { class: "bad" }, ` ✗ ${number(each.errors)}`) : null]),
        timeColumn("Self", (each) => each.self, "Self time of all calls"), numberColumn("Calls", (each) => each.count), timeColumn("Self, median", (each) => each.p50, "Median self time of a call"),
        timeColumn("Self, p95", (each) => each.p95, "95th percentile of the self time of a call"), timeColumn("Self, max", (each) => each.max, "Longest self time of a call"),
      ] }));
  }

  queues() {
    const { queues } = this.store.meta;
    if (!queues) return null;
    /** @param {string} title @param {number} n @returns {import("./tables.js").Column<[string, ...number[]]>} */
    const column = (title, n) => {
      if (n === 0) return textColumn(title, (row) => row[0], (row) => shortened(safe(row[0]), 48));
      return numberColumn(title, (row) => Number(row[n]), n === 1 ? undefined : (row) => (row[n] ? duration(Number(row[n])) : ""));
    };
    return el("section", {}, el("h2", {}, "Queues"), el("p", { class: "soft" }, queues.about),
      sortedTable({ rows: queues.rows, first: 2, columns: queues.titles.map(column) }));
  }

  resize() {}

  /** This view covers the whole run, so it says so while a filter or a range is active.
   * @param {Change} what */
  update(what) {
    if (what !== "range" && what !== "filter") return;
    const { store, app, scope } = this;
    scope.hidden = !store.isFiltered && store.isWhole;
    if (scope.hidden) return;
    const ignored = [
      store.isFiltered ? `the filter “${shortened(safe(store.query), 60)}”` : "",
      store.isWhole ? "" : `the range ${duration(store.range[0])} – ${duration(store.range[1])}`,
    ].filter(Boolean);
    emptied(scope, el("span", {}, `This page covers the whole run: ${ignored.join(" and ")} ${ignored.length > 1 ? "do" : "does"} not apply to it. `),
      store.isFiltered ? el("button", { type: "button", onclick: () => app.setFilter("") }, "Clear filter") : null,
      store.isWhole ? null : el("button", { type: "button", onclick: () => store.setRange(0, store.end) }, "Whole run"));
  }
}

/** The symbol of a kind of time: its colour, hatched for waiting.
 * @param {string} kind */
function key(kind) {
  const { colour, waits } = category(kind);
  return el("span", { class: `key${waits ? " waits" : ""}`, "aria-hidden": "true", style: { "background-color": colour } });
}
