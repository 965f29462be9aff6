// The first screen: what the summary says, with the spans that show it.

class Findings {
  constructor(store, colours, app) {
    Object.assign(this, { store, colours, app });
    this.root = el("div", { class: "view findings" }, el("div", { class: "scroller plain", tabindex: 0 }, this.page()));
  }

  page() {
    const { meta } = this.store;
    return el("div", { class: "report" },
      meta.notes.map((note) => el("p", { class: "warning" }, note)),
      this.facts(),
      meta.split ? this.split(meta.split) : null,
      el("section", {}, el("h2", {}, "Findings"), this.findings(meta.findings)),
      el("div", { class: "columns" }, this.path(), this.functions()),
      meta.queues ? this.queues(meta.queues) : null,
      el("section", { class: "quality" }, el("h2", {}, "Data quality"), el("ul", {}, meta.quality.map((line) => el("li", {}, line)))));
  }

  facts() {
    const { meta } = this.store;
    return el("div", { class: "facts" }, meta.facts.map(([label, value, isBad]) => el("div", { class: isBad ? "fact bad" : "fact" },
      el("span", { class: "value" }, value), el("span", { class: "label" }, label))));
  }

  // Where the wall time went, as one bar and a list with the same figures.
  split(split) {
    const parts = split.parts.filter((part) => part.ns > 0);
    return el("section", {}, el("h2", {}, "Where the time went"), el("p", { class: "soft" }, split.of),
      el("div", { class: "splitbar", "aria-hidden": "true" }, parts.map((part, n) => el("span", { class: `part p${n % 8}`, title: `${part.label} ${duration(part.ns)}`, style: { "flex-grow": Math.max(part.share, 0.004) } }))),
      el("ul", { class: "splitlist" }, parts.map((part, n) => el("li", {}, el("span", { class: `key p${n % 8}` }), el("span", {}, part.label),
        el("strong", {}, percent(part.share)), el("span", { class: "soft" }, duration(part.ns))))));
  }

  findings(findings) {
    if (!findings.length) return el("p", { class: "good" }, "Nothing stands out: no failure, no straggler, no bottleneck and no pattern that is known to cost time.");
    return el("ol", { class: "findinglist" }, findings.map((finding) => el("li", { class: finding.level, "data-finding": finding.id },
      el("p", { class: "sentence" }, el("span", { class: "levelmark", "aria-label": finding.level }, { error: "✗", warning: "!", note: "i" }[finding.level] || "i"), finding.text),
      finding.advice ? el("p", { class: "advice" }, finding.advice) : null,
      finding.rows.length ? el("p", { class: "evidence" },
        el("button", { type: "button", onclick: () => this.app.showRows(finding.rows, finding.text) }, `Show ${counted(finding.rows.length, "span")}`),
        finding.rows.slice(0, 3).map((row) => el("button", { type: "button", class: "link", onclick: () => this.app.show("timeline", () => this.app.selectSpan(row)) },
          `${shortened(this.store.label(row), 44)} ${duration(this.store.took[row])}`))) : null)));
  }

  path() {
    const { path } = this.store.meta;
    if (!path.steps.length) return null;
    return el("section", {}, el("h2", {}, "Critical path"), el("p", { class: "soft" }, path.about),
      el("table", { class: "figures" }, el("thead", {}, el("tr", {}, ["What", "Share", "Time"].map((title, n) => el("th", { scope: "col", class: n ? "number" : "" }, title)))),
        el("tbody", {}, path.by.map((each) => el("tr", {},
          el("td", {}, each.function >= 0 ? el("button", { type: "button", class: "link", onclick: () => this.store.select({ type: "function", id: each.function }) }, shortened(safe(each.label), 60)) : each.label),
          el("td", { class: "number bar" }, el("span", { class: "bar", style: { width: `${100 * each.share}%` } }), el("span", {}, percent(each.share))),
          el("td", { class: "number" }, duration(each.ns)))))),
      el("p", {}, el("button", { type: "button", onclick: () => { this.app.setPath(true); this.app.show("timeline"); } }, "Show it on the timeline")));
  }

  functions() {
    const { store } = this;
    const { meta } = store;
    const { top } = meta;
    if (!top.length) return null;
    return el("section", {}, el("h2", {}, "Most time of their own"), el("p", { class: "soft" }, meta.top_about),
      el("table", { class: "figures" }, el("thead", {}, el("tr", {}, ["Function", "Self", "Calls", "Median", "p95", "Max"].map((title, n) => el("th", { scope: "col", class: n ? "number" : "" }, title)))),
        el("tbody", {}, top.map((each) => el("tr", {},
          el("td", {}, el("button", { type: "button", class: "link", onclick: () => this.app.selectName(each.name) }, shortened(safe(each.label), 48)), each.errors ? el("span", { class: "bad" }, ` ✗ ${number(each.errors)}`) : null),
          el("td", { class: "number" }, duration(each.self)), el("td", { class: "number" }, number(each.count)), el("td", { class: "number" }, duration(each.p50)),
          el("td", { class: "number" }, duration(each.p95)), el("td", { class: "number" }, duration(each.max)))))));
  }

  queues(queues) {
    return el("section", {}, el("h2", {}, "Queues"), el("p", { class: "soft" }, queues.about),
      el("table", { class: "figures" }, el("thead", {}, el("tr", {}, queues.titles.map((title, n) => el("th", { scope: "col", class: n ? "number" : "" }, title)))),
        el("tbody", {}, queues.rows.map(([label, calls, ...times]) => el("tr", {}, el("td", {}, shortened(safe(label), 48)), el("td", { class: "number" }, number(calls)),
          times.map((time) => el("td", { class: "number" }, time ? duration(time) : "")))))));
  }

  resize() {}

  update() {}
}
