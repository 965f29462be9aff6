// The page: tabs, the shared selection, the keyboard, and the state in the address.

const VIEWS = [["findings", "Findings", Findings], ["timeline", "Timeline", Timeline], ["flame", "Flame graph", Flame], ["logical", "Logical", Logical],
  ["physical", "Physical", Physical], ["stack", "Stack", Stack], ["spans", "Spans", SpanTable]];

const KEYS = [["1 – 7", "Views"], ["W  S", "Zoom in and out"], ["A  D", "Move left and right"], ["F", "Zoom to the selected span"], ["0", "The whole run"],
  ["← →", "Span before and after, in its lane"], ["↑ ↓", "Parent, first child"], ["Enter", "To the details"], ["/", "Search and filter"], ["C", "Critical path"], ["T", "Light or dark"], ["Esc", "Close, deselect, clear the filter"], ["?", "This list"]];

class App {
  constructor(store) {
    this.store = store;
    this.colours = new Colours(store);
    this.filter = new Filter(store, this);
    this.views = {};
    this.view = "findings";
    this.main = document.getElementById("views");
    for (const [key, label, View] of VIEWS) {
      const view = (this.views[key] = new View(store, this.colours, this));
      Object.assign(view.root, { id: `view-${key}`, hidden: true });
      view.root.setAttribute("role", "tabpanel");
      view.root.setAttribute("aria-labelledby", `tab-${key}`);
      this.main.append(view.root);
      document.getElementById("tabs").append(el("button", { type: "button", role: "tab", id: `tab-${key}`, "aria-controls": `view-${key}`, onclick: () => this.show(key) }, label));
    }
    this.details = new DetailsPanel(store, this.colours, this);
    this.details.root.hidden = true;
    document.getElementById("content").append(this.details.root);
    this.head();
    store.listen((what) => this.update(what));
    this.keyboard();
    window.addEventListener("hashchange", () => this.readHash());
    window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.recolour());
    new ResizeObserver(() => this.resize()).observe(this.main);
    document.getElementById("tabs").addEventListener("keydown", (event) => {
      if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
      event.stopPropagation();
      const at = VIEWS.findIndex(([key]) => key === this.view) + (event.key === "ArrowLeft" ? -1 : 1);
      this.show(VIEWS[(at + VIEWS.length) % VIEWS.length][0]);
      document.getElementById(`tab-${this.view}`).focus();
    });
  }

  head() {
    const { meta } = this.store;
    document.getElementById("source").textContent = safe(meta.source);
    const began = new Date(meta.start_ms);
    const two = (n) => String(n).padStart(2, "0");
    const day = `${began.getFullYear()}-${two(began.getMonth() + 1)}-${two(began.getDate())}`;
    document.getElementById("size").textContent = `${day} ${clock(meta.start_ms, 1e9)} · ${duration(meta.extent)} · ${counted(meta.spans, "span")}`;
    this.input = document.getElementById("search");
    let timer = 0;
    this.input.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(() => this.setFilter(this.input.value, false), 120);
    });
    this.input.addEventListener("focus", () => this.filterHelp(true));
    this.input.addEventListener("blur", () => setTimeout(() => this.filterHelp(false), 150));
    const errors = document.getElementById("errors");
    errors.addEventListener("click", () => {
      const has = this.filter.tokens(this.input.value).some(({ text }) => text === "is:error");
      this.setFilter(has ? this.input.value.replace(/\s*is:error/, "") : `${this.input.value} is:error`.trim());
    });
    document.getElementById("path").addEventListener("click", () => this.setPath(!this.store.showPath));
    document.getElementById("theme").addEventListener("click", () => this.toggleTheme());
    document.getElementById("help").addEventListener("click", () => this.help());
    document.getElementById("whole").addEventListener("click", () => this.store.setRange(0, this.store.end));
    document.getElementById("clear").addEventListener("click", () => this.setFilter(""));
    document.getElementById("path").disabled = !meta.path.steps.length;
    emptied(document.getElementById("keys"), KEYS.map(([key, what]) => [el("dt", {}, el("kbd", {}, key)), el("dd", {}, what)]).flat());
    emptied(document.getElementById("filterhelp"), el("dl", {}, FILTER_HELP.map(([example, what]) => [el("dt", {}, el("code", {}, example)), el("dd", {}, what)]).flat()));
  }

  filterHelp(isShown) {
    document.getElementById("filterhelp").hidden = !isShown;
  }

  // --- What is shown ---

  show(key, then = null) {
    if (!this.views[key]) return;
    this.tip(null);
    this.view = key;
    for (const [each] of VIEWS) {
      this.views[each].root.hidden = each !== key;
      const tab = document.getElementById(`tab-${each}`);
      tab.setAttribute("aria-selected", String(each === key));
      tab.tabIndex = each === key ? 0 : -1;
    }
    document.body.dataset.view = key;
    this.views[key].resize();
    this.views[key].redraw?.();
    if (key === "timeline" && this.store.selection?.type === "span") this.views.timeline.focus(this.store.selection.row);
    this.writeHash();
    if (then) then();
  }

  resize() {
    this.views[this.view].resize();
  }

  update(what) {
    if (what === "notice") return this.status();
    if (what === "tiles") return this.views.timeline.redraw();
    if (what === "selection") this.details.update(what);
    for (const [key] of VIEWS) this.views[key].update(what);
    this.status();
    if (what === "selection") this.announce();
    this.writeHash();
  }

  status() {
    const { store } = this;
    const isWhole = store.isWhole;
    document.getElementById("whole").hidden = isWhole;
    document.getElementById("range").textContent = isWhole ? "" : `${duration(store.range[0])} – ${duration(store.range[1])}`;
    const hidden = store.total - store.kept;
    document.getElementById("hidden").textContent = store.notice || (store.keep ? `${number(store.kept)} of ${counted(store.total, "span")}, ${number(hidden)} hidden` : "");
    document.getElementById("clear").hidden = !store.keep && !this.input.value;
    document.getElementById("errors").setAttribute("aria-pressed", String(store.query.includes("is:error")));
    document.getElementById("path").setAttribute("aria-pressed", String(store.showPath));
  }

  say(text) {
    document.getElementById("live").textContent = text;
  }

  announce() {
    const { store } = this;
    const chosen = store.selection;
    if (!chosen) return this.say("Nothing selected");
    if (chosen.type === "span") this.say(spanTip(store, chosen.row).join(", "));
    else this.say(`Selected: ${this.selectionLabel(chosen)}`);
  }

  tip(event, lines) {
    const tip = document.getElementById("tip");
    tip.hidden = !event;
    if (!event) return;
    emptied(tip, lines.filter(Boolean).map((line, n) => el(n ? "div" : "strong", {}, shortened(String(line), 160))));
    const box = tip.getBoundingClientRect();
    const x = event.clientX + 14, y = event.clientY + 16;
    tip.style.left = `${Math.max(4, Math.min(x, window.innerWidth - box.width - 8))}px`;
    tip.style.top = `${y + box.height > window.innerHeight - 8 ? event.clientY - box.height - 10 : y}px`;
  }

  // --- Selecting ---

  selectSpan(row, focus = true) {
    if (this.store.isHidden(row)) this.say("That span is hidden by the filter");
    this.store.select({ type: "span", row });
    if (focus && this.view === "timeline") this.views.timeline.focus(row);
  }

  selectSame(row) {
    const { store } = this;
    this.selectName(store.name[row]);
  }

  selectName(name) {
    const { store } = this;
    const rows = [];
    for (let i = 0; i < store.count; i++) if (store.name[i] === name) rows.push(i);
    store.select({ type: "rows", rows, label: store.shownNames[name], name });
  }

  showRows(rows, label) {
    this.store.select({ type: "rows", rows, label });
    this.show("timeline", () => this.views.timeline.focus(rows[0]));
  }

  selectEdge(edge, kind) {
    const { store } = this;
    const rows = [];
    for (let i = 0; i < store.count; i++) {
      if (store.node[i] !== edge.to + 1) continue;
      const caller = this.callerOf(i);
      if (kind === "data" || caller === edge.from) rows.push(i);
    }
    const { functions } = store.meta.graph;
    store.select({ type: "edge", from: edge.from, to: edge.to, kind, edge, rows, label: `${functions[edge.from].label} → ${functions[edge.to].label}` });
    store.matched = new Uint8Array(store.count);
    for (const row of rows) store.matched[row] = 1;
    store.changed("selection");
  }

  // The function that a span's call was made in, or -1.
  callerOf(row) {
    const { store } = this;
    const from = store.submission[row] >= 0 ? store.submission[row] : row;
    for (let above = store.parent[from], n = 0; above >= 0 && n < 10000; above = store.parent[above], n++) {
      if (store.kind(above) !== PRODUCER && store.node[above]) return store.node[above] - 1;
    }
    return -1;
  }

  selectionLabel(chosen) {
    const { store } = this;
    if (chosen.type === "function") return safe(store.meta.graph.functions[chosen.id].label);
    if (chosen.type === "flame") return this.views.flame.label(chosen.id);
    if (chosen.type === "place") return safe(store.meta.places[chosen.id].label);
    if (chosen.type === "span") return store.label(chosen.row);
    return safe(chosen.label || "Selected spans");
  }

  selectionFigures(chosen) {
    const { store, details } = this;
    if (chosen.type === "function") {
      const each = store.meta.graph.functions[chosen.id];
      return details.pairs([["Calls", number(each.count)], ["Errors", number(each.errors)], ["Run, all", duration(each.total)], ["Run, median", duration(each.p50)], ["Run, p95", duration(each.p95)],
        ["Run, max", duration(each.max)], each.queue_p50 !== null ? ["Queue, median", duration(each.queue_p50)] : null, each.queue_max !== null ? ["Queue, max", duration(each.queue_max)] : null,
        each.actors ? ["Actors", number(each.actors)] : null, each.path ? ["On the critical path", duration(each.path)] : null]);
    }
    if (chosen.type === "flame") {
      const { flame } = store.meta;
      return details.pairs([["Stack", this.views.flame.stackText(chosen.id)], ["Spans", number(flame.count[chosen.id])], ["Summed", duration(flame.total[chosen.id])], ["Wall", duration(flame.wall[chosen.id])],
        ["Self", duration(flame.self[chosen.id])]]);
    }
    if (chosen.type === "place") {
      const place = store.meta.places[chosen.id];
      return details.pairs([["Node", safe(store.meta.nodes[place.node].label)], ["About", place.detail], ["Placement group", place.group], ...Object.entries(place.facts || {}).map(([key, value]) => [key, safe(shown(value))])]);
    }
    if (chosen.type === "edge") {
      const { edge } = chosen;
      return details.pairs(chosen.kind === "data"
        ? [["Objects", number(edge.count)], ["Readers", number(edge.readers)], ["Size", edge.bytes ? bytes(edge.bytes) : "not known"]]
        : [["Calls", number(edge.count)], ["Errors", number(edge.errors)], ["Run, all", duration(edge.total)], ["Run, median", duration(edge.p50)], ["Run, p95", duration(edge.p95)]]);
    }
    return null;
  }

  // --- Filter, moment, path, colours ---

  setFilter(text, write = true) {
    if (write) this.input.value = text;
    return this.filter.apply(text);
  }

  addFilter(key, value) {
    const text = shown(value).slice(0, 200);
    const token = `${key}=${text}`;
    this.setFilter(`${this.input.value} ${/[\s"]/.test(token) ? `"${token.replaceAll('"', "")}"` : token}`.trim());
  }

  setMoment(moment) {
    this.store.moment = Math.max(0, Math.min(this.store.end, moment));
    this.store.momentShown = true;
    this.store.changed("moment");
  }

  openStackAt(moment) {
    this.setMoment(moment);
    this.show("stack");
  }

  setPath(isShown) {
    this.store.showPath = isShown && this.store.meta.path.steps.length > 0;
    this.store.changed("path");
  }

  toggleTheme() {
    const root = document.documentElement;
    root.dataset.theme = this.colours.isDark ? "light" : "dark";
    this.recolour();
    this.writeHash();
  }

  recolour() {
    this.colours.update();
    this.views.timeline.hatching = null;
    for (const [key] of VIEWS) this.views[key].update("range");
    this.views[this.view].redraw?.();
  }

  help() {
    const dialog = document.getElementById("helpbox");
    if (dialog.open) dialog.close();
    else dialog.showModal();
  }

  // --- Keyboard ---

  keyboard() {
    document.addEventListener("keydown", (event) => {
      const isTyping = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName) && event.target.type !== "range";
      if (event.key === "Escape") return this.escape(isTyping);
      if (isTyping || event.ctrlKey || event.metaKey || event.altKey || document.getElementById("helpbox").open && event.key !== "?") return;
      const { store } = this;
      const { timeline } = this.views;
      const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
      const index = Number(key) - 1;
      if (key >= "1" && key <= "9" && VIEWS[index]) this.show(VIEWS[index][0]);
      else if (key === "/") this.input.focus(), this.input.select();
      else if (key === "?") this.help();
      else if (key === "w") timeline.zoom(0.7);
      else if (key === "s") timeline.zoom(1 / 0.7);
      else if (key === "a") timeline.pan(-0.15);
      else if (key === "d") timeline.pan(0.15);
      else if (key === "0") store.setRange(0, store.end);
      else if (key === "c") this.setPath(!store.showPath);
      else if (key === "t") this.toggleTheme();
      else if (key === "f") {
        if (store.selection?.type === "span") timeline.focus(store.selection.row, true);
        else return;
      } else if (key === "Enter" && event.target.getAttribute("role") === "application" && store.selection) this.details.root.focus();
      else if (key.startsWith("Arrow") && this.view === "timeline" && event.target.type !== "range") {
        const from = store.selection?.type === "span" ? store.selection.row : -1;
        const next = from < 0 ? timeline.firstBar() : timeline.neighbour(from, key);
        if (next >= 0) this.selectSpan(next);
      } else return;
      event.preventDefault();
    });
  }

  escape(isTyping) {
    const dialog = document.getElementById("helpbox");
    if (dialog.open) return dialog.close();
    if (isTyping) return document.activeElement.blur();
    if (this.store.selection) this.store.select(null);
    else if (this.store.keep) this.setFilter("");
  }

  // --- The address: what is looked at can be passed on ---

  writeHash() {
    if (this.reading) return;
    const { store } = this;
    const parts = { view: this.view };
    if (!store.isWhole) parts.t = `${Math.round(store.range[0])}-${Math.round(store.range[1])}`;
    if (store.query) parts.q = store.query;
    if (store.showPath) parts.path = "1";
    if (store.momentShown) parts.at = Math.round(store.moment);
    const chosen = store.selection;
    if (chosen?.type === "span") parts.span = store.numberOf(chosen.row);
    else if (chosen && ["function", "flame", "place"].includes(chosen.type)) parts[chosen.type] = chosen.id;
    else if (chosen?.name !== undefined) parts.name = chosen.name;
    if (document.documentElement.dataset.theme) parts.theme = document.documentElement.dataset.theme;
    const hash = "#" + new URLSearchParams(parts);
    if (hash !== location.hash) history.replaceState(null, "", hash);
  }

  async readHash() {
    const asked = new URLSearchParams(location.hash.slice(1));
    const { store } = this;
    this.reading = true;
    const index = (name, limit) => {
      const found = asked.has(name) ? Number(asked.get(name)) : -1;
      return Number.isInteger(found) && found >= 0 && found < limit ? found : -1;
    };
    const theme = asked.get("theme");
    if (theme === "light" || theme === "dark") {
      document.documentElement.dataset.theme = theme;
      this.recolour();
    }
    await this.setFilter(asked.get("q") || "");
    store.showPath = asked.get("path") === "1" && store.meta.path.steps.length > 0;
    const at = Number(asked.get("at"));
    if (asked.has("at") && at >= 0) {
      store.moment = Math.min(store.end, at);
      store.momentShown = true;
    }
    const range = /^(\d+)-(\d+)$/.exec(asked.get("t") || "");
    if (range) store.setRange(Number(range[1]), Number(range[2]));
    else store.setRange(0, store.end);
    this.views.timeline.resize();
    const view = VIEWS.some(([key]) => key === asked.get("view")) ? asked.get("view") : "findings";
    this.show(view);
    const row = asked.has("span") ? await store.rowAt(Number(asked.get("span"))) : -1, name = index("name", store.names.length);
    const other = [["function", store.meta.graph.functions.length], ["flame", store.meta.flame.parent.length], ["place", store.meta.places.length]]
      .map(([type, limit]) => ({ type, id: index(type, limit) })).find(({ id }) => id >= 0);
    if (row >= 0) this.selectSpan(row);
    else if (other) store.select(other);
    else if (name >= 0) this.selectName(name);
    else if (store.selection) store.select(null);
    this.reading = false;
    this.status();
    this.writeHash();
  }
}

async function begin() {
  const status = document.getElementById("loading");
  if (typeof DecompressionStream === "undefined") {
    status.textContent = "This browser is too old to unpack the page: it needs Chrome 80, Firefox 113, Safari 16.4 or a later one.";
    return;
  }
  try {
    const began = performance.now();
    const [meta, columns] = await Promise.all([readJson(embedded("meta")), readColumns(embedded("columns"))]);
    const store = meta.served ? new ServedStore(meta, columns, null) : new Store(meta, columns, new Details(embedded("details"), meta.chunk));
    const app = new App(store);
    status.remove();
    await app.readHash();
    window.insight = { app, store, loaded: performance.now() - began };
    document.body.dataset.ready = "true";
  } catch (error) {
    status.textContent = `The page could not be read: ${error.message}`;
    throw error;
  }
}

begin();
