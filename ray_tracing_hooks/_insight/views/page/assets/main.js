// The page: tabs, the shared selection, the keyboard, and the state in the address.

import { GROUPS, read, written } from "./address.js";
import { Details, embedded, readColumns, readJson, spanColumns } from "./codec.js";
import { Colours } from "./colours.js";
import { Datasets } from "./datasets.js";
import { Compare } from "./compare.js";
import { DetailsPanel } from "./details.js";
import { byId, el, emptied } from "./dom.js";
import { Findings } from "./findings.js";
import { Flame } from "./flame.js";
import { clock, counted, day, duration, number, safe, shortened, shown } from "./format.js";
import { KEYS, actionOf, tabAfter } from "./keys.js";
import { Logical } from "./logical.js";
import { Physical } from "./physical.js";
import { Ranks } from "./ranks.js";
import { Requests } from "./requests.js";
import { FILTER_HELP, Filter, narrowed, toggled } from "./search.js";
import { SpanTable } from "./spans.js";
import { Stack } from "./stack.js";
import { Store } from "./store.js";
import { Timeline, ZOOM, spanTip } from "./timeline.js";

/** @typedef {"findings" | "timeline" | "flame" | "logical" | "physical" | "stack" | "spans" | "requests" | "datasets" | "ranks" | "compare"} ViewName */

/** The views in the order of their tabs; those of libraries are left out if there is nothing to show.
 * @type {[ViewName, string][]} */
const TABS = [["compare", "Comparison"], ["findings", "Findings"], ["timeline", "Timeline"], ["flame", "Flame graph"], ["logical", "Call graph"], ["physical", "Nodes"], ["stack", "Stack"], ["spans", "Spans"], ["requests", "Requests"], ["datasets", "Datasets"], ["ranks", "Ranks"]];

/** How far the keys A and D move, as a share of the visible range. */
const STEP = 0.15;

export class App {
  /** @param {Store} store */
  constructor(store) {
    this.store = store;
    this.colours = new Colours(store);
    this.filter = new Filter(store, (text) => this.say(text));
    /** @type {ViewName} */
    this.view = "findings";
    this.isReading = false;
    /** The query that was announced to match nothing. */
    this.unmatched = "";
    this.main = byId("views");
    this.tabs = byId("tabs");
    this.input = /** @type {HTMLInputElement} */ (byId("search"));
    this.helpBox = /** @type {HTMLDialogElement} */ (byId("helpbox"));
    this.views = {
      findings: new Findings(store, this.colours, this), timeline: new Timeline(store, this.colours, this), flame: new Flame(store, this.colours, this),
      logical: new Logical(store, this.colours, this), physical: new Physical(store, this.colours, this), stack: new Stack(store, this.colours, this),
      spans: new SpanTable(store, this.colours, this), requests: new Requests(store, this.colours, this), datasets: new Datasets(store, this.colours, this), ranks: new Ranks(store, this.colours, this), compare: new Compare(store, this.colours, this),
    };
    const { executions, iterations } = store.meta.datasets;
    /** @type {Partial<Record<ViewName, boolean>>} */
    const isEmpty = { requests: !store.meta.requests, datasets: !executions.length && !iterations.length, ranks: !store.meta.training.length, compare: !store.meta.comparison };
    /** The tabs of this run: most have no datasets, and train nothing. */
    this.shownTabs = TABS.filter(([key]) => !isEmpty[key]);
    // Requests come second where most of the run is about them.
    if (store.meta.serves) this.shownTabs.splice(store.meta.comparison ? 2 : 1, 0, ...this.shownTabs.splice(this.shownTabs.findIndex(([key]) => key === "requests"), 1));
    for (const [key, label] of this.shownTabs) {
      const { root } = this.views[key];
      Object.assign(root, { id: `view-${key}`, hidden: true });
      root.setAttribute("role", "tabpanel");
      root.setAttribute("aria-labelledby", `tab-${key}`);
      this.main.append(root);
      this.tabs.append(el("button", { type: "button", role: "tab", id: `tab-${key}`, "aria-controls": `view-${key}`, onclick: () => this.show(key) }, label));
    }
    this.details = new DetailsPanel(store, this);
    this.details.root.hidden = true;
    byId("content").append(this.details.root);
    this.head();
    this.buttons();
    this.keyboard();
    store.listen((what) => this.update(what));
    window.addEventListener("hashchange", () => this.readHash());
    window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.recolour());
    new ResizeObserver(() => this.views[this.view].resize()).observe(this.main);
  }

  head() {
    const { meta } = this.store;
    byId("source").textContent = safe(meta.source);
    byId("size").textContent = `${day(meta.start_ms)} ${clock(meta.start_ms, 1e9)} · ${duration(meta.extent)} · ${counted(meta.spans, "span")}`;
    let failed = 0;
    for (let row = 0; row < this.store.count; row++) failed += Number(this.store.failed(row));
    const errors = /** @type {HTMLButtonElement} */ (byId("errors"));
    errors.textContent = `✗ ${counted(failed, "error")}`;
    errors.disabled = !failed;
    if (meta.documentation) byId("helpbox").querySelector("p")?.append(" ", el("a", { href: meta.documentation, target: "_blank", rel: "noreferrer" }, "All findings and their causes"));
    emptied(byId("keys"), KEYS.map(([key, what]) => [el("dt", {}, el("kbd", {}, key)), el("dd", {}, what)]).flat());
    emptied(byId("filterhelp"), el("dl", {}, FILTER_HELP.map(([example, what]) => [el("dt", {}, el("code", {}, example)), el("dd", {}, what)]).flat()));
  }

  buttons() {
    const { store, input } = this;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    let timer;
    input.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(() => this.setFilter(input.value, false), 120);
      byId("filterhelp").hidden = true;
    });
    input.addEventListener("focus", () => (byId("filterhelp").hidden = false));
    input.addEventListener("blur", () => setTimeout(() => (byId("filterhelp").hidden = true), 150));
    /** @param {string} id @param {() => void} act */
    const button = (id, act) => byId(id).addEventListener("click", act);
    button("errors", () => this.setFilter(toggled(input.value, "is:error")));
    button("path", () => this.setPath(!store.showPath));
    button("help", () => this.help());
    button("whole", () => {
      store.setRange(0, store.end);
      this.focusView();
    });
    button("clear", () => this.clearFilter());
    /** @type {HTMLButtonElement} */ (byId("path")).disabled = !store.meta.path.steps.length;
  }

  // --- Views ---

  /** With `isByKey`, or if the focused element becomes hidden, the focus moves to the view.
   * @param {ViewName} key @param {(() => void) | null} [then] @param {boolean} [isByKey] */
  show(key, then = null, isByKey = false) {
    const { store, views } = this;
    this.hideTip();
    const wasInside = this.main.contains(document.activeElement);
    this.view = key;
    for (const [each, label] of this.shownTabs) {
      views[each].root.hidden = each !== key;
      const tab = byId(`tab-${each}`);
      tab.setAttribute("aria-selected", String(each === key));
      tab.tabIndex = each === key ? 0 : -1;
      if (each === key) tab.scrollIntoView({ block: "nearest", inline: "nearest" });
      if (isByKey && each === key) this.say(label);
    }
    document.body.dataset.view = key;
    this.nothing();
    views[key].resize();
    if (key === "timeline" && store.chosenRow >= 0) views.timeline.focus(store.chosenRow);
    this.writeHash();
    if (then) then();
    if (isByKey || wasInside) this.focusView();
  }

  focusView() {
    const scroller = this.views[this.view].root.querySelector(".scroller");
    if (scroller instanceof HTMLElement) scroller.focus({ preventScroll: true });
  }

  /** @param {Change} what */
  update(what) {
    if (what === "notice") return this.status();
    if (what === "selection") {
      const wasInside = this.details.root.contains(document.activeElement);
      this.details.update();
      if (wasInside && this.details.root.hidden) this.focusView();
    }
    for (const [key] of this.shownTabs) this.views[key].update(what);
    this.status();
    if (what === "selection") this.announce();
    this.writeHash();
  }

  status() {
    const { store } = this;
    byId("whole").hidden = store.isWhole;
    byId("range").textContent = store.isWhole ? "" : `${duration(store.range[0])} – ${duration(store.range[1])}`;
    byId("hidden").textContent = store.notice || (store.isFiltered ? `${number(store.kept)} of ${counted(store.count, "span")}, ${number(store.count - store.kept)} hidden` : "");
    byId("clear").hidden = !store.isFiltered && !this.input.value;
    byId("errors").setAttribute("aria-pressed", String(store.query.includes("is:error")));
    byId("path").setAttribute("aria-pressed", String(store.showPath));
    this.nothing();
  }

  /** Shown instead of an empty view: that nothing matches the filter, and how to clear it. */
  nothing() {
    const { store } = this;
    const box = byId("nothing");
    box.hidden = !store.isFiltered || store.kept > 0 || this.view === "findings";
    if (box.hidden || this.unmatched === store.query) return;
    this.unmatched = store.query;
    emptied(box, el("p", {}, el("strong", {}, `No span matches “${shortened(safe(store.query), 200)}”`)),
      el("p", { class: "soft" }, "Plain words search the names of functions, classes and spans. Clear the search field to see the other filters."),
      el("button", { type: "button", onclick: () => this.clearFilter() }, "Clear filter"));
  }

  /** Announce a text to screen readers.
   * @param {string} text */
  say(text) {
    byId("live").textContent = text;
  }

  /** Copy a text, and say for a while whether it worked.
   * @param {string} text */
  async copy(text) {
    const copied = window.navigator.clipboard ? window.navigator.clipboard.writeText(text) : Promise.reject(new Error("no clipboard"));
    this.store.report(await copied.then(() => "Copied", () => "Your browser does not let this page copy"));
    setTimeout(() => this.store.report(""), 3000);
  }

  announce() {
    const { store } = this;
    const chosen = store.selection;
    if (!chosen) this.say("Nothing selected");
    else if (chosen.type === "span") this.say(spanTip(store, store.chosenRow).join(", "));
    else this.say(`Selected: ${this.selectionLabel(chosen)}`);
  }

  /** Show a tooltip near the pointer; above it if `isAbove`.
   * @param {MouseEvent} event @param {(string | null)[]} lines @param {boolean} [isAbove] */
  tip(event, lines, isAbove = false) {
    const tip = byId("tip");
    tip.hidden = false;
    emptied(tip, lines.filter((line) => line).map((line, n) => el(n ? "div" : "strong", {}, shortened(String(line), 160))));
    const box = tip.getBoundingClientRect();
    const x = event.clientX + 14, y = event.clientY + 16;
    tip.style.left = `${Math.max(4, Math.min(x, window.innerWidth - box.width - 8))}px`;
    tip.style.top = `${isAbove || y + box.height > window.innerHeight - 8 ? event.clientY - box.height - 10 : y}px`;
  }

  hideTip() {
    byId("tip").hidden = true;
  }

  // --- Selection ---

  /** @param {number} row @param {boolean} [isFocused] */
  selectSpan(row, isFocused = true) {
    const { store } = this;
    if (store.isHidden(row)) this.say("The filter hides that span");
    store.select({ type: "span", row });
    if (isFocused && this.view === "timeline") this.views.timeline.focus(row);
  }

  /** @param {number} name */
  selectName(name) {
    const { store } = this;
    store.select({ type: "rows", label: store.shownNames[name], name });
  }

  /** Select a function by its number in the whole call graph.
   * @param {number} id */
  selectFunction(id) {
    this.store.setApart(false);
    this.store.select({ type: "function", id });
  }

  /** @param {number[]} rows @param {string} label */
  showRows(rows, label) {
    this.store.select({ type: "rows", rows, label });
    this.show("timeline", () => this.views.timeline.focus(rows[0]));
  }

  /** @param {CallEdge | DataEdge} edge @param {EdgeKind} kind */
  selectEdge(edge, kind) {
    const { store } = this;
    const { functions } = store.meta.graph;
    const rows = [];
    for (let i = 0; i < store.count; i++) if (store.node[i] === edge.to + 1 && (kind === "data" || store.callerOf(i) === edge.from)) rows.push(i);
    store.select({ type: "edge", from: edge.from, to: edge.to, kind, edge, rows, label: `${functions[edge.from].label} → ${functions[edge.to].label}` });
  }

  /** @param {Chosen} chosen @returns {string} */
  selectionLabel({ type, id = -1, row = -1, label }) {
    const { meta } = this.store;
    if (type === "function") return safe(meta.graph.functions[id].label);
    if (type === "flame") return this.views.flame.label(id);
    if (type === "place") return safe(meta.places[id].label);
    return type === "span" ? this.store.label(row) : safe(label || "Selected spans");
  }

  // --- Filter, moment, critical path ---

  /** @param {string} text @param {boolean} [isWritten] */
  async setFilter(text, isWritten = true) {
    if (isWritten) this.input.value = text;
    await this.filter.apply(text);
  }

  clearFilter() {
    this.setFilter("");
    this.focusView();
  }

  /** @param {string} key @param {unknown} value */
  addFilter(key, value) {
    this.setFilter(narrowed(this.input.value, key, shown(value)));
  }

  /** @param {number} moment */
  setMoment(moment) {
    const { store } = this;
    store.moment = Math.max(0, Math.min(store.end, moment));
    store.momentShown = true;
    store.changed("moment");
  }

  /** @param {number} moment */
  openStackAt(moment) {
    this.setMoment(moment);
    this.show("stack");
  }

  /** @param {boolean} isShown */
  setPath(isShown) {
    this.store.showPath = isShown && this.store.meta.path.steps.length > 0;
    this.store.changed("path");
  }

  /** The button that shows each actor apart; null if no class has several.
   * @returns {HTMLButtonElement | null} */
  apartButton() {
    const { store } = this;
    if (!store.other) return null;
    const button = el("button", { type: "button", "aria-pressed": "false", title: "Each actor by itself, or all of a class as one", onclick: () => store.setApart(!store.isApart) }, "By actor");
    store.listen((what) => what === "apart" && button.setAttribute("aria-pressed", String(store.isApart)));
    return button;
  }

  recolour() {
    this.colours.update();
    for (const [key] of this.shownTabs) this.views[key].update("range");
  }

  help() {
    if (this.helpBox.open) this.helpBox.close();
    else this.helpBox.showModal();
  }

  // --- Keyboard ---

  keyboard() {
    document.addEventListener("keydown", (event) => {
      const target = event.target instanceof HTMLElement ? event.target : document.body;
      const isSlider = target instanceof HTMLInputElement && target.type === "range";
      const action = actionOf({
        key: event.key, view: this.view, isSlider, isTyping: /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName) && !isSlider,
        hasModifier: event.ctrlKey || event.metaKey || event.altKey, isHelpOpen: this.helpBox.open,
      }, this.shownTabs.length);
      if (action && this.act(action, target) && action.act !== "escape" && action.act !== "leave") event.preventDefault();
    });
    this.tabs.addEventListener("keydown", (event) => {
      const next = tabAfter(event.key, this.shownTabs.findIndex(([key]) => key === this.view), this.shownTabs.length);
      if (next < 0) return;
      event.stopPropagation();
      event.preventDefault();
      this.show(this.shownTabs[next][0]);
      byId(`tab-${this.view}`).focus();
    });
  }

  /** Performs the action of a key, and returns whether there was anything to do.
   * @param {import("./keys.js").Action} action @param {HTMLElement} target */
  act(action, target) {
    const { store, views } = this;
    switch (action.act) {
      case "tab": this.show(this.shownTabs[action.tab][0], null, true); break;
      case "leave": target.blur(); break;
      case "escape": this.escape(); break;
      case "search": this.input.focus(); this.input.select(); break;
      case "help": this.help(); break;
      case "larger": views.logical.zoom(1.2); break;
      case "smaller": views.logical.zoom(1 / 1.2); break;
      case "in": store.zoom(ZOOM); break;
      case "out": store.zoom(1 / ZOOM); break;
      case "left": store.pan(-STEP); break;
      case "right": store.pan(STEP); break;
      case "whole": store.setRange(0, store.end); break;
      case "path": this.setPath(!store.showPath); break;
      case "close-up":
        if (store.chosenRow < 0) return false;
        views.timeline.focus(store.chosenRow, true);
        break;
      case "details":
        if (target.getAttribute("role") !== "application" || !store.selection) return false;
        this.details.root.focus();
        break;
      case "arrow": {
        const next = store.chosenRow < 0 ? views.timeline.firstBar() : views.timeline.neighbour(store.chosenRow, action.key);
        if (next >= 0) this.selectSpan(next);
      }
    }
    return true;
  }

  escape() {
    if (this.helpBox.open) this.helpBox.close();
    else if (this.store.selection) this.store.select(null);
    else if (this.store.isFiltered) this.setFilter("");
  }

  // --- The address, which records the state of the page ---

  writeHash() {
    if (this.isReading) return;
    const { store } = this;
    const chosen = store.selection;
    const hash = written({
      view: this.view, range: store.isWhole ? null : [store.range[0], store.range[1]], query: store.query, showPath: store.showPath || !store.meta.path.steps.length,
      apart: store.other && store.isApart !== store.meta.apart?.first ? store.isApart : null, part: this.views.findings.opened, dataset: this.view === "datasets" ? this.views.datasets.shown : -1, moment: store.momentShown ? store.moment : null, span: store.chosenRow,
      function: store.chosenId("function"), flame: store.chosenId("flame"), place: store.chosenId("place"), name: chosen?.name ?? -1,
    });
    if (hash !== location.hash) history.replaceState(null, "", hash);
  }

  async readHash() {
    const { store, views } = this;
    const asked = read(location.hash);
    this.isReading = true;
    store.setApart(asked.apart ?? store.meta.apart?.first ?? false);
    views.findings.openPart(asked.part);
    await this.setFilter(asked.query);
    this.setPath(asked.showPath);
    if (asked.moment !== null) {
      store.moment = Math.min(store.end, asked.moment);
      store.momentShown = true;
    }
    const [from, to] = asked.range ?? [0, store.end];
    store.setRange(from, to);
    views.timeline.resize();
    views.datasets.choose(asked.dataset);
    this.show(this.shownTabs.find(([key]) => key === asked.view)?.[0] ?? this.shownTabs[0][0]);
    this.selectAsked(asked);
    this.isReading = false;
    this.status();
    this.writeHash();
  }

  /** @param {import("./address.js").Address} asked */
  selectAsked(asked) {
    const { store } = this;
    const { graph, flame, places } = store.meta;
    const limits = { function: graph.functions.length, flame: flame.parent.length, place: places.length, name: store.names.length };
    const group = GROUPS.find((each) => asked[each] >= 0 && asked[each] < limits[each]);
    if (asked.span >= 0 && asked.span < store.count) this.selectSpan(asked.span);
    else if (group === "name") this.selectName(asked.name);
    else if (group) store.select({ type: group, id: asked[group] });
    else if (store.selection) store.select(null);
  }
}

async function begin() {
  const status = byId("loading");
  if (typeof DecompressionStream === "undefined") {
    status.textContent = "This browser is too old to unpack the page: use Chrome 80, Firefox 113, Safari 16.4 or later.";
    return;
  }
  try {
    const began = performance.now();
    /** @type {[Meta, Columns]} */
    const [meta, columns] = await Promise.all([readJson(embedded("meta")), readColumns(embedded("columns"))]);
    const store = new Store(meta, spanColumns(columns), new Details(embedded("details"), meta.chunk));
    store.layOut();
    const app = new App(store);
    status.remove();
    await app.readHash();
    Object.assign(window, { insight: { app, store, loaded: performance.now() - began } });
    document.body.dataset.ready = "true";
  } catch (error) {
    status.textContent = `The page could not be read: ${error instanceof Error ? error.message : error}`;
    throw error;
  }
}

begin();
