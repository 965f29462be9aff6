// Who calls whom: functions, actors with their methods, and the data that goes between them.

const BOX_WIDTH = 248, BOX_HEAD = 30, METHOD_HEIGHT = 22, COLUMN_GAP = 130, ROW_SPACE = 26;

class Logical {
  constructor(store, colours, app) {
    Object.assign(this, { store, colours, app });
    this.showData = true;
    this.scale = 1;
    this.note = el("p", { class: "note" });
    this.body = el("div", { class: "scroller plain graph", tabindex: 0, "aria-label": "Graph of calls. The same figures stand in the tables below." });
    this.tables = el("div", { class: "flame-table" });
    const toggle = (label, title, change) => el("button", { type: "button", title, onclick: change }, label);
    this.dataButton = el("button", { type: "button", "aria-pressed": "true", onclick: () => {
      this.showData = !this.showData;
      this.dataButton.setAttribute("aria-pressed", String(this.showData));
      this.draw();
    } }, "Data");
    this.root = el("div", { class: "view logical" },
      el("div", { class: "viewbar" }, el("div", { class: "segments" }, this.dataButton),
        el("div", { class: "segments", role: "group", "aria-label": "Size" }, toggle("−", "Smaller", () => this.zoom(1 / 1.2)), toggle("+", "Larger", () => this.zoom(1.2))), this.note),
      this.body, this.tables);
    this.layOut();
    this.stale = true;
  }

  zoom(factor) {
    this.scale = Math.max(0.3, Math.min(2.5, this.scale * factor));
    this.draw();
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

  // Boxes in columns by their distance from a driver; within a column near to what they are joined with.
  layOut() {
    const { functions, calls, data } = this.store.meta.graph;
    const groups = new Map();
    functions.forEach((each, id) => {
      const key = each.actor ? "a" + each.actor : "f" + id;
      if (!groups.has(key)) groups.set(key, { title: each.actor || each.label, isActor: !!each.actor, kind: each.kind, members: [] });
      groups.get(key).members.push(id);
    });
    const all = [...groups.values()];
    all.forEach((box) => (box.time = box.members.reduce((sum, id) => sum + functions[id].total, 0)));
    const boxes = (this.boxes = all.length > MOST_BOXES ? [...all].sort((a, b) => (b.kind === "driver") - (a.kind === "driver") || b.time - a.time).slice(0, MOST_BOXES) : all);
    this.leftOut = all.length - boxes.length;
    const boxOf = new Map();
    boxes.forEach((box) => box.members.forEach((id) => boxOf.set(id, box)));
    this.boxOf = boxOf;
    const next = new Map(boxes.map((box) => [box, new Set()])), near = new Map(boxes.map((box) => [box, new Set()]));
    for (const { from, to } of [...calls, ...data]) {
      const a = boxOf.get(from), b = boxOf.get(to);
      if (!a || !b || a === b) continue;
      near.get(a).add(b);
      near.get(b).add(a);
    }
    for (const { from, to } of calls) {
      const a = boxOf.get(from), b = boxOf.get(to);
      if (a && b && a !== b) next.get(a).add(b);
    }
    const called = new Set([...next.values()].flatMap((set) => [...set]));
    let wave = boxes.filter((box) => box.kind === "driver");
    const others = boxes.filter((box) => box.kind !== "driver" && !called.has(box));
    if (!wave.length) wave = others.length ? others : boxes.slice(0, 1);
    const spread = (from) => {
      while (from.length) {
        const following = [];
        for (const box of from) for (const after of next.get(box)) if (after.column === undefined) { after.column = box.column + 1; following.push(after); }
        from = following;
      }
    };
    for (const box of wave) box.column = 0;
    spread(wave);
    for (const box of boxes) if (box.column === undefined && !called.has(box)) { box.column = wave.includes(box) || !called.size ? 0 : 1; spread([box]); }
    for (const box of boxes) if (box.column === undefined) { box.column = 0; spread([box]); }
    const columns = [];
    for (const box of boxes) (columns[box.column] ||= []).push(box);
    for (const box of boxes) {
      box.height = box.isActor ? BOX_HEAD + box.members.length * METHOD_HEIGHT + 8 : BOX_HEAD + METHOD_HEIGHT;
      box.members.sort((a, b) => functions[b].total - functions[a].total);
    }
    const stack = (column) => {
      let y = 0;
      for (const box of column) { box.y = y; y += box.height + ROW_SPACE; }
    };
    const used = columns.filter(Boolean);
    used.forEach((column) => { column.sort((a, b) => b.time - a.time); stack(column); });
    for (let sweep = 0; sweep < 6; sweep++) {
      for (const column of sweep % 2 ? [...used].reverse() : used) {
        const want = new Map(column.map((box) => {
          const joined = [...near.get(box)].filter((other) => other.column !== box.column);
          return [box, joined.length ? joined.reduce((sum, other) => sum + other.y + other.height / 2, 0) / joined.length : box.y];
        }));
        column.sort((a, b) => want.get(a) - want.get(b));
        stack(column);
      }
    }
    const tallest = Math.max(0, ...used.map((column) => column.reduce((sum, box) => sum + box.height + ROW_SPACE, -ROW_SPACE)));
    used.forEach((column, n) => {
      const height = column.reduce((sum, box) => sum + box.height + ROW_SPACE, -ROW_SPACE);
      column.forEach((box) => { box.x = 30 + n * (BOX_WIDTH + COLUMN_GAP); box.y += 30 + (tallest - height) / 2; });
    });
    this.size = [60 + Math.max(1, used.length) * (BOX_WIDTH + COLUMN_GAP) - COLUMN_GAP + 90, tallest + 70];
  }

  anchor(id, side) {
    const box = this.boxOf.get(id);
    const at = box.isActor ? BOX_HEAD + (box.members.indexOf(id) + 0.5) * METHOD_HEIGHT : box.height / 2;
    return [box.x + (side === "out" ? BOX_WIDTH : 0), box.y + at];
  }

  draw() {
    const { store, colours } = this;
    const { functions, calls, data } = store.meta.graph;
    const { lit, shown } = store.functionFigures();
    const isShown = (id) => this.boxOf.has(id) && (!shown || shown[id]);
    const isLit = (id) => !lit || lit[id];
    const edges = [];
    const put = (edge, kind) => {
      if (!isShown(edge.from) || !isShown(edge.to)) return;
      const [x0, y0] = this.anchor(edge.from, "out"), [x1, y1] = this.anchor(edge.to, "in");
      const a = this.boxOf.get(edge.from), b = this.boxOf.get(edge.to);
      const isForward = b.x > a.x;
      let shape, mx, my;
      if (isForward) {
        const bend = Math.max(40, (x1 - x0) / 2);
        shape = `M${x0},${y0} C${x0 + bend},${y0} ${x1 - bend},${y1} ${x1 - 7},${y1}`;
        [mx, my] = [x1 - 34, y1 - 6 + (y0 - y1) * 0.06];
      } else {
        // Within a column, or back: from the right side round to the right side, so that no box is crossed in a column.
        const right = b.x + BOX_WIDTH, out = Math.max(x0, right) + 46 + Math.min(40, Math.abs(y1 - y0) / 6);
        const end = y0 === y1 ? y1 + 9 : y1;
        shape = `M${x0},${y0 === y1 ? y0 - 5 : y0} C${out},${y0 - (y0 === y1 ? 16 : 0)} ${out},${end + (y0 === y1 ? 10 : 0)} ${right + 7},${end}`;
        [mx, my] = [out - 8, (y0 + end) / 2 + 4];
      }
      const width = 1.2 + Math.log10(1 + edge.count) * 1.3;
      const chosen = store.selection?.type === "edge" && store.selection.from === edge.from && store.selection.to === edge.to && store.selection.kind === kind;
      const classes = ["edge", kind, chosen ? "chosen" : lit && !(isLit(edge.from) && isLit(edge.to)) ? "unlit" : "", edge.errors ? "failed" : "", store.showPath && edge.path > 0 ? "onpath" : ""].join(" ");
      const label = kind === "data" ? `${number(edge.count)} obj${edge.bytes ? ` · ${bytes(edge.bytes)}` : ""}` : `${number(edge.count)}×${edge.errors ? ` ✗${number(edge.errors)}` : ""}`;
      edges.push(svg("g", { class: classes, onclick: () => this.app.selectEdge(edge, kind) },
        svg("path", { d: shape, class: "hit" }), svg("path", { d: shape, "stroke-width": width, "marker-end": `url(#arrow-${kind})` }),
        svg("text", { x: mx, y: my + (kind === "data" ? 15 : 0), "text-anchor": isForward ? "end" : "start" }, label)));
    };
    calls.forEach((edge) => put(edge, "call"));
    if (this.showData) data.forEach((edge) => put(edge, "data"));
    const marker = (kind) => svg("marker", { id: `arrow-${kind}`, viewBox: "0 0 8 8", refX: 1, refY: 4, markerWidth: 8, markerHeight: 8, markerUnits: "userSpaceOnUse", orient: "auto" }, svg("path", { d: "M0,0 L8,4 L0,8 z", class: `tip ${kind}` }));
    const boxes = this.boxes.filter((box) => box.members.some(isShown)).map((box) => this.box(box, isShown, isLit, functions));
    const [width, height] = this.size;
    emptied(this.body, svg("svg", { width: width * this.scale, height: height * this.scale, viewBox: `0 0 ${width} ${height}`, role: "group" }, svg("defs", {}, marker("call"), marker("data")), edges, boxes));
    const hidden = functions.length - functions.filter((_, id) => isShown(id)).length;
    this.note.textContent = `Calls solid${this.showData && data.length ? ", data dashed" : ""}. Figures are of the whole run.`
      + (this.leftOut ? ` ${counted(this.leftOut, "box", "boxes")} of least time left out.` : "") + (hidden - this.leftOut > 0 ? ` ${number(hidden)} hidden by the filter or the range.` : "");
    if (this.stale) this.fillTables();
  }

  box(box, isShown, isLit, functions) {
    const { store, colours } = this;
    const chosen = store.selection?.type === "function" ? store.selection.id : -1;
    const first = functions[box.members[0]];
    const text = (x, y, content, properties = {}) => svg("text", { x, y, ...properties }, content);
    const member = (id, y) => {
      const each = functions[id];
      const share = store.showPath && each.path > 0 ? svg("rect", { x: 1, y: y + 2, width: 4, height: METHOD_HEIGHT - 4, class: "pathmark" }) : null;
      return svg("g", { class: `member${isLit(id) ? "" : " unlit"}${id === chosen ? " chosen" : ""}`, "data-function": id, tabindex: 0, role: "button",
        "aria-label": `${safe(each.label)}: ${counted(each.count, "call")}, ${counted(each.errors, "error")}, median ${duration(each.p50)}`,
        onclick: () => store.select({ type: "function", id }), onkeydown: (event) => event.key === "Enter" && store.select({ type: "function", id }) },
        svg("title", {}, this.summary(each)),
        svg("rect", { x: 1, y, width: BOX_WIDTH - 2, height: METHOD_HEIGHT, class: "memberbox" }), share,
        svg("rect", { x: 10, y: y + 7, width: 8, height: 8, rx: 2, fill: colours.ofNameIndex(each.name) }),
        text(24, y + 15, box.isActor ? shortened(safe(each.method || each.label), 17) : counted(each.count, each.kind === "driver" ? "run" : "call")),
        each.errors ? text(BOX_WIDTH - 76, y + 15, `✗ ${number(each.errors)}`, { class: "bad", "text-anchor": "end" }) : null,
        text(BOX_WIDTH - 10, y + 15, `${box.isActor ? number(each.count) + "× " : ""}${each.count ? duration(each.p50) : ""}`, { class: "soft", "text-anchor": "end" }));
    };
    const instances = box.isActor && first.actors > 1 ? ` ×${number(first.actors)}` : "";
    return svg("g", { class: `box ${first.kind}`, transform: `translate(${box.x},${box.y})` },
      svg("rect", { width: BOX_WIDTH, height: box.height, rx: 7, class: "outline" }),
      text(12, 20, shortened(plainName(safe(box.title)), 30 - instances.length) + instances, { class: "title" }), svg("title", {}, safe(box.title)),
      box.members.filter(isShown).map((id) => member(id, BOX_HEAD + box.members.indexOf(id) * METHOD_HEIGHT - (box.isActor ? 0 : 4))));
  }

  summary(each) {
    return `${safe(each.label)}\n${counted(each.count, "call")}, ${counted(each.errors, "error")}\nrun: total ${duration(each.total)}, median ${duration(each.p50)}, p95 ${duration(each.p95)}, max ${duration(each.max)}`;
  }

  fillTables() {
    this.stale = false;
    const { functions, calls, data } = this.store.meta.graph;
    const head = (titles, left = 1) => el("thead", {}, el("tr", {}, titles.map((title, n) => el("th", { scope: "col", class: n >= left ? "number" : "" }, title))));
    const cells = (values) => values.map((value) => el("td", { class: "number" }, value));
    const link = (text, action) => el("td", {}, el("button", { type: "button", class: "link", onclick: action }, shortened(safe(text), 70)));
    const figures = (each) => [number(each.count), each.errors ? `✗ ${number(each.errors)}` : "0", duration(each.total), duration(each.p50), duration(each.p95), duration(each.max)];
    const ordered = [...functions.keys()].sort((a, b) => functions[b].total - functions[a].total).slice(0, 200);
    const edges = [...calls].sort((a, b) => b.total - a.total).slice(0, 200);
    emptied(this.tables,
      el("table", { class: "figures functions" }, el("caption", {}, "Functions and methods"), head(["Function", "Calls", "Errors", "Run", "Median", "p95", "Max", "Queue, median", "Queue, max"]),
        el("tbody", {}, ordered.map((id) => el("tr", { "data-function": id }, link(functions[id].label, () => this.store.select({ type: "function", id })),
          cells([...figures(functions[id]), functions[id].queue_p50 === null ? "" : duration(functions[id].queue_p50), functions[id].queue_max === null ? "" : duration(functions[id].queue_max)]))))),
      edges.length ? el("table", { class: "figures" }, el("caption", {}, "Calls"), head(["Caller", "Called", "Calls", "Errors", "Run", "Median", "p95", "Max"], 2),
        el("tbody", {}, edges.map((edge) => el("tr", {}, link(functions[edge.from].label, () => this.app.selectEdge(edge, "call")), link(functions[edge.to].label, () => this.app.selectEdge(edge, "call")), cells(figures(edge)))))) : null,
      data.length ? el("table", { class: "figures" }, el("caption", {}, "Data"), head(["Made by", "Taken by", "Objects", "Readers", "Size"], 2),
        el("tbody", {}, data.slice(0, 200).map((edge) => el("tr", {}, link(functions[edge.from].label, () => this.app.selectEdge(edge, "data")), link(functions[edge.to].label, () => this.app.selectEdge(edge, "data")),
          cells([number(edge.count), number(edge.readers), edge.bytes ? bytes(edge.bytes) : "not known"]))))) : null);
  }

  update() {
    this.redraw();
  }
}

const MOST_BOXES = 300;
