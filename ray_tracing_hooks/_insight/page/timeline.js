// The timeline: node, then worker or actor, then lanes. Run time solid, waiting hollow, the queue in a strip of its own.
//
// Bars narrower than a few pixels are written into an image as pixels, which is ten times as fast as drawing rectangles;
// only what is wide enough to be read is drawn and labelled.

const ROW = 16, ROW_GAP = 2, NODE_HEIGHT = 26, PLACE_GAP = 7, QUEUE_HEIGHT = 14, COLLAPSED_HEIGHT = 16;
const GUTTER = 230, OVERVIEW_HEIGHT = 44, AXIS_HEIGHT = 24, PATH_HEIGHT = 24;
const NARROW = 4;
const MONO = "ui-monospace, 'SF Mono', 'Cascadia Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace";
const SANS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif";

class Timeline {
  constructor(store, colours, app) {
    Object.assign(this, { store, colours, app });
    this.collapsed = new Set();
    this.hover = -1;
    this.canvas = el("canvas", { class: "bars", "aria-hidden": "true" });
    this.overlay = el("canvas", { class: "overlay", "aria-hidden": "true" });
    this.spacer = el("div", { class: "spacer" });
    this.stage = el("div", { class: "stage" }, this.canvas, this.overlay);
    this.scroller = el("div", {
      class: "scroller", tabindex: 0, role: "application",
      "aria-label": "Timeline. W and S zoom, A and D move. Arrow keys go from span to span; what is selected is read out. The view Spans holds the same as a table.",
    }, this.stage, this.spacer);
    this.root = el("div", { class: "view timeline" }, this.scroller);
    this.queues = store.queues();
    this.buildRows();
    this.listen();
  }

  // --- Layout ---

  buildRows() {
    const { store } = this;
    const rows = [];
    let y = 0;
    let node = -1;
    let hiddenPlaces = 0;
    const lanesByPlace = store.meta.places.map(() => []);
    store.meta.lanes.forEach((place, lane) => lanesByPlace[place].push(lane));
    store.meta.places.forEach((place, index) => {
      const lanes = lanesByPlace[index];
      const isEmpty = lanes.every((lane) => store.begins[store.first[lane]] === store.begins[store.first[lane + 1]]);
      if (isEmpty) {
        hiddenPlaces += lanes.length > 0;
        return;
      }
      if (place.node !== node) {
        node = place.node;
        rows.push({ kind: "node", y, height: NODE_HEIGHT, node });
        y += NODE_HEIGHT;
      }
      if (this.collapsed.has("n" + node)) return;
      const isCollapsed = this.collapsed.has("p" + index);
      const top = y;
      const mine = [];
      if (isCollapsed) {
        for (const lane of lanes) {
          if (store.deepest[lane]) mine.push({ kind: "bars", y, height: COLLAPSED_HEIGHT, sub: store.first[lane], place: index, flat: true });
        }
        y += COLLAPSED_HEIGHT + ROW_GAP;
      } else {
        if (this.queues[index]) {
          mine.push({ kind: "queue", y, height: QUEUE_HEIGHT, place: index });
          y += QUEUE_HEIGHT + ROW_GAP;
        }
        lanes.forEach((lane) => {
          for (let depth = 0; depth < store.deepest[lane]; depth++) {
            const sub = store.first[lane] + depth;
            if (store.begins[sub] === store.begins[sub + 1]) continue;
            mine.push({ kind: "bars", y, height: ROW, sub, place: index, lane, depth });
            y += ROW + ROW_GAP;
          }
        });
      }
      // The label of a worker needs two lines.
      y = Math.max(y, top + (isCollapsed ? 18 : 30));
      rows.push({ kind: "place", y: top, height: y - top, place: index, isCollapsed }, ...mine);
      y += PLACE_GAP;
    });
    this.rows = rows;
    this.hiddenPlaces = hiddenPlaces;
    this.height = y + 24;
    this.rowOfSub = new Map(rows.filter((row) => row.kind === "bars").map((row) => [row.sub, row]));
    this.resize();
  }

  get headHeight() {
    return OVERVIEW_HEIGHT + AXIS_HEIGHT + (this.store.showPath ? PATH_HEIGHT : 0);
  }

  resize() {
    const width = this.scroller.clientWidth, height = this.scroller.clientHeight;
    if (!width || !height) return;
    this.ratio = window.devicePixelRatio || 1;
    this.width = width;
    this.viewHeight = height;
    for (const canvas of [this.canvas, this.overlay]) {
      canvas.width = Math.round(width * this.ratio);
      canvas.height = Math.round(height * this.ratio);
      canvas.style.width = width + "px";
      canvas.style.height = height + "px";
    }
    this.stage.style.height = height + "px";
    this.spacer.style.height = Math.max(0, this.height + this.headHeight - height) + "px";
    this.image = null;
    this.overviewImage = null;
    this.redraw();
  }

  get plotWidth() {
    return Math.max(50, this.width - GUTTER);
  }

  x(time) {
    const [from, to] = this.store.range;
    return GUTTER + ((time - from) / (to - from)) * this.plotWidth;
  }

  timeAt(x) {
    const [from, to] = this.store.range;
    return from + ((x - GUTTER) / this.plotWidth) * (to - from);
  }

  // --- Drawing ---

  redraw() {
    if (this.pending || !this.width || this.root.hidden) return;
    this.pending = true;
    requestAnimationFrame(() => {
      this.pending = false;
      this.draw();
    });
  }

  draw() {
    if (!this.width || this.root.hidden) return;
    const began = performance.now();
    const context = this.canvas.getContext("2d", { alpha: false });
    const { ratio } = this;
    this.scrollTop = this.scroller.scrollTop;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const wide = this.drawPixels(context);
    this.drawWide(context, wide);
    this.drawGutter(context);
    this.drawHead(context);
    this.drawOverlay();
    this.frame = performance.now() - began;
  }

  drawPixels(context) {
    const { store, colours, ratio } = this;
    const left = Math.round(GUTTER * ratio);
    const width = this.canvas.width - left, height = this.canvas.height;
    if (!this.image || this.image.width !== width || this.image.height !== height) {
      this.image = context.createImageData(width, height);
      this.words = new Uint32Array(this.image.data.buffer);
    }
    const { words } = this;
    store.beginFrame(width);
    words.fill(colours.pixel(colours.surface));
    const [from, to] = store.range;
    const scale = width / (to - from);
    const { lit: matched, name } = store;
    // Worst status wins in a pixel, then what is selected, then what is longer.
    const palette = PALETTE.map((colour) => colours.pixel(colour));
    const dim = PALETTE.map((colour) => colours.pixel(colours.dimmed(colour)));
    const failed = colours.pixel(colours.failed), failedDim = colours.pixel(colours.dimmed(colours.failed));
    const submission = colours.pixel(colours.submission), submissionDim = colours.pixel(colours.dimmed(colours.submission));
    const wide = [];
    let drawn = 0;
    const top = this.scrollTop - this.headHeight, bottom = top + this.viewHeight;
    for (const row of this.rows) {
      if (row.kind !== "bars" || row.y + row.height < top + this.headHeight || row.y > bottom) continue;
      const y0 = Math.max(0, Math.round((row.y - top) * ratio));
      const y1 = Math.min(height, Math.round((row.y - top + row.height) * ratio));
      let last = -1, lastRank = -1;
      store.eachBar(row.sub, from, to, (i, begin, end, flag, count, share) => {
        const x0 = (begin - from) * scale, x1 = x0 + (end - begin) * scale;
        if (x1 - x0 >= NARROW && count === 1) {
          wide.push(row, i);
          last = -1;
          return;
        }
        const isMatched = !matched || matched[i];
        const rank = (flag & FAILED ? 4 : 0) + (isMatched ? 2 : 0) + ((flag & 7) === PRODUCER ? 0 : 1);
        const p0 = x0 < 0 ? 0 : x0 | 0;
        const p1 = Math.min(width, Math.max(p0 + 1, Math.round(x1)));
        if (p1 - 1 <= last && rank <= lastRank) return;
        last = p1 - 1;
        lastRank = rank;
        let kind = flag & FAILED ? (isMatched ? failed : failedDim)
          : (flag & 7) === PRODUCER ? (isMatched ? submission : submissionDim)
          : (isMatched ? palette : dim)[colours.ofName[name[i]]];
        // Of many spans that are one bar the colour says how much of the time they ran.
        if (share < 0.9 && !(flag & FAILED)) kind = colours.thinned(kind, share);
        drawn++;
        for (let y = y0; y < y1; y++) {
          const line = y * width;
          for (let x = p0; x < p1; x++) words[line + x] = kind;
        }
      });
    }
    context.putImageData(this.image, left, 0);
    this.drawn = drawn + wide.length / 2;
    return wide;
  }

  drawWide(context, wide) {
    const { store, colours } = this;
    const { lit: matched } = store;
    context.font = `11px ${SANS}`;
    context.textBaseline = "middle";
    const top = this.scrollTop - this.headHeight;
    const right = this.width;
    for (let n = 0; n < wide.length; n += 2) {
      const row = wide[n], i = wide[n + 1];
      const x0 = Math.max(GUTTER, this.x(store.start[i]));
      const x1 = Math.min(right, this.x(store.endOf(i)));
      const y = row.y - top;
      const isMatched = !matched || matched[i];
      const plain = colours.of(i);
      const colour = isMatched ? plain : colours.dimmed(plain);
      const size = Math.max(1, x1 - x0 - 0.5);
      if (store.flags[i] & WAITING) {
        // Hollow: here the program waits.
        context.fillStyle = colours.dimmed(plain);
        context.fillRect(x0, y, size, row.height);
        context.strokeStyle = colour;
        context.lineWidth = 1;
        context.strokeRect(x0 + 0.5, y + 0.5, Math.max(0, size - 1), row.height - 1);
      } else {
        context.fillStyle = colour;
        context.fillRect(x0, y, size, row.height);
      }
      if (store.state(i)) this.drawOpenEnd(context, x0, x1, y, row.height, colours);
      if (store.failed(i) && size > 14) {
        // A mark beside the colour, for those who cannot tell red.
        context.fillStyle = isMatched ? "#ffffff" : colours.soft;
        context.fillText("✗", x0 + 4, y + row.height / 2 + 0.5);
      }
      if (size > 34) {
        const indent = store.failed(i) ? 17 : 5;
        const hollow = (store.flags[i] & WAITING) || !isMatched;
        context.fillStyle = hollow ? (isMatched ? colours.ink : colours.soft) : colours.text(plain);
        const label = store.shortLabel(i);
        const fits = Math.floor((size - indent - 4) / 5.6);
        if (fits > 2) {
          const time = fits > label.length + 11 ? "  " + duration(store.took[i]) : "";
          context.fillText(shortened(label, fits) + time, x0 + indent, y + row.height / 2 + 0.5, size - indent);
        }
      }
    }
    const showPath = store.showPath;
    if (showPath) {
      context.strokeStyle = colours.path;
      context.lineWidth = 2;
      for (let n = 0; n < wide.length; n += 2) {
        const i = wide[n + 1];
        if (!store.onPath(i)) continue;
        const x0 = Math.max(GUTTER, this.x(store.start[i])), x1 = Math.min(right, this.x(store.endOf(i)));
        context.strokeRect(x0 + 1, wide[n].y - top + 1, Math.max(1, x1 - x0 - 2), wide[n].height - 2);
      }
    }
    for (const row of this.rows) if (row.kind === "queue") this.drawQueue(context, row, top);
  }

  // A bar whose end nobody has recorded fades out in stripes.
  drawOpenEnd(context, x0, x1, y, height, colours) {
    const size = Math.min(40, x1 - x0);
    context.save();
    context.beginPath();
    context.rect(x1 - size, y, size, height);
    context.clip();
    context.strokeStyle = colours.surface;
    context.lineWidth = 2;
    for (let x = x1 - size - height; x < x1 + height; x += 6) {
      context.beginPath();
      context.moveTo(x, y + height);
      context.lineTo(x + height, y);
      context.stroke();
    }
    context.restore();
  }

  // How many calls wait for this worker or actor: the mean in each pixel.
  drawQueue(context, row, top) {
    const y = row.y - top;
    if (y + row.height < this.headHeight || y > this.viewHeight) return;
    const queue = this.queues[row.place];
    const { colours } = this;
    context.fillStyle = colours.panel;
    context.fillRect(GUTTER, y, this.plotWidth, row.height);
    const base = y + row.height;
    context.beginPath();
    context.moveTo(GUTTER, base);
    const step = 2;
    let before = queue.waited(this.timeAt(GUTTER));
    for (let x = 0; x < this.plotWidth; x += step) {
      const from = this.timeAt(GUTTER + x), to = this.timeAt(GUTTER + x + step);
      const after = queue.waited(to);
      const depth = Math.max(0, (after - before) / (to - from));
      before = after;
      const h = depth <= 0.001 ? 0 : Math.max(2, (row.height - 1) * Math.min(1, depth / queue.most));
      context.lineTo(GUTTER + x, base - h);
      context.lineTo(GUTTER + x + step, base - h);
    }
    context.lineTo(GUTTER + this.plotWidth, base);
    context.closePath();
    context.fillStyle = this.hatch(context);
    context.fill();
  }

  hatch(context) {
    if (this.hatching && this.hatching.surface === this.colours.surface) return this.hatching.pattern;
    const tile = el("canvas", { width: 6, height: 6 });
    const inner = tile.getContext("2d");
    inner.strokeStyle = this.colours.soft;
    inner.lineWidth = 1;
    inner.beginPath();
    for (const at of [-6, 0, 6]) {
      inner.moveTo(at, 6);
      inner.lineTo(at + 6, 0);
    }
    inner.stroke();
    this.hatching = { surface: this.colours.surface, pattern: context.createPattern(tile, "repeat") };
    return this.hatching.pattern;
  }

  drawGutter(context) {
    const { store, colours } = this;
    const top = this.scrollTop - this.headHeight;
    context.fillStyle = colours.panel;
    context.fillRect(0, 0, GUTTER, this.viewHeight);
    context.textBaseline = "middle";
    const chosen = store.selection && store.selection.type === "place" ? store.selection.id
      : store.selection && store.selection.type === "span" ? store.place(store.selection.row) : -1;
    for (const row of this.rows) {
      const y = row.y - top;
      if (y + row.height < this.headHeight || y > this.viewHeight) continue;
      if (row.kind === "node") {
        context.fillStyle = colours.panel;
        context.fillRect(0, y, this.width, row.height - 3);
        const node = store.meta.nodes[row.node];
        context.fillStyle = colours.ink;
        context.font = `600 12px ${SANS}`;
        const mark = this.collapsed.has("n" + row.node) ? "▸" : "▾";
        context.fillText(`${mark} ${shortened(safe(node.label), 44)}`, 10, y + row.height / 2 - 1);
        if (node.detail) {
          context.font = `11px ${SANS}`;
          context.fillStyle = colours.soft;
          context.fillText(safe(node.detail), GUTTER + 8, y + row.height / 2 - 1);
        }
      } else if (row.kind === "place") {
        const place = store.meta.places[row.place];
        if (row.place === chosen) {
          context.fillStyle = colours.accent;
          context.fillRect(0, y, 3, row.height);
        }
        context.fillStyle = colours.ink;
        context.font = `12px ${SANS}`;
        context.fillText(`${row.isCollapsed ? "▸" : "▾"} ${shortened(safe(place.label), 30)}`, 10, y + 9, GUTTER - 18);
        if (!row.isCollapsed) {
          context.fillStyle = colours.soft;
          context.font = `11px ${SANS}`;
          const queue = this.queues[row.place];
          const about = queue ? `${place.detail}${place.detail ? " · " : ""}queue ≤ ${queue.most}` : place.detail;
          context.fillText(shortened(safe(about), 36), 22, y + 24, GUTTER - 30);
        }
        context.fillStyle = colours.line;
        context.fillRect(0, y + row.height + PLACE_GAP / 2, this.width, 1);
      }
    }
    context.fillStyle = colours.line;
    context.fillRect(GUTTER - 1, 0, 1, this.viewHeight);
  }

  drawHead(context) {
    const { store, colours } = this;
    context.fillStyle = colours.surface;
    context.fillRect(0, 0, this.width, this.headHeight);
    this.drawOverview(context);
    this.drawAxis(context);
    if (store.showPath) this.drawPath(context);
    context.fillStyle = colours.line;
    context.fillRect(0, this.headHeight - 1, this.width, 1);
  }

  // The whole run in small: how many spans run, and the part that is in view.
  drawOverview(context) {
    const { store, colours } = this;
    const height = OVERVIEW_HEIGHT - 4;
    if (!this.strip || this.strip.keep !== store.keep) this.strip = store.strip();
    context.fillStyle = colours.panel;
    context.fillRect(0, 0, this.width, OVERVIEW_HEIGHT);
    const { running, most, failed } = this.strip;
    const step = this.plotWidth / running.length;
    context.fillStyle = colours.faint;
    context.beginPath();
    context.moveTo(GUTTER, height);
    running.forEach((value, n) => {
      const y = height - (height - 6) * (value / (most || 1));
      context.lineTo(GUTTER + n * step, y);
      context.lineTo(GUTTER + (n + 1) * step, y);
    });
    context.lineTo(this.width, height);
    context.fill();
    context.fillStyle = colours.failed;
    failed.forEach((value, n) => {
      if (value) context.fillRect(GUTTER + n * step, height - 3, Math.max(2, step), 3);
    });
    const [from, to] = store.range;
    const x0 = GUTTER + (from / store.end) * this.plotWidth, x1 = GUTTER + (to / store.end) * this.plotWidth;
    if (!store.isWhole) {
      context.globalAlpha = 0.6;
      context.fillStyle = colours.surface;
      context.fillRect(GUTTER, 0, x0 - GUTTER, OVERVIEW_HEIGHT - 1);
      context.fillRect(x1, 0, this.width - x1, OVERVIEW_HEIGHT - 1);
      context.globalAlpha = 1;
    }
    context.strokeStyle = colours.accent;
    context.lineWidth = 1.5;
    context.strokeRect(x0 + 0.75, 0.75, Math.max(2, x1 - x0 - 1.5), OVERVIEW_HEIGHT - 2.5);
    context.fillStyle = colours.soft;
    context.font = `11px ${SANS}`;
    context.textBaseline = "middle";
    context.fillText("Running at once", 12, 14);
    context.fillText(`at most ${number(Math.round(most * 10) / 10)}`, 12, 30);
  }

  drawAxis(context) {
    const { store, colours } = this;
    const [from, to] = store.range;
    const y = OVERVIEW_HEIGHT;
    context.fillStyle = colours.surface;
    context.fillRect(0, y, this.width, AXIS_HEIGHT);
    const step = niceStep((to - from) / Math.max(2, this.plotWidth / 110));
    context.font = `11px ${SANS}`;
    context.textBaseline = "middle";
    for (let tick = Math.ceil(from / step) * step; tick <= to; tick += step) {
      const x = this.x(tick);
      context.fillStyle = colours.line;
      context.fillRect(Math.round(x), y, 1, AXIS_HEIGHT);
      context.fillStyle = colours.soft;
      const label = axisLabel(tick, step);
      if (x + 60 < this.width) context.fillText(label, x + 4, y + AXIS_HEIGHT / 2);
    }
    context.fillStyle = colours.panel;
    context.fillRect(0, y, GUTTER - 1, AXIS_HEIGHT);
    context.fillStyle = colours.ink;
    context.font = `600 11px ${SANS}`;
    context.fillText(duration(to - from), 12, y + AXIS_HEIGHT / 2);
    context.fillStyle = colours.soft;
    context.font = `11px ${SANS}`;
    context.fillText(`from ${clock(store.meta.start_ms + from / 1e6, step)}`, 76, y + AXIS_HEIGHT / 2);
  }

  drawPath(context) {
    const { store, colours } = this;
    const y = OVERVIEW_HEIGHT + AXIS_HEIGHT;
    context.fillStyle = colours.surface;
    context.fillRect(0, y, this.width, PATH_HEIGHT);
    context.font = `11px ${SANS}`;
    for (const step of store.meta.path.steps) {
      const x0 = Math.max(GUTTER, this.x(step.start)), x1 = Math.min(this.width, this.x(step.end));
      if (x1 <= GUTTER || x0 >= this.width) continue;
      const size = Math.max(1, x1 - x0 - 0.5);
      const isRun = step.cause === "run" && step.row >= 0;
      context.fillStyle = isRun ? colours.path : step.cause === "unexplained" ? colours.surface : this.hatch(context);
      context.fillRect(x0, y + 3, size, PATH_HEIGHT - 7);
      context.strokeStyle = colours.path;
      context.lineWidth = 0.75;
      if (size > 3) context.strokeRect(x0 + 0.5, y + 3.5, size - 1, PATH_HEIGHT - 8);
      const label = isRun ? store.shortLabel(step.row) : step.cause;
      const fits = Math.floor((size - 8) / 5.8);
      if (fits > 3) {
        const text = shortened(label, fits);
        if (!isRun && step.cause !== "unexplained") {
          context.fillStyle = colours.surface;
          context.fillRect(x0 + 3, y + 5, text.length * 5.8 + 4, PATH_HEIGHT - 11);
        }
        context.fillStyle = isRun ? colours.text(colours.path) : colours.ink;
        context.fillText(text, x0 + 5, y + PATH_HEIGHT / 2, size - 6);
      }
    }
    context.fillStyle = colours.panel;
    context.fillRect(0, y, GUTTER - 1, PATH_HEIGHT);
    context.fillStyle = colours.ink;
    context.font = `600 11px ${SANS}`;
    context.fillText("Critical path", 12, y + PATH_HEIGHT / 2);
  }

  // What moves with the pointer and the selection, above the bars.
  drawOverlay() {
    const { store, colours, ratio } = this;
    if (!this.width) return;
    const context = this.overlay.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, this.width, this.viewHeight);
    context.save();
    context.beginPath();
    context.rect(GUTTER, this.headHeight, this.plotWidth, this.viewHeight - this.headHeight);
    context.clip();
    const chosen = store.selection && store.selection.type === "span" ? store.selection.row : -1;
    if (store.showPath) this.drawPathArrows(context);
    if (chosen >= 0) {
      this.drawQueueOf(context, chosen);
      for (const [from, fromTime, to, toTime, isWake] of this.arrows(chosen)) this.drawArrow(context, from, fromTime, to, toTime, isWake);
      this.outline(context, chosen, colours.ink, 2);
    }
    if (this.hover >= 0 && this.hover !== chosen) this.outline(context, this.hover, colours.soft, 1.5);
    context.restore();
    if (this.app.view === "timeline" && store.momentShown) {
      const x = this.x(store.moment);
      if (x >= GUTTER) {
        context.fillStyle = colours.accent;
        context.fillRect(x, OVERVIEW_HEIGHT, 1.5, this.viewHeight);
      }
    }
    if (this.drag && this.drag.kind === "select") {
      const x0 = Math.min(this.drag.from, this.drag.to), x1 = Math.max(this.drag.from, this.drag.to);
      context.globalAlpha = 0.2;
      context.fillStyle = colours.accent;
      context.fillRect(x0, this.drag.inOverview ? 0 : OVERVIEW_HEIGHT, x1 - x0, this.drag.inOverview ? OVERVIEW_HEIGHT : this.viewHeight);
      context.globalAlpha = 1;
    }
  }

  box(row) {
    const { store } = this;
    const found = this.rowOfSub.get(store.first[store.lane[row]] + store.depth[row]);
    const flat = found ? null : this.rowOfSub.get(store.first[store.lane[row]]);
    const at = found || flat;
    if (!at) return null;
    const y = at.y - this.scrollTop + this.headHeight;
    return { x0: this.x(store.start[row]), x1: Math.max(this.x(store.endOf(row)), this.x(store.start[row]) + 1), y, height: at.height };
  }

  outline(context, row, colour, width) {
    const box = this.box(row);
    if (!box) return;
    context.strokeStyle = colour;
    context.lineWidth = width;
    const x0 = Math.max(GUTTER - 4, box.x0), x1 = Math.min(this.width + 4, box.x1);
    context.strokeRect(x0 - 1, box.y - 1, Math.max(3, x1 - x0 + 2), box.height + 2);
  }

  // The time in the queue of the selected call, hatched, before its run.
  drawQueueOf(context, row) {
    const { store } = this;
    const of = store.kind(row) === PRODUCER ? store.children(row).find((child) => store.submission[child] === row) : row;
    if (of === undefined || store.queued(of) <= 0) return;
    const box = this.box(of);
    if (!box) return;
    const x0 = Math.max(GUTTER, this.x(store.endOf(store.submission[of])));
    if (box.x0 - x0 < 1) return;
    context.globalAlpha = 0.85;
    context.fillStyle = this.colours.surface;
    context.fillRect(x0, box.y + 2, box.x0 - x0, box.height - 4);
    context.globalAlpha = 1;
    context.fillStyle = this.hatch(context);
    context.fillRect(x0, box.y + 2, box.x0 - x0, box.height - 4);
    context.strokeStyle = this.colours.soft;
    context.lineWidth = 1;
    context.strokeRect(x0 + 0.5, box.y + 2.5, Math.max(0, box.x0 - x0 - 1), box.height - 5);
  }

  // Arrows of one call: its submission, those it makes, the data it takes and gives, who waits for it.
  arrows(row) {
    const { store } = this;
    const found = [];
    const submitted = (execution) => {
      const from = store.submission[execution];
      if (from >= 0) found.push([from, store.endOf(from), execution, store.start[execution], false]);
    };
    submitted(row);
    let made = 0;
    for (const child of store.children(row)) {
      if (store.submission[child] === row) submitted(child);
      for (const grandchild of store.kind(child) === PRODUCER && made < 200 ? store.children(child) : []) {
        if (store.submission[grandchild] === child) made++, submitted(grandchild);
      }
    }
    const own = store.submission[row];
    for (let e = 0; e < store.edgeFrom.length && found.length < 400; e++) {
      const from = store.edgeFrom[e], to = store.edgeTo[e];
      if (from !== row && to !== row && to !== own && from !== own) continue;
      const isWake = store.edgeKind[e] === 1;
      found.push([from, store.endOf(from), to, isWake ? store.endOf(to) : store.start[to], isWake]);
    }
    return found;
  }

  drawPathArrows(context) {
    const { store } = this;
    for (const step of store.meta.path.steps) {
      if (step.from >= 0 && step.row >= 0 && step.from !== step.row) {
        // From one call of an actor to its next one there is nothing to see.
        const isNear = store.lane[step.from] === store.lane[step.row] && this.x(step.end) - this.x(step.start) < 24;
        if (!isNear) this.drawArrow(context, step.from, step.start, step.row, step.end, false, this.colours.path);
      }
    }
  }

  drawArrow(context, from, fromTime, to, toTime, isDashed, colour = this.colours.accent) {
    const a = this.box(from), b = this.box(to);
    if (!a || !b) return;
    const x0 = this.x(fromTime), x1 = this.x(toTime);
    if (Math.max(x0, x1) < GUTTER - 50 || Math.min(x0, x1) > this.width + 50) return;
    const y0 = a.y + a.height / 2, y1 = b.y + b.height / 2;
    const bend = Math.max(10, Math.min(120, Math.abs(x1 - x0) / 2));
    context.strokeStyle = colour;
    context.lineWidth = 1.5;
    context.setLineDash(isDashed ? [4, 3] : []);
    context.beginPath();
    context.moveTo(x0, y0);
    context.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1 - 5, y1);
    context.stroke();
    context.setLineDash([]);
    context.fillStyle = colour;
    context.beginPath();
    context.moveTo(x1, y1);
    context.lineTo(x1 - 7, y1 - 3.5);
    context.lineTo(x1 - 7, y1 + 3.5);
    context.fill();
  }

  // --- The pointer and the keyboard ---

  at(x, y) {
    if (x < GUTTER || y < this.headHeight) return -1;
    const { store } = this;
    const inside = y + this.scrollTop - this.headHeight;
    const time = this.timeAt(x), near = (3 * (store.range[1] - store.range[0])) / this.plotWidth;
    for (const row of this.rows) {
      if (row.kind !== "bars" || inside < row.y - 1 || inside > row.y + row.height + 1) continue;
      let best = -1, distance = Infinity;
      let many = 1;
      store.eachBar(row.sub, time - near, time + near, (i, begin, end, flags, count) => {
        const away = Math.max(0, begin - time, time - end);
        if (away < distance || (away === distance && flags & FAILED)) (best = i), (distance = away), (many = count);
      });
      this.manyThere = many;
      if (best >= 0) return best;
    }
    return -1;
  }

  rowAt(y, kinds) {
    const inside = y + this.scrollTop - this.headHeight;
    return this.rows.find((row) => kinds.includes(row.kind) && inside >= row.y && inside <= row.y + row.height);
  }

  listen() {
    const place = (event) => {
      const box = this.stage.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    this.scroller.addEventListener("scroll", () => this.redraw(), { passive: true });
    this.scroller.addEventListener("wheel", (event) => {
      const [x] = place(event);
      if (event.ctrlKey || event.metaKey || event.altKey) {
        event.preventDefault();
        this.zoom(Math.exp(event.deltaY * 0.002), this.timeAt(Math.max(GUTTER, x)));
      } else if (Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey) {
        event.preventDefault();
        this.pan((event.deltaX || event.deltaY) / this.plotWidth);
      }
    }, { passive: false });
    this.stage.addEventListener("pointerdown", (event) => {
      const [x, y] = place(event);
      if (event.button !== 0 || x < GUTTER) return;
      const inOverview = y < OVERVIEW_HEIGHT;
      const kind = event.shiftKey || y < OVERVIEW_HEIGHT + AXIS_HEIGHT ? "select" : "pan";
      this.drag = { kind, from: x, to: x, y, range: [...this.store.range], moved: false, inOverview, scroll: this.scroller.scrollTop };
      this.stage.setPointerCapture(event.pointerId);
    });
    this.stage.addEventListener("pointermove", (event) => {
      const [x, y] = place(event);
      const { drag } = this;
      if (!drag) return this.hoverAt(x, y, event);
      if (Math.abs(x - drag.from) + Math.abs(y - drag.y) > 3) drag.moved = true;
      drag.to = Math.max(GUTTER, x);
      if (drag.kind === "pan" && drag.moved) {
        const shift = ((drag.from - x) / this.plotWidth) * (drag.range[1] - drag.range[0]);
        this.scroller.scrollTop = drag.scroll + drag.y - y;
        this.store.setRange(drag.range[0] + shift, drag.range[1] + shift);
      } else this.drawOverlay();
    });
    this.stage.addEventListener("pointerup", (event) => {
      const [x, y] = place(event);
      const { drag } = this;
      this.drag = null;
      if (!drag) return this.clickGutter(x, y);
      if (drag.kind === "select" && drag.moved) {
        const time = (at) => (drag.inOverview ? ((at - GUTTER) / this.plotWidth) * this.store.end : this.timeAt(at));
        this.store.setRange(Math.min(time(drag.from), time(drag.to)), Math.max(time(drag.from), time(drag.to)));
      } else if (drag.kind === "select" && drag.inOverview) {
        const [from, to] = this.store.range;
        const middle = ((x - GUTTER) / this.plotWidth) * this.store.end;
        this.store.setRange(middle - (to - from) / 2, middle + (to - from) / 2);
      } else if (!drag.moved) {
        const row = this.at(x, y);
        const step = y > OVERVIEW_HEIGHT + AXIS_HEIGHT && y < this.headHeight ? this.pathStepAt(x) : null;
        if (step && step.row >= 0) this.app.selectSpan(step.row);
        else this.store.select(row >= 0 ? { type: "span", row } : null);
      }
      this.drawOverlay();
    });
    this.stage.addEventListener("pointerleave", () => {
      this.hover = -1;
      this.app.tip(null);
      this.drawOverlay();
    });
    this.stage.addEventListener("dblclick", (event) => {
      const row = this.at(...place(event));
      if (row >= 0) this.focus(row, true);
    });
  }

  pathStepAt(x) {
    const time = this.timeAt(x);
    return this.store.showPath ? this.store.meta.path.steps.find((step) => step.start <= time && time < step.end) : null;
  }

  clickGutter(x, y) {
    const row = this.rowAt(y, ["node", "place"]);
    if (!row || x > GUTTER || y < this.headHeight) return;
    const key = row.kind === "node" ? "n" + row.node : "p" + row.place;
    if (row.kind === "place" && x > 24) {
      this.store.select({ type: "place", id: row.place });
      return;
    }
    if (!this.collapsed.delete(key)) this.collapsed.add(key);
    this.buildRows();
  }

  hoverAt(x, y, event) {
    const row = this.at(x, y);
    this.stage.style.cursor = row >= 0 || (x < GUTTER && y > this.headHeight) ? "pointer" : x > GUTTER && y < this.headHeight ? "crosshair" : "default";
    const step = y > OVERVIEW_HEIGHT + AXIS_HEIGHT && y < this.headHeight && x > GUTTER ? this.pathStepAt(x) : null;
    const queue = x > GUTTER && row < 0 && y > this.headHeight ? this.rowAt(y, ["queue"]) : null;
    if (row >= 0) this.app.tip(event, [...spanTip(this.store, row), this.manyThere > 1 ? `the longest of ${number(this.manyThere)} spans here` : null]);
    else if (step) this.app.tip(event, [step.cause, duration(step.end - step.start), step.why]);
    else if (queue) {
      this.app.tip(event, [counted(this.queues[queue.place].at(this.timeAt(x)), "call") + " waiting", `for ${this.store.meta.places[queue.place].label}`]);
    } else this.app.tip(null);
    if (row !== this.hover) {
      this.hover = row;
      this.drawOverlay();
    }
  }

  zoom(factor, around = (this.store.range[0] + this.store.range[1]) / 2) {
    const [from, to] = this.store.range;
    this.store.setRange(around - (around - from) * factor, around + (to - around) * factor);
  }

  pan(share) {
    const [from, to] = this.store.range;
    this.store.setRange(from + share * (to - from), to + share * (to - from));
  }

  // Bring a span into view; with `close` fill most of the width with it.
  focus(row, close = false) {
    const { store } = this;
    const [from, to] = store.range;
    const begin = store.start[row], end = store.endOf(row), took = Math.max(end - begin, 1000);
    if (close) store.setRange(begin - took * 0.15, end + took * 0.15);
    else if (begin < from || begin > to || end < from) {
      const size = Math.max(to - from, took * 1.2);
      store.setRange(begin + took / 2 - size / 2, begin + took / 2 + size / 2);
    }
    this.uncover(row);
    const found = this.rowOfSub.get(store.first[store.lane[row]] + store.depth[row]);
    if (found) {
      const top = this.scroller.scrollTop, room = this.viewHeight - this.headHeight;
      if (found.y < top || found.y + found.height > top + room) this.scroller.scrollTop = Math.max(0, found.y - room / 3);
    }
    this.redraw();
  }

  uncover(row) {
    const place = this.store.place(row);
    const isHidden = this.collapsed.delete("p" + place) | this.collapsed.delete("n" + this.store.meta.places[place].node);
    if (isHidden) this.buildRows();
  }

  // The neighbour of a span in a direction: along its row, up to its parent, down to its first child.
  neighbour(row, key) {
    const { store } = this;
    if (key === "ArrowUp") return store.parent[row];
    if (key === "ArrowDown") return store.children(row).find((child) => !store.isHidden(child)) ?? -1;
    return store.neighbour(row, key === "ArrowLeft" ? -1 : 1);
  }

  // The first span of the uppermost bars, or -1.
  firstBar() {
    const row = this.rows.find(({ kind }) => kind === "bars");
    return row ? this.store.firstOf(row.sub) : -1;
  }

  update(what) {
    if (what === "filter") this.buildRows();
    else if (what === "path") this.resize();
    else this.redraw();
  }
}

function spanTip(store, row) {
  const lines = [store.label(row), `${duration(store.took[row])}${store.state(row) ? ` (${STATES[store.state(row)]})` : ""}`];
  if (store.queued(row) >= 0) lines.push(`${duration(store.queued(row))} in the queue`);
  lines.push(store.placeLabel(row));
  if (store.failed(row)) lines.push("failed");
  return lines;
}

function sums(values) {
  const found = new Float64Array(values.length + 1);
  for (let i = 0; i < values.length; i++) found[i + 1] = found[i] + values[i];
  return found;
}

// How many of the ascending values are at most `limit`.
function upTo(values, limit) {
  let low = 0, high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] <= limit) low = middle + 1;
    else high = middle;
  }
  return low;
}

// For each place the calls that wait there: the most at once, at a moment, and the time that calls have waited until a
// moment, all together. Null where hardly anything waits.
function queuesOf(store) {
  const waits = store.meta.places.map(() => [[], []]);
  for (let i = 0; i < store.count; i++) {
    if (store.submission[i] < 0) continue;
    const from = store.endOf(store.submission[i]);
    if (store.start[i] <= from) continue;
    const [begun, done] = waits[store.place(i)];
    begun.push(from);
    done.push(store.start[i]);
  }
  return waits.map((wait) => {
    if (!wait[0].length) return null;
    const begun = Float64Array.from(wait[0]).sort(), done = Float64Array.from(wait[1]);
    const begunSum = sums(begun), doneSum = sums(done);
    let depth = 0, most = 0;
    for (let i = 0, j = 0; i < begun.length; i++) {
      depth++;
      while (done[j] <= begun[i]) { depth--; j++; }
      most = Math.max(most, depth);
    }
    const waited = (time) => {
      const first = upTo(begun, time), last = upTo(done, time);
      return first * time - begunSum[first] - (last * time - doneSum[last]);
    };
    const total = doneSum[done.length] - begunSum[begun.length];
    return most >= 2 || total > store.end / 100 ? { most, waited, at: (time) => upTo(begun, time) - upTo(done, time) } : null;
  });
}

// How many executions (where there are none, spans) run at once, as the mean of each of `parts` of the whole time.
function busyStrip(store, parts) {
  const running = new Float64Array(parts), whole = new Float64Array(parts + 1), failed = new Uint8Array(parts);
  const size = store.end / parts || 1;
  const hasCalls = store.meta.executions > 0;
  for (let i = 0; i < store.count; i++) {
    if (store.keep && !store.keep[i]) continue;
    const a = store.start[i], b = store.endOf(i);
    const first = Math.min(parts - 1, Math.floor(a / size)), last = Math.min(parts - 1, Math.floor(b / size));
    if (store.failed(i)) failed[last] = 1;
    if (hasCalls && store.kind(i) !== CONSUMER) continue;
    if (first === last) running[first] += (b - a) / size;
    else {
      running[first] += ((first + 1) * size - a) / size;
      whole[first + 1]++;
      whole[last]--;
      running[last] += (b - last * size) / size;
    }
  }
  for (let n = 0, covering = 0; n < parts; n++) running[n] += covering += whole[n];
  return { running, failed, most: running.reduce((a, b) => Math.max(a, b), 0), keep: store.keep };
}

function niceStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((n) => n * power).find((step) => step >= least) || 10 * power;
}

function axisLabel(tick, step) {
  const units = tick >= 60e9 && step >= 1e9 ? [60e9, "m"] : step >= 1e8 ? [1e9, "s"] : step >= 1e5 ? [1e6, "ms"] : step >= 100 ? [1e3, "us"] : [1, "ns"];
  const digits = Math.max(0, Math.min(6, Math.ceil(-Math.log10(step / units[0]))));
  if (units[1] === "m") {
    const seconds = Math.round(tick / 1e9);
    return `${Math.floor(seconds / 60)}m ${String(seconds % 60).padStart(2, "0")}s`;
  }
  return `${(tick / units[0]).toFixed(digits)} ${units[1]}`;
}
