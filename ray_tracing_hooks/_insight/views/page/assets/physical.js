// Where the run took place: nodes, placement groups, workers and actors, each filled by its busy share of the range.

import { View, el, emptied, inNextFrame, svg } from "./dom.js";
import { counted, duration, number, percent, safe, shortened } from "./format.js";
import { LEAST_ON_PATH } from "./store.js";

export class Physical extends View {
  /** @param {Store} store @param {Colours} colours @param {App} app */
  constructor(store, colours, app) {
    super(store, colours, app);
    this.stale = true;
    this.callers = store.callers();
    /** @type {Map<number, HTMLElement>} */
    this.boxes = new Map();
    this.note = el("p", { class: "note" });
    this.body = el("div", { class: "scroller plain", tabindex: 0 });
    this.root = el("div", { class: "view physical" }, el("div", { class: "viewbar" }, this.note), this.body);
    this.redraw = inNextFrame(() => this.root.hidden, () => {
      if (this.stale) this.draw();
      this.mark();
    });
  }

  /** The strips of busy time are as high as the window has room for. */
  resize() {
    const columns = Math.max(1, Math.floor(this.body.clientWidth / 244)), rows = Math.ceil(this.store.meta.places.length / columns);
    this.body.style.setProperty("--strip", `${Math.max(24, Math.min(240, (this.body.clientHeight - 80) / rows - 120))}px`);
    this.redraw();
  }

  draw() {
    const { store } = this;
    const { nodes, places, ran } = store.meta;
    const [from, to] = store.range;
    this.stale = false;
    const figures = store.placeFigures();
    this.note.textContent = `Bar and graph = share of ${duration(to - from)} (${store.isWhole ? "the whole run" : "the selected range"}) in which code ran there, ${ran}.`
      + (store.isFiltered ? " Filtered spans only." : "");
    this.boxes = new Map();
    emptied(this.body, nodes.map((_, n) => this.node(n, [...places.keys()].filter((id) => places[id].node === n), figures, to - from)));
  }

  /** @param {number} n @param {number[]} ids @param {PlaceFigures} figures @param {number} size */
  node(n, ids, figures, size) {
    if (!ids.length) return null;
    const { label, detail, accelerators } = this.store.meta.nodes[n], { places } = this.store.meta;
    const idle = ids.filter((id) => !figures.calls[id] && !figures.busy[id]).length;
    const mean = ids.reduce((sum, id) => sum + (places[id].kind === "driver" ? 0 : figures.busy[id]), 0) / size;
    const groups = [...new Set(ids.map((id) => places[id].group))];
    return el("section", { class: "node" },
      el("h2", {}, safe(label), el("span", { class: "soft" }, ` ${detail ? safe(detail) + " · " : ""}${counted(ids.length, "process or actor", "processes and actors")} · ${mean.toFixed(1)} running on average`)),
      accelerators.length ? el("div", { class: "group" }, el("h3", {}, "Accelerators: share of the time held in which they were used, over the whole run"),
        el("div", { class: "boxes" }, accelerators.map(accelerator))) : null,
      groups.map((group) => el("div", { class: group ? "group named" : "group" },
        group ? el("h3", {}, "Placement group ", el("code", {}, shortened(safe(group), 24))) : null,
        el("div", { class: "boxes" }, ids.filter((id) => places[id].group === group).sort((a, b) => figures.busy[b] - figures.busy[a]).map((id) => this.box(id, figures, size))))),
      idle ? el("p", { class: "note" }, `${number(idle)} ran nothing in this range.`) : null);
  }

  /** @param {number} id @param {PlaceFigures} figures @param {number} size */
  box(id, { busy, calls, errors, strips }, size) {
    const { store } = this;
    const { executions, path, places } = store.meta;
    const place = places[id];
    const share = Math.min(1, busy[id] / size);
    const onPath = (store.showPath && path.places[id] / path.total) || 0, caller = this.callers[id];
    // An actor's creation counts too, so not all of them are calls of methods.
    const noun = place.kind === "driver" || !executions ? "span" : "execution";
    const box = el("button", { type: "button", class: `place ${place.kind}`, "data-place": id, "aria-pressed": "false", onclick: () => store.select({ type: "place", id }) },
      el("span", { class: "fill", style: { width: `${100 * share}%` } }),
      el("span", { class: "title" }, shortened(safe(place.label), 34)),
      el("span", { class: "share" }, percent(share)),
      el("span", { class: "soft" }, shortened(safe(place.detail), 40) || "\u00a0"),
      el("span", { class: "soft" }, `${counted(calls[id], noun)}${errors[id] ? ` · ✗ ${number(errors[id])}` : ""}`),
      svg("svg", { viewBox: `0 0 ${strips[id].length} 1`, preserveAspectRatio: "none", "aria-hidden": "true", class: "strip" },
        svg("path", { d: `M0,1 ${Array.from(strips[id], (value, n) => `V${(1 - Math.min(1, value)).toFixed(3)} H${n + 1}`).join(" ")} V1 z` })),
      caller >= 0 ? el("span", { class: "soft" }, `called first by ${shortened(safe(places[caller].label), 30)}`) : null,
      onPath >= LEAST_ON_PATH ? el("span", { class: "pathshare" }, `${percent(onPath)} of the critical path`) : null);
    this.boxes.set(id, box);
    return box;
  }

  mark() {
    const chosen = this.store.matchedPlaces();
    for (const [id, box] of this.boxes) {
      box.classList.toggle("chosen", chosen.has(id));
      box.setAttribute("aria-pressed", String(chosen.has(id)));
    }
  }

  /** @param {Change} what */
  update(what) {
    if (what !== "selection") this.stale = true;
    this.redraw();
  }
}

/** An accelerator, filled by the share of its held time in which its holders ran.
 * @param {Accelerator} accelerator */
function accelerator({ label, held_by: [holder, ...others], held, busy, gap, used }) {
  const holders = safe(holder.replace(/^__main__\./, "")) + (others.length ? ` and ${counted(others.length, "other")}` : "");
  const share = held ? busy / held : 0;
  return el("div", { class: "place accelerator" },
    el("span", { class: "fill", style: { width: `${100 * share}%` } }),
    el("span", { class: "title" }, shortened(safe(label), 34)),
    el("span", { class: "share" }, percent(share)),
    el("span", { class: "soft" }, `held for ${duration(held)} by ${holders}`),
    el("span", { class: "soft" }, `used for ${duration(busy)}, longest gap ${duration(gap)}`),
    used === null ? null : el("span", { class: "soft" }, `sampled: ${percent(used)} in use on average`));
}
