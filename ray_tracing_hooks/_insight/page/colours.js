// Colours of functions: told apart by those who do not see red or green, and never the only sign of anything.

const PALETTE = ["#4477aa", "#ccbb44", "#66bbdd", "#aa5599", "#228866", "#bb7744", "#8899cc", "#999944", "#44aa99", "#7766bb"];
const WAIT_COLOUR = PALETTE.length;
PALETTE.push("#8d96a3");
const WAIT_NAMES = new Set(["ray.get", "ray.await", "ray.wait"]);
const FAILED_COLOUR = "#d5303e";

class Colours {
  constructor(store) {
    this.store = store;
    // The functions that take most time get colours first, so that they differ from each other.
    const order = store.meta.colour_order;
    this.ofName = new Array(store.names.length).fill(0);
    let position = 0;
    for (const group of order) {
      // Waiting is not work: it has the colour that nothing else has.
      const colour = WAIT_NAMES.has(store.names[group[0]]) ? WAIT_COLOUR : position++ % WAIT_COLOUR;
      for (const name of group) this.ofName[name] = colour;
    }
    // The stacks of the flame graph have names without what tells executions from submissions.
    const byCall = new Map();
    store.names.forEach((name, index) => {
      const call = name.replace(/ ray\.remote(_worker)?$/, "");
      if (byCall.has(call)) this.ofName[index] = this.ofName[byCall.get(call)];
      else byCall.set(call, index);
    });
    this.update();
  }

  update() {
    const style = getComputedStyle(document.documentElement);
    const value = (name) => style.getPropertyValue(name).trim();
    this.ink = value("--ink");
    this.soft = value("--soft");
    this.faint = value("--faint");
    this.line = value("--line");
    this.surface = value("--surface");
    this.panel = value("--panel");
    this.accent = value("--accent");
    this.path = value("--path");
    this.submission = value("--submission");
    this.failed = FAILED_COLOUR;
    this.isDark = luminance(this.surface) < 0.5;
    this.texts = new Map();
    this.pixels = new Map();
  }

  of(row) {
    const flags = this.store.flags[row];
    if (flags & FAILED) return this.failed;
    if ((flags & 7) === PRODUCER) return this.submission;
    return PALETTE[this.ofName[this.store.name[row]] ?? 0];
  }

  ofNameIndex(name) {
    return PALETTE[this.ofName[name] ?? 0];
  }

  // As a number for an ImageData seen as 32-bit words (little endian: ABGR).
  pixel(colour) {
    let found = this.pixels.get(colour);
    if (found === undefined) {
      const [r, g, b] = channels(colour);
      found = ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
      this.pixels.set(colour, found);
    }
    return found;
  }

  // A pixel's colour mixed with the surface, the more the smaller the share.
  thinned(pixel, share) {
    const part = Math.max(0.3, Math.ceil(share * 5) / 5);
    const key = `${pixel}~${part}`;
    let found = this.pixels.get(key);
    if (found === undefined) {
      const surface = this.pixel(this.surface);
      const mixed = [0, 8, 16].map((by) => Math.round(((pixel >>> by) & 255) * part + ((surface >>> by) & 255) * (1 - part)) << by);
      found = ((255 << 24) | mixed[0] | mixed[1] | mixed[2]) >>> 0;
      this.pixels.set(key, found);
    }
    return found;
  }

  // Black or white, whichever can be read on the colour.
  text(colour) {
    let found = this.texts.get(colour);
    if (found === undefined) {
      // Where the contrast of both would be the same.
      found = luminance(colour) > 0.179 ? "#000000" : "#ffffff";
      this.texts.set(colour, found);
    }
    return found;
  }

  // Between the colour and the surface: what is not selected.
  dimmed(colour) {
    const key = colour + "~";
    let found = this.texts.get(key);
    if (found === undefined) {
      const a = channels(colour), b = channels(this.surface);
      found = "#" + a.map((each, i) => Math.round(each * 0.22 + b[i] * 0.78).toString(16).padStart(2, "0")).join("");
      this.texts.set(key, found);
    }
    return found;
  }
}

function channels(colour) {
  return [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
}

function luminance(colour) {
  const [r, g, b] = channels(colour).map((c) => (c / 255 <= 0.04 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
