// Where it ran: nodes, placement groups, workers and actors, filled by the share of the selected range that each was busy.

class Physical {
  constructor(store, colours, app) {
    Object.assign(this, { store, colours, app });
    this.note = el("p", { class: "note" });
    this.body = el("div", { class: "scroller plain", tabindex: 0 });
    this.root = el("div", { class: "view physical" }, el("div", { class: "viewbar" }, this.note), this.body);
    this.stale = true;
  }

  resize() {
    this.redraw();
  }

  redraw() {
    if (this.root.hidden || this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => {
      this.pending = false;
      if (this.root.hidden) return;
      if (this.stale) this.draw();
      this.mark();
    });
  }

  draw() {
    const { store } = this;
    this.stale = false;
    const [from, to] = store.range;
    const figures = (this.figures = store.placeFigures());
    const { meta } = store;
    const onPath = meta.path.places;
    const byNode = meta.nodes.map(() => new Map());
    meta.places.forEach((place, id) => {
      const groups = byNode[place.node];
      if (!groups.has(place.group)) groups.set(place.group, []);
      groups.get(place.group).push(id);
    });
    this.note.textContent = `Filled: share of ${duration(to - from)} (${store.isWhole ? "the whole run" : "the selected range"}) in which something ran there.`
      + (store.keep ? " Only what passes the filter." : "") + store.figuresNote;
    this.boxes = new Map();
    emptied(this.body, meta.nodes.map((node, n) => {
      if (!byNode[n].size) return null;
      const ids = [...byNode[n].values()].flat();
      const used = ids.filter((id) => figures.calls[id] || figures.busy[id]);
      const mean = ids.length ? ids.reduce((sum, id) => sum + figures.busy[id], 0) / (to - from) : 0;
      return el("section", { class: "node" },
        el("h3", {}, safe(node.label), el("span", { class: "soft" }, ` ${node.detail ? safe(node.detail) + " · " : ""}${counted(ids.length, "process or actor", "processes and actors")} · ${mean.toFixed(1)} busy on average`)),
        node.accelerators.length ? el("div", { class: "group" }, el("h4", {}, "Accelerators, filled by the share of the time held in which they were used, in the whole run"),
          el("div", { class: "boxes" }, node.accelerators.map((each) => this.accelerator(each)))) : null,
        [...byNode[n]].map(([group, places]) => el("div", { class: group ? "group named" : "group" },
          group ? el("h4", {}, "Placement group ", el("code", {}, shortened(safe(group), 24))) : null,
          el("div", { class: "boxes" }, [...places].sort((a, b) => figures.busy[b] - figures.busy[a]).map((id) => this.box(id, figures, to - from, onPath))))),
        used.length < ids.length ? el("p", { class: "note" }, `${number(ids.length - used.length)} did nothing in this range.`) : null);
    }));
  }

  // Filled by the share of the time it was held in which something ran on it.
  accelerator({ label, held_by, held, busy, gap }) {
    const holders = safe(held_by[0].replace(/^__main__\./, "")) + (held_by.length > 1 ? ` and ${number(held_by.length - 1)}` : "");
    const share = held ? busy / held : 0;
    return el("div", { class: "place accelerator" },
      el("span", { class: "fill", style: { width: `${100 * share}%` } }),
      el("span", { class: "title" }, shortened(safe(label), 34)),
      el("span", { class: "share" }, percent(share)),
      el("span", { class: "soft" }, `held for ${duration(held)} by ${holders}`),
      el("span", { class: "soft" }, `used for ${duration(busy)}, longest gap ${duration(gap)}`));
  }

  box(id, figures, size, onPath) {
    const { store } = this;
    const { meta } = store;
    const place = meta.places[id];
    const share = Math.min(1, figures.busy[id] / size);
    const box = el("button", { type: "button", class: `place ${place.kind}`, "data-place": id, "aria-pressed": "false",
      onclick: () => store.select({ type: "place", id }) },
      el("span", { class: "fill", style: { width: `${100 * share}%` } }),
      el("span", { class: "title" }, shortened(safe(place.label), 34)),
      el("span", { class: "share" }, percent(share)),
      el("span", { class: "soft" }, shortened(safe(place.detail), 40) || " "),
      el("span", { class: "soft" }, `${counted(figures.calls[id], place.kind === "driver" || !meta.executions ? "span" : "call")}${figures.errors[id] ? ` · ✗ ${number(figures.errors[id])}` : ""}`),
      store.showPath && onPath[id] ? el("span", { class: "pathshare" }, `${percent(onPath[id] / (store.meta.path.total || 1))} of the critical path`) : null);
    this.boxes.set(id, box);
    return box;
  }

  mark() {
    const { store } = this;
    const chosen = store.matchedPlaces();
    for (const [id, box] of this.boxes) {
      box.classList.toggle("chosen", chosen.has(id));
      box.classList.toggle("unlit", chosen.size > 0 && !chosen.has(id));
      box.setAttribute("aria-pressed", String(chosen.has(id)));
    }
  }

  update(what) {
    if (!["selection", "loaded", "group"].includes(what)) this.stale = true;
    this.redraw();
  }
}
