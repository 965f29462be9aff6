// All spans that pass the filter as a table: only what is in view is in the document.

const SPAN_ROW = 26;

class SpanTable {
  constructor(store, colours, app) {
    Object.assign(this, { store, colours, app });
    this.by = "took";
    this.ascending = false;
    this.body = el("div", { class: "rows", role: "rowgroup" });
    this.spacer = el("div", { class: "spacer", "aria-hidden": "true" });
    const columns = [["name", "Name"], ["took", "Took"], ["queued", "In queue"], ["start", "Began"], ["place", "Where"], ["state", "State"]];
    this.head = el("div", { class: "row head", role: "row" }, columns.map(([key, label]) => el("div", { role: "columnheader", class: key, "aria-sort": "none" },
      ["place", "state"].includes(key) ? label : el("button", { type: "button", "data-key": key, onclick: () => this.sortBy(key) }, label))));
    this.scroller = el("div", { class: "scroller", tabindex: 0, role: "table", "aria-label": "Spans" }, this.head, this.body, this.spacer);
    this.note = el("p", { class: "note", role: "status" });
    this.root = el("div", { class: "view spans" }, el("div", { class: "viewbar" }, this.note), this.scroller);
    this.scroller.addEventListener("scroll", () => this.redraw(), { passive: true });
    this.stale = true;
  }

  sortBy(key) {
    this.ascending = this.by === key ? !this.ascending : key === "start" || key === "name";
    this.by = key;
    this.stale = true;
    this.redraw();
  }

  resize() {
    this.redraw();
  }

  redraw() {
    if (this.pending || this.root.hidden) return;
    this.pending = true;
    requestAnimationFrame(() => {
      this.pending = false;
      if (!this.root.hidden) this.draw();
    });
  }

  draw() {
    const { store } = this;
    if (this.stale) {
      const { rows, count } = store.listed(this.by, this.ascending);
      this.rows = rows;
      this.stale = false;
      this.note.textContent = `${counted(count, "span")} of ${number(store.total)}${rows.length < count ? `, the first ${number(rows.length)} shown` : ""}`;
      for (const cell of this.head.children) {
        const isSorted = cell.classList.contains(this.by);
        cell.setAttribute("aria-sort", isSorted ? (this.ascending ? "ascending" : "descending") : "none");
      }
    }
    // Browsers cannot make an element as high as a million rows: the bar then stands for more than a row a pixel.
    const whole = this.rows.length * SPAN_ROW, most = 8e6;
    const height = Math.min(whole, most);
    this.spacer.style.height = height + "px";
    this.scroller.setAttribute("aria-rowcount", this.rows.length + 1);
    const room = this.scroller.clientHeight - SPAN_ROW;
    const top = this.scroller.scrollTop;
    const share = height > room ? Math.min(1, top / (height - room)) : 0;
    const offset = whole > most ? share * (whole - room) : top;
    const first = Math.max(0, Math.floor(offset / SPAN_ROW));
    const last = Math.min(this.rows.length, first + Math.ceil(room / SPAN_ROW) + 2);
    this.body.style.transform = `translateY(${top - (offset - first * SPAN_ROW)}px)`;
    const chosen = store.selection?.type === "span" ? store.selection.row : -1;
    const made = [];
    for (let n = first; n < last; n++) made.push(this.line(this.rows[n], n, this.rows[n] === chosen));
    this.body.replaceChildren(...made);
  }

  line(row, n, isChosen) {
    const { store } = this;
    const cell = (kind, ...inner) => el("div", { role: "cell", class: kind }, ...inner);
    const isMatched = store.matched && store.matched[row];
    return el("div", { role: "row", class: `row${isChosen ? " chosen" : isMatched ? " matched" : ""}`, "aria-rowindex": n + 2, onclick: () => this.app.selectSpan(row, false) },
      cell("name", el("span", { class: "swatch", style: { background: this.colours.of(row) } }), el("button", { type: "button", class: "link" }, shortened(store.label(row), 90))),
      cell("took", duration(store.took[row])), cell("queued", store.queued(row) >= 0 ? duration(store.queued(row)) : ""),
      cell("start", duration(store.start[row])), cell("place", store.placeLabel(row)),
      cell("state", store.failed(row) ? el("span", { class: "bad" }, store.state(row) === 2 ? "✗ lost" : "✗ failed") : STATES[store.state(row)] === "ended" ? "" : STATES[store.state(row)]));
  }

  update(what) {
    if (["range", "filter", "data"].includes(what)) this.stale = true;
    this.redraw();
  }
}
