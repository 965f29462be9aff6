// What is open at one moment, inside what, over all processes: a stack that spans the cluster.

class Stack {
  constructor(store, colours, app) {
    Object.assign(this, { store, colours, app });
    this.slider = el("input", { type: "range", min: 0, max: 10000, step: 1, "aria-label": "Moment", oninput: () => app.setMoment((this.slider.value / 10000) * store.end) });
    this.when = el("output", {});
    this.note = el("p", { class: "note", role: "status" });
    this.body = el("div", { class: "scroller plain", tabindex: 0 });
    const jump = (label, title, moment) => el("button", { type: "button", title, onclick: () => app.setMoment(moment()) }, label);
    this.root = el("div", { class: "view stack" },
      el("div", { class: "viewbar" }, el("label", { class: "moment" }, "At ", this.slider, this.when),
        jump("Busiest", "When most executions ran at once", () => store.busiest()), jump("End", "The last moment that was recorded", () => store.end), this.note),
      this.body);
  }

  resize() {
    this.redraw();
  }

  redraw() {
    if (this.root.hidden || this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => {
      this.pending = false;
      if (!this.root.hidden) this.draw();
    });
  }

  draw() {
    const { store } = this;
    const { moment } = store;
    const { open, count, hidden } = store.openAt(moment);
    this.slider.value = Math.round((moment / (store.end || 1)) * 10000);
    this.when.textContent = ` ${duration(moment)} · ${clock(store.meta.start_ms + moment / 1e6)}`;
    const shown = open.slice(0, MOST_OPEN);
    const all = new Set(shown);
    // What is above an open span is shown too, although it may have ended: a caller does not wait for what it calls.
    for (const row of shown) {
      for (let above = store.parent[row], n = 0; above >= 0 && !all.has(above) && n < 1000; above = store.parent[above], n++) all.add(above);
    }
    const children = new Map([[-1, []]]);
    for (const row of [...all].sort((a, b) => store.start[a] - store.start[b] || a - b)) {
      const above = all.has(store.parent[row]) ? store.parent[row] : -1;
      if (!children.has(above)) children.set(above, []);
      children.get(above).push(row);
    }
    const oldest = this.oldest(shown, children, moment);
    const lines = [];
    const pending = children.get(-1).map((row) => [row, 0]).reverse();
    while (pending.length && lines.length < 2000) {
      const [row, depth] = pending.pop();
      lines.push(this.line(row, depth, moment, row === oldest));
      for (const child of [...(children.get(row) || [])].reverse()) pending.push([child, depth + 1]);
    }
    this.note.textContent = `${counted(count, "span")} open${count > MOST_OPEN ? `, the first ${number(MOST_OPEN)} shown` : ""}`
      + (hidden ? `, ${number(hidden)} more hidden by the filter` : "") + ". Grey: has ended, and is above one that is open.";
    emptied(this.body, this.cycles(), lines.length ? el("table", { class: "figures stack", role: "treegrid" },
      el("thead", {}, el("tr", {}, ["Span", "Open for", "Of", "Where"].map((title, n) => el("th", { scope: "col", class: n === 1 || n === 2 ? "number" : "" }, title)))),
      el("tbody", {}, lines)) : el("p", { class: "empty" }, "Nothing is open at this moment."));
  }

  cycles() {
    const found = this.store.meta.deadlocks || [];
    if (!found.length || this.store.moment < this.store.end) return null;
    return found.map((cycle) => el("p", { class: "warning", role: "alert" }, "They wait for each other: ",
      cycle.map((row, n) => [n ? " → " : "", el("button", { type: "button", class: "link", onclick: () => this.app.selectSpan(row) }, this.store.label(row))]).flat()));
  }

  // The open span without open spans below that is open for longest: what everything may be waiting for.
  oldest(open, children, moment) {
    const leaves = open.filter((row) => !(children.get(row) || []).some((child) => this.store.isOpenAt(child, moment)) && this.store.parent[row] >= 0);
    return leaves.length > 1 ? leaves[0] : -1;
  }

  line(row, depth, moment, isOldest) {
    const { store } = this;
    const isOpen = store.isOpenAt(row, moment);
    const chosen = store.selection?.type === "span" && store.selection.row === row;
    const isMatched = store.matched && store.matched[row];
    const waits = isOpen && store.flags[row] & WAITING ? this.targets(row) : [];
    return el("tr", { class: `${isOpen ? "" : "ended"}${chosen ? " chosen" : isMatched ? " matched" : ""}`, "aria-level": depth + 1, "data-row": row },
      el("td", { class: "stackname" },
        el("span", { class: "indent", style: { "padding-left": `${Math.min(depth, 60) * 18}px` } }),
        el("span", { class: "swatch", style: { background: this.colours.of(row) } }),
        el("button", { type: "button", class: "link", onclick: () => this.app.selectSpan(row, false) }, shortened(store.label(row), 100)),
        store.state(row) === 1 ? el("span", { class: "badge open" }, "running") : store.state(row) === 2 ? el("span", { class: "badge bad" }, "✗ lost") : null,
        isOldest ? el("span", { class: "badge" }, "open for longest") : null,
        store.showPath && store.onPath(row) ? el("span", { class: "badge path" }, "critical path") : null,
        waits.length ? el("span", { class: "soft" }, " waits for ", waits.slice(0, 3).map((other, n) => [n ? ", " : "",
          el("button", { type: "button", class: "link", onclick: () => this.app.selectSpan(other, false) }, shortened(store.label(other), 50))]).flat(), waits.length > 3 ? ` and ${number(waits.length - 3)} more` : "") : null),
      el("td", { class: "number" }, isOpen ? duration(moment - store.start[row]) : ""),
      el("td", { class: "number" }, store.state(row) === 1 ? "" : duration(store.took[row])),
      el("td", {}, store.placeLabel(row)));
  }

  // What a wait waits for: executions, or submissions where none has begun, that have not ended at the moment.
  targets(row) {
    const { store } = this;
    const found = [];
    for (let e = 0; e < store.edgeFrom.length && found.length < 50; e++) {
      const of = store.edgeFrom[e];
      if (store.edgeTo[e] === row && store.edgeKind[e] === 1 && (store.kind(of) === PRODUCER || store.endOf(of) > store.moment || store.state(of) === 1)) found.push(of);
    }
    return found;
  }

  update() {
    this.redraw();
  }
}

const MOST_OPEN = 500;
