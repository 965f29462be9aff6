// The flame graph: calls merged by their stack over all processes, for the range and the filter in force.

const FLAME_ROW = 20;

class Flame {
  constructor(store, colours, app) {
    Object.assign(this, { store, colours, app });
    this.mode = "summed";
    this.order = "size";
    this.zoomed = -1;
    this.hover = -1;
    this.canvas = el("canvas", { class: "bars", "aria-hidden": "true" });
    this.spacer = el("div", { class: "spacer" });
    this.stage = el("div", { class: "stage" }, this.canvas);
    this.scroller = el("div", {
      class: "scroller", tabindex: 0, role: "application",
      "aria-label": "Flame graph. Arrow keys go to the parent, the largest child and the neighbours; Enter zooms in. The same figures stand in the table below.",
    }, this.stage, this.spacer);
    this.note = el("p", { class: "note" });
    this.table = el("div", { class: "flame-table" });
    const pick = (name, options) => el("div", { class: "segments", role: "group", "aria-label": name },
      options.map(([key, label, title]) => el("button", {
        type: "button", "data-key": key, title, "aria-pressed": String(this[name] === key),
        onclick: (event) => this.pick(name, key, event.target),
      }, label)));
    this.bar = el("div", { class: "viewbar" },
      pick("mode", [["summed", "Summed", "Time of all calls added up: calls that run at once count each"], ["wall", "Wall", "Time in which at least one of the calls ran"]]),
      pick("order", [["size", "Largest first", "Largest child to the left"], ["time", "By time", "In the order in which they first began"]]),
      el("button", { type: "button", class: "quiet", "data-action": "flame-out", onclick: () => this.zoomTo(-1) }, "Zoom out"), this.note);
    this.root = el("div", { class: "view flame" }, this.bar, this.scroller, this.table);
    this.nameNode();
    this.listen();
    this.stale = true;
  }

  nameNode() {
    const { parent } = this.store.meta.flame;
    this.children = parent.map(() => []);
    this.roots = [];
    parent.forEach((above, id) => (above < 0 ? this.roots : this.children[above]).push(id));
  }

  pick(name, key, button) {
    this[name] = key;
    for (const each of button.parentNode.children) each.setAttribute("aria-pressed", String(each === button));
    this.stale = true;
    this.redraw();
  }

  label(id) {
    return this.store.shownNames[this.store.meta.flame.name[id]];
  }

  // Figures, then a box for each node: [left, right] as shares of the width, level by level. No recursion.
  compute() {
    const { store } = this;
    this.figures = store.flameFigures();
    const { parent, first } = store.meta.flame;
    const own = this.mode === "wall" ? this.figures.wall : this.figures.summed;
    const count = parent.length;
    // A stack whose own spans are hidden, but not what is below it, is as large as that.
    const value = Float64Array.from(own), inside = new Float64Array(count);
    for (let id = count - 1; id >= 0; id--) {
      if (!value[id]) value[id] = inside[id];
      if (parent[id] >= 0) inside[parent[id]] += value[id];
    }
    this.value = value;
    const left = (this.left = new Float64Array(count)), size = (this.size = new Float64Array(count));
    const depth = (this.depth = new Uint32Array(count));
    const by = this.order === "size" ? (a, b) => value[b] - value[a] : (a, b) => first[a] - first[b];
    const all = this.zoomed >= 0 ? [this.zoomed] : [...this.roots].sort(by);
    const total = all.reduce((sum, id) => sum + value[id], 0) || 1;
    const pending = [];
    let at = 0;
    this.levels = [];
    const put = (id, x, width, level) => {
      left[id] = x;
      size[id] = width;
      depth[id] = level;
      (this.levels[level] ||= []).push(id);
      if (this.children[id].length && width * 4000 > 1) pending.push(id);
    };
    const above = [];
    for (let id = this.zoomed >= 0 ? parent[this.zoomed] : -1; id >= 0; id = parent[id]) above.unshift(id);
    above.forEach((id, level) => put(id, 0, 1, level));
    pending.length = 0;
    for (const id of all) {
      const width = value[id] / total;
      if (width > 0) put(id, at, width, above.length);
      at += width;
    }
    while (pending.length) {
      const id = pending.pop();
      // Children may take longer than their parent, which does not wait for them: then they share its width.
      const whole = Math.max(value[id], inside[id]);
      let x = left[id];
      for (const child of [...this.children[id]].sort(by)) {
        const width = (size[id] * value[child]) / whole;
        if (width > 0) put(child, x, width, depth[id] + 1);
        x += width;
      }
    }
    this.total = total;
    this.height = this.levels.length * FLAME_ROW + 12;
    this.spacer.style.height = "0px";
    this.note.textContent = (this.mode === "summed"
      ? "Width: time of all calls added up. Children that run at once may exceed their parent and then share its width."
      : "Width: time in which at least one call ran, in any process.") + (store.isWhole ? "" : " Only the selected range.") + (store.keep ? " Only what passes the filter." : "") + store.figuresNote;
    this.fillTable();
    this.stale = false;
  }

  resize() {
    const width = this.scroller.clientWidth, height = this.scroller.clientHeight;
    if (!width || !height) return;
    this.ratio = window.devicePixelRatio || 1;
    this.width = width;
    this.viewHeight = height;
    this.canvas.width = Math.round(width * this.ratio);
    this.canvas.height = Math.round(height * this.ratio);
    this.canvas.style.width = width + "px";
    this.canvas.style.height = height + "px";
    this.stage.style.height = height + "px";
    this.redraw();
  }

  redraw() {
    if (this.pending || this.root.hidden) return;
    this.pending = true;
    requestAnimationFrame(() => {
      this.pending = false;
      if (this.root.hidden) return;
      if (this.stale) this.compute();
      this.spacer.style.height = Math.max(0, this.height - this.viewHeight) + "px";
      this.draw();
    });
  }

  draw() {
    const { store, colours, ratio } = this;
    const { flame, names } = { flame: store.meta.flame, names: store.shownNames };
    const context = this.canvas.getContext("2d", { alpha: false });
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.fillStyle = colours.surface;
    context.fillRect(0, 0, this.width, this.viewHeight);
    context.font = `12px ${SANS}`;
    context.textBaseline = "middle";
    const matched = this.matchedNodes();
    const top = this.scroller.scrollTop;
    const from = Math.floor(top / FLAME_ROW), to = Math.ceil((top + this.viewHeight) / FLAME_ROW);
    for (let level = from; level < Math.min(to, this.levels.length); level++) {
      const y = level * FLAME_ROW - top + 6;
      for (const id of this.levels[level]) {
        const x = this.left[id] * this.width, width = this.size[id] * this.width;
        if (width < 0.3) continue;
        const plain = colours.ofNameIndex(flame.name[id]);
        const isLit = !matched || matched[id];
        context.fillStyle = isLit ? plain : colours.dimmed(plain);
        context.fillRect(x, y, Math.max(0.7, width - 1), FLAME_ROW - 1);
        if (flame.errors[id] && width > 4) {
          context.fillStyle = colours.failed;
          context.fillRect(x, y, Math.min(4, width), FLAME_ROW - 1);
        }
        if (store.showPath && flame.path[id] > 0) {
          context.fillStyle = colours.path;
          context.fillRect(x, y + FLAME_ROW - 5, Math.max(1, width - 1), 4);
        }
        if (width > 26) {
          context.fillStyle = isLit ? colours.text(plain) : colours.soft;
          const share = ` ${percent(this.value[id] / this.total)}`;
          const fits = Math.floor((width - 12) / 6.2);
          const label = shortened(plainName(names[flame.name[id]]), Math.max(2, fits));
          context.fillText(label + (fits > label.length + 9 ? share : ""), x + 6, y + FLAME_ROW / 2 - (store.showPath ? 1.5 : 0), width - 8);
        }
        if (id === this.hover || this.isChosen(id)) {
          context.strokeStyle = this.isChosen(id) ? colours.ink : colours.soft;
          context.lineWidth = 2;
          context.strokeRect(x + 1, y + 1, Math.max(1, width - 3), FLAME_ROW - 3);
        }
      }
    }
    if (!this.levels.length) {
      context.fillStyle = colours.soft;
      context.fillText("No span in this range passes the filter.", 16, 28);
    }
  }

  isChosen(id) {
    const chosen = this.store.selection;
    return chosen && ((chosen.type === "flame" && chosen.id === id) || (chosen.type === "span" && this.store.flame[chosen.row] === id));
  }

  // Nodes that hold a selected span.
  matchedNodes() {
    const { lit: matched } = this.store;
    if (!matched) return null;
    if (this.matchedOf !== matched) {
      this.matchedFound = this.store.matchedStacks();
      this.matchedOf = matched;
    }
    return this.matchedFound;
  }

  fillTable() {
    const { summed, wall, spans } = this.figures;
    const by = this.mode === "wall" ? wall : summed;
    const ids = [...Array(by.length).keys()].filter((id) => spans[id]).sort((a, b) => by[b] - by[a]).slice(0, 100);
    const self = this.store.isWhole && !this.store.keep ? this.store.meta.flame.self : null;
    emptied(this.table, el("table", { class: "figures" },
      el("caption", {}, "The stacks of most time"),
      el("thead", {}, el("tr", {}, ["Stack", "Spans", "Summed", "Wall", ...(self ? ["Self"] : [])].map((title, n) => el("th", { scope: "col", class: n ? "number" : "" }, title)))),
      el("tbody", {}, ids.map((id) => el("tr", { "data-flame": id },
        el("td", {}, el("button", { type: "button", class: "link", title: this.stackText(id), onclick: () => this.store.select({ type: "flame", id }) },
          shortened(this.stackText(id), 110))),
        el("td", { class: "number" }, number(spans[id])), el("td", { class: "number" }, duration(summed[id])), el("td", { class: "number" }, duration(wall[id])),
        self ? el("td", { class: "number" }, duration(self[id])) : null)))));
  }

  stackText(id) {
    const { parent } = this.store.meta.flame;
    const names = [];
    for (let at = id, left = 40; at >= 0 && left; at = parent[at], left--) names.unshift(shortened(this.label(at), 60));
    return names.join(" › ");
  }

  zoomTo(id) {
    this.zoomed = id;
    this.stale = true;
    this.scroller.scrollTop = 0;
    this.redraw();
  }

  at(x, y) {
    const level = Math.floor((y + this.scroller.scrollTop - 6) / FLAME_ROW);
    const share = x / this.width;
    return (this.levels?.[level] || []).find((id) => share >= this.left[id] && share < this.left[id] + this.size[id]) ?? -1;
  }

  listen() {
    const place = (event) => {
      const box = this.stage.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    this.scroller.addEventListener("scroll", () => this.redraw(), { passive: true });
    this.stage.addEventListener("pointermove", (event) => {
      const id = this.at(...place(event));
      if (id !== this.hover) {
        this.hover = id;
        this.redraw();
      }
      this.stage.style.cursor = id >= 0 ? "pointer" : "default";
      if (id < 0) return this.app.tip(null);
      const { spans, summed, wall } = this.figures;
      const { errors } = this.store.meta.flame;
      this.app.tip(event, [this.label(id), `${counted(spans[id], "span")} · ${duration(summed[id])} summed · ${duration(wall[id])} wall`,
        `${percent(this.value[id] / this.total)} of what is shown`, errors[id] ? counted(errors[id], "error") : null].filter(Boolean));
    });
    this.stage.addEventListener("pointerleave", () => {
      this.hover = -1;
      this.app.tip(null);
      this.redraw();
    });
    this.stage.addEventListener("click", (event) => {
      const id = this.at(...place(event));
      this.store.select(id >= 0 ? { type: "flame", id } : null);
    });
    this.stage.addEventListener("dblclick", (event) => {
      const id = this.at(...place(event));
      this.zoomTo(id === this.zoomed ? -1 : id);
    });
    this.scroller.addEventListener("keydown", (event) => {
      const chosen = this.store.selection?.type === "flame" ? this.store.selection.id : -1;
      const { parent } = this.store.meta.flame;
      let next = -1;
      if (event.key === "Enter" && chosen >= 0) return this.zoomTo(chosen === this.zoomed ? -1 : chosen);
      if (event.key === "ArrowUp") next = chosen >= 0 ? parent[chosen] : -1;
      else if (event.key === "ArrowDown") next = (chosen < 0 ? this.roots : this.children[chosen]).reduce((best, id) => (best < 0 || this.value[id] > this.value[best] ? id : best), -1);
      else if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
        const row = (this.levels[this.depth[chosen]] || []).slice().sort((a, b) => this.left[a] - this.left[b]);
        next = row[row.indexOf(chosen) + (event.key === "ArrowLeft" ? -1 : 1)] ?? -1;
      } else return;
      event.preventDefault();
      event.stopPropagation();
      if (next >= 0) this.store.select({ type: "flame", id: next });
    });
  }

  update(what) {
    if (["range", "filter", "data"].includes(what)) this.stale = true;
    this.redraw();
  }
}
