// What is known of the selection: a span with all of its attributes, links, events and its exception, or a group of spans.

const MOST_VALUE = 4000;

// What an edge is called at its end and at its beginning, by its kind.
const TAKES = ["takes data of", "waits for", "tries again after"];
const GIVES = ["gives data to", "is waited for by", "is tried again as"];

class DetailsPanel {
  constructor(store, colours, app) {
    Object.assign(this, { store, colours, app });
    this.root = el("aside", { class: "details", "aria-label": "Details", tabindex: -1 });
    this.turn = 0;
  }

  async update(what) {
    if (what !== "selection") return;
    const chosen = this.store.selection;
    const turn = ++this.turn;
    this.root.hidden = !chosen;
    document.body.classList.toggle("with-details", !!chosen);
    if (!chosen) return;
    const { store } = this;
    if (chosen.type !== "span") {
      const asked = store.group(chosen);
      const isAsked = asked instanceof Promise;
      if (isAsked) emptied(this.root, this.close(), el("h2", {}, shortened(this.app.selectionLabel(chosen), 200)));
      const group = isAsked ? await asked.catch((error) => store.tell(error)) : asked;
      if (turn === this.turn) emptied(this.root, this.close(), this.groupHead(chosen, group));
      return;
    }
    const row = chosen.row;
    emptied(this.root, this.close(), this.spanHead(row));
    if (store.served) {
      try {
        await store.load(row);
      } catch (error) {
        return store.tell(error);
      }
      if (turn !== this.turn) return;
      emptied(this.root, this.close(), this.spanHead(row));
    }
    const known = await store.detailsOf(row);
    if (turn !== this.turn) return;
    this.root.append(...this.spanBody(row, known));
  }

  close() {
    return el("button", { type: "button", class: "close", "aria-label": "Close details", title: "Close (Esc)", onclick: () => this.store.select(null) }, "×");
  }

  spanLink(row, text = null) {
    return el("button", { type: "button", class: "link", onclick: () => this.app.selectSpan(row) }, text || shortened(this.store.label(row), 80));
  }

  pairs(rows) {
    return el("dl", {}, rows.filter((pair) => pair && pair[1] !== null && pair[1] !== "").map(([key, value]) => [
      el("dt", {}, key), el("dd", {}, value instanceof Node || Array.isArray(value) ? value : safeLines(value))]).flat());
  }

  spanHead(row) {
    const { store } = this;
    const queued = store.queued(row);
    const own = store.submission[row];
    const state = store.state(row);
    const parent = store.parent[row];
    const kind = own >= 0 ? "execution of a call" : store.kind(row) === PRODUCER ? "submission of a call" : KINDS[store.kind(row)];
    const badges = [
      el("span", { class: "badge" }, kind),
      store.failed(row) ? el("span", { class: "badge bad" }, state === 2 ? "✗ lost" : "✗ failed") : null,
      state === 1 ? el("span", { class: "badge open" }, "still running") : null,
      store.onPath(row) ? el("span", { class: "badge path" }, "on the critical path") : null,
    ];
    return el("header", {},
      el("h2", {}, shortened(store.label(row), 200)),
      el("p", { class: "badges" }, badges),
      this.pairs([
        ["Took", duration(store.took[row]) + (state === 1 ? " so far" : state === 2 ? " (the end is estimated)" : "")],
        queued >= 0 ? ["In the queue", duration(queued)] : null,
        own >= 0 ? ["Submitting", duration(store.took[own])] : null,
        ["Began", `${clock(store.meta.start_ms + store.start[row] / 1e6, 1)} · ${duration(store.start[row])} after the start`],
        ["Where", el("button", { type: "button", class: "link", onclick: () => store.select({ type: "place", id: store.place(row) }) }, store.placeLabel(row))],
        parent >= 0 ? ["Parent", this.spanLink(parent)] : null,
        own >= 0 && own !== parent ? ["Submission", this.spanLink(own)] : null,
      ]),
      el("p", { class: "actions" },
        el("button", { type: "button", onclick: () => this.app.show("timeline", () => this.app.views.timeline.focus(row, true)) }, "Zoom to it"),
        el("button", { type: "button", onclick: () => this.app.selectSame(row) }, "All of this name"),
        el("button", { type: "button", onclick: () => this.app.openStackAt(store.start[row] + store.took[row] / 2) }, "Stack at its middle")));
  }

  spanBody(row, known) {
    const { store } = this;
    const parts = [];
    if (known) {
      const exception = known.events.findLast((event) => event[0] === "exception");
      if (exception || known.message) parts.push(this.failure(known, exception));
    }
    parts.push(this.calls(row));
    if (!known) {
      parts.push(el("p", { class: "note" }, store.meta.details_note || "Attributes are not in this file."));
      return parts;
    }
    if (known.attributes.length) parts.push(el("section", {}, el("h3", {}, "Attributes"), this.attributes(known.attributes)));
    const events = known.events.filter((event) => event[0] !== "exception" || known.events.length > 1);
    if (events.length) {
      parts.push(el("section", {}, el("h3", {}, counted(events.length, "event")), events.slice(0, 50).map(([name, at, attributes]) =>
        el("details", {}, el("summary", {}, `${shortened(safe(name), 80)} · ${duration(at - store.start[row])} after its start`), this.attributes(Object.entries(attributes)))),
        events.length > 50 ? el("p", { class: "note" }, `and ${number(events.length - 50)} more`) : null));
    }
    if (known.links.length) {
      parts.push(el("section", {}, el("h3", {}, counted(known.links.length, "link")), known.links.slice(0, 50).map(([trace, span, target, attributes]) =>
        el("details", {}, el("summary", {}, target >= 0 ? this.spanLink(target) : `${trace} ${span}`), this.pairs([["Trace", trace], ["Span", span]]), this.attributes(Object.entries(attributes))))));
    }
    const resource = store.meta.resources[store.resource[row]] || {};
    parts.push(el("section", {}, el("details", {}, el("summary", {}, "Resource"), this.attributes(Object.entries(resource)))));
    parts.push(el("section", {}, el("h3", {}, "Ids"), this.pairs([
      ["Trace", known.trace ?? store.meta.traces[store.trace[row]]], ["Span", known.spanId],
      known.parentId ? ["Parent", `${known.parentId} (not in what was read)`] : null, ["Scope", known.scope],
    ])));
    return parts;
  }

  failure(known, exception) {
    const attributes = exception ? exception[2] : {};
    const kind = attributes["exception.type"], message = attributes["exception.message"], trace = attributes["exception.stacktrace"];
    return el("section", { class: "failure" }, el("h3", {}, "Error"),
      kind ? el("p", { class: "kind" }, shortened(safe(kind), 200)) : null,
      el("pre", {}, cut(shown(message ?? known.message))),
      trace ? el("details", {}, el("summary", {}, "Traceback"), el("pre", {}, cut(shown(trace), 60000))) : null);
  }

  calls(row) {
    const { store } = this;
    const children = store.children(row);
    const edges = [];
    for (let e = 0; e < store.edgeFrom.length && edges.length < 60; e++) {
      if (store.edgeTo[e] === row || (store.submission[row] >= 0 && store.edgeTo[e] === store.submission[row])) edges.push([TAKES[store.edgeKind[e]], store.edgeFrom[e]]);
      else if (store.edgeFrom[e] === row) edges.push([GIVES[store.edgeKind[e]], store.edgeTo[e]]);
    }
    const list = (title, items) => items.length ? el("section", {}, el("h3", {}, title), el("ul", { class: "spans" }, items.slice(0, 40)),
      items.length > 40 ? el("p", { class: "note" }, `and ${number(items.length - 40)} more`) : null) : null;
    const item = (child, before = "") => el("li", {}, before ? el("span", { class: "soft" }, before + " ") : null, this.spanLink(child),
      el("span", { class: "soft" }, ` ${duration(store.took[child])}`), store.failed(child) ? el("span", { class: "bad" }, " ✗") : null);
    const byTime = [...children].sort((a, b) => store.took[b] - store.took[a]);
    return el("div", {}, list(counted(children.length, "child", "children"), byTime.slice(0, 41).map((child) => item(child)).concat(byTime.slice(41).map(() => null))),
      list("Data, waiting, attempts", edges.map(([how, other]) => item(other, how))));
  }

  attributes(pairs) {
    return el("table", { class: "attributes" }, el("tbody", {}, pairs.map(([key, value]) => el("tr", {},
      el("th", { scope: "row" }, shortened(safe(key), 120)),
      el("td", {}, el("span", { class: "value" }, cut(shown(value))),
        el("button", { type: "button", class: "filter-by", title: "Show only spans with this value", "aria-label": `Filter by ${safe(key)}`,
          onclick: () => this.app.addFilter(key, value) }, "⌕"))))));
  }

  groupHead(chosen, group) {
    const { store } = this;
    const { count, failed, p50, p95, max, slowest } = group || { count: 0, slowest: [] };
    return el("header", {},
      el("h2", {}, shortened(this.app.selectionLabel(chosen), 200)),
      group ? el("p", { class: "badges" }, el("span", { class: "badge" }, counted(count, "span")), failed ? el("span", { class: "badge bad" }, `✗ ${counted(failed, "error")}`) : null) : null,
      this.app.selectionFigures(chosen),
      count ? this.pairs([["Median span", duration(p50)], ["Slowest 5 %", `from ${duration(p95)}`], ["Longest span", duration(max)]]) : null,
      count ? el("section", {}, el("h3", {}, "Slowest"), el("ul", { class: "spans" }, slowest.map((row) => el("li", {}, this.spanLink(row),
        el("span", { class: "soft" }, ` ${duration(store.took[row])} · ${store.placeLabel(row)}`), store.failed(row) ? el("span", { class: "bad" }, " ✗") : null)))) : null);
  }
}

function cut(text, most = MOST_VALUE) {
  return text.length <= most ? text : `${text.slice(0, most)}… (${number(text.length)} characters)`;
}
