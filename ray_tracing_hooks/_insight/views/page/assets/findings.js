// The first screen: the summary of the run, with links to the spans behind it.

import { category } from "./colours.js";
import { View, el, emptied, numberColumn, shareColumn, sortedTable, textColumn, timeColumn, told } from "./dom.js";
import { counted, duration, number, safe, shortened } from "./format.js";
import { partsOf } from "./requests.js";

/** @type {Record<string, string>} */
const LEVEL_MARKS = { error: "✗", warning: "!" };

/** Parts of the time of requests that are listed here; the tab on requests has all. */
const MOST_PARTS = 12;

export class Findings extends View {
  /** @param {Store} store @param {Colours} colours @param {App} app */
  constructor(store, colours, app) {
    super(store, colours, app);
    /** The kind of wait whose breakdown is open, "" for none. */
    this.opened = "";
    this.scope = el("p", { class: "scope", role: "status", hidden: true });
    this.inside = el("div", { class: "inside", id: "inside", hidden: true });
    this.root = el("div", { class: "view findings" }, el("div", { class: "scroller plain", tabindex: 0 }, this.page()));
  }

  page() {
    const { meta } = this.store;
    return el("div", { class: "report" },
      this.scope,
      meta.whole.length ? el("section", { id: "run" }, el("h2", {}, "The whole run"), meta.whole.map(told)) : null,
      meta.notes.map((note) => el("p", { class: "warning" }, note)),
      this.facts(),
      this.findings(),
      meta.requests && (meta.serves || !meta.path.by.length) ? this.requests(meta.requests) : null,
      el("div", { class: "columns" }, this.path(), this.functions()),
      this.queues(),
      el("section", { class: "quality" }, el("h2", {}, "Data quality"), el("ul", {}, meta.quality.map((line) => el("li", {}, line)))));
  }

  facts() {
    return el("div", { class: "facts" }, this.store.meta.facts.map(([label, value, isBad]) => {
      const inside = [el("span", { class: "value" }, value), el("span", { class: "label" }, label)];
      return isBad ? el("button", { type: "button", class: "fact bad", onclick: () => this.showErrors() }, inside) : el("div", { class: "fact" }, inside);
    }));
  }

  showErrors() {
    this.app.setFilter("is:error");
    this.app.show("spans");
  }

  /** @param {ServeRequests} requests */
  requests(requests) {
    const more = requests.time.length - MOST_PARTS;
    return el("section", {}, el("h2", {}, this.store.meta.path.by.length ? "Where the time of requests went" : "Where the time went"), partsOf(requests, MOST_PARTS),
      more > 0 ? el("p", { class: "soft" }, `and ${counted(more, "other part")}: see `, el("button", { type: "button", class: "link", onclick: () => this.app.show("requests") }, "Requests")) : null);
  }

  /** Opens the breakdown of a kind of wait, or closes it if it is open.
   * @param {string} kind */
  openPart(kind) {
    const part = this.store.meta.path.by.find((each) => each.kind === kind && each.by.length);
    this.opened = part ? kind : "";
    for (const button of this.root.querySelectorAll("[data-kind]")) button.setAttribute("aria-expanded", String(button.getAttribute("data-kind") === this.opened));
    this.inside.hidden = !part;
    if (part) emptied(this.inside, this.breakdown(part));
    this.app.writeHash();
  }

  /** @param {PathPart} part */
  breakdown(part) {
    /** @param {PathGroup} each */
    const timeline = ({ rows, calls, label }) => (rows.length ? el("button", { type: "button", onclick: () => this.app.showRows(rows, `${part.label}: ${label}`) },
      rows.length < calls ? `Show the longest ${number(rows.length)}` : "Show") : "");
    const others = part.ns - part.by.reduce((sum, each) => sum + each.ns, 0);
    return [
      el("h3", {}, key(part.kind), `Breakdown: ${part.label}`),
      sortedTable({ rows: part.by, first: 1, kind: "parts", columns: [
        textColumn("Function", (each) => each.label, (each) => this.functionLink(each.function, each.label)),
        shareColumn("Share", (each) => (each.ns / part.ns) * part.share),
        timeColumn("Time", (each) => each.ns),
        numberColumn("Spans", (each) => each.calls),
        timeColumn("Longest", (each) => each.most),
        textColumn("Timeline", (each) => each.rows.length, timeline),
      ] }),
      others > 0 ? el("p", { class: "soft" }, `and ${duration(others)} in other functions`) : null,
    ];
  }

  /** @param {number} id @param {string} label */
  functionLink(id, label) {
    const text = shortened(safe(label), 60);
    return id >= 0 ? el("button", { type: "button", class: "link", onclick: () => this.app.selectFunction(id) }, text) : text;
  }

  /** Failures first, then the findings by cost. */
  findings() {
    const { findings, nothing_found: nothing } = this.store.meta;
    if (!findings.length) return nothing && el("section", {}, el("h2", {}, "Findings"), el("p", { class: "good" }, nothing));
    const copy = el("button", { type: "button", class: "quiet", title: "Copy the findings as Markdown, for an issue or a chat", onclick: () => this.app.copy(this.markdown()) }, "Copy as Markdown");
    return [["Failures", "error"], ["Findings", "warning"]].map(([title, level], n) => {
      const found = findings.filter((each) => each.level === level);
      return found.length ? el("section", {}, el("div", { class: "headed" }, el("h2", {}, title), n || found.length === findings.length ? copy : null),
        el("ol", { class: "findinglist" }, found.map((each) => this.finding(each)))) : null;
    });
  }

  /** @param {Finding} finding */
  finding({ kind, title, text, cost, share, advice, level, rows }) {
    const { documentation, trace_url } = this.store.meta;
    return el("li", { class: level, "data-finding": kind },
      el("p", { class: "cost" }, share ? [el("strong", {}, share), el("span", {}, cost.split(",")[0])] : el("span", { class: "levelmark", role: "img", "aria-label": level }, LEVEL_MARKS[level])),
      el("h3", {}, title),
      el("p", { class: "told" }, text),
      advice ? el("p", { class: "advice" }, `→ ${advice.replace(/^[a-z]+(?=[ ,])/, (word) => word[0].toUpperCase() + word.slice(1))}`) : null,
      el("p", { class: "evidence" },
        rows.length ? el("button", { type: "button", onclick: () => this.app.showRows(rows, title) }, `Show ${counted(rows.length, "span")}`) : null,
        rows.length && trace_url ? el("a", { href: this.store.traceUrl(rows[0]), target: "_blank", rel: "noreferrer" }, "Open the trace") : null,
        documentation ? el("a", { href: `${documentation}#${kind}`, target: "_blank", rel: "noreferrer" }, "About this finding") : null));
  }

  markdown() {
    const { source, facts, findings } = this.store.meta;
    return [`**${safe(source)}**: ${facts.map(([label, value]) => `${value} ${label}`).join(", ")}`, "",
      ...findings.map(({ title, cost, text, advice }, n) => [`${n + 1}. **${safe(title)}**${cost ? `: ${cost}` : ""}`, text, advice && `→ ${advice}`].filter(Boolean).map(safe).join("\n   - "))].join("\n") + "\n";
  }

  path() {
    const { app, store } = this;
    const { path, graph } = store.meta;
    if (!path.steps.length) return null;
    /** @param {PathPart} each */
    const wait = (each) => [key(each.kind), each.by.length ? el("button", {
      type: "button", class: "link opens", "data-kind": each.kind, "aria-expanded": String(each.kind === this.opened), "aria-controls": "inside",
      onclick: () => this.openPart(this.opened === each.kind ? "" : each.kind) }, each.label) : each.label];
    return el("section", {}, el("h2", {}, "Where the time went, along the critical path"), el("p", { class: "soft" }, path.about),
      sortedTable({ rows: path.by, first: 1, columns: [
        textColumn("What", (each) => each.label, (each) => (each.function >= 0 ? [this.swatch(graph.functions[each.function].name), this.functionLink(each.function, each.label)] : wait(each))),
        shareColumn("Share", (each) => each.share),
        timeColumn("Time", (each) => each.ns),
      ] }),
      this.inside,
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
    /** @param {string} title @param {number} n @returns {import("./dom.js").Column<[string, ...number[]]>} */
    const column = (title, n) => {
      if (n === 0) return textColumn(title, (row) => row[0], (row) => shortened(safe(row[0]), 48));
      return numberColumn(title, (row) => Number(row[n]), n === 1 ? undefined : (row) => (row[n] ? duration(Number(row[n])) : ""));
    };
    return el("section", {}, el("h2", {}, "Queues"), el("p", { class: "soft" }, queues.about),
      sortedTable({ rows: queues.rows, first: 2, columns: queues.titles.map(column) }));
  }

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
