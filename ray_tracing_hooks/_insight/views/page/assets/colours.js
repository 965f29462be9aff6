// Colours of functions: distinguishable with red-green colour blindness, and never the only sign of anything.

import { el, pen } from "./dom.js";
import { callName } from "./format.js";
import { FAILED, PRODUCER } from "./figures.js";

// Each has a contrast of 3 to the grounds of both themes. None is red or orange, which are for errors and the critical path.
export const PALETTE = [
  "#4477aa", "#b77adb", "#905473", "#53a467", "#697851", "#6958bb", "#268c89", "#8e81bd", "#6a76d9", "#059be3",
  "#007185", "#919939", "#a853a2", "#317433", "#699278", "#5e90a2", "#a166c4", "#5f7c23", "#44705a", "#aa6b8b",
];
const WAIT_COLOUR = PALETTE.length;
PALETTE.push("#8a93a1");
const WAIT_NAMES = new Set(["ray.get", "ray.await", "ray.wait"]);
const FAILED_COLOUR = "#d5303e";

// Kinds of time: one colour each, the same in all views and in light and dark mode. Waiting is hatched too.
/** @typedef {{ colour: string, waits?: boolean, label?: string }} Category */
/** @type {Map<string, Category>} */
const CATEGORIES = new Map(Object.entries({
  run: { colour: "#3b7fd1", label: "running code" },
  submit: { colour: "#8a93a1", label: "submitting" },
  get: { colour: "#2d98a6", waits: true, label: "fetching results" },
  "actor queue": { colour: "#b8559e", waits: true },
  "worker queue": { colour: "#8268c9", waits: true },
  "worker start": { colour: "#87942f", waits: true },
  scheduling: { colour: "#b28516", waits: true },
  delivery: { colour: "#bf7a54", waits: true },
  waiting: { colour: "#6d87a8", waits: true, label: "timed-out wait" },
  retrying: { colour: "#d96d3c", waits: true, label: "retry delay" },
  dataset: { colour: "#6f9a5b", waits: true, label: "Ray Data" },
  training: { colour: "#8f7fb5", waits: true, label: "Ray Train" },
  "replica queue": { colour: "#c06a8a", waits: true, label: "waiting for replicas" },
  "request delivery": { colour: "#a58a5f", waits: true, label: "Ray Serve" },
  reserving: { colour: "#9c7a3c", waits: true, label: "placement groups" },
  unexplained: { colour: "#8a8378", waits: true },
}));
/** @type {Category} */
const OTHER_CATEGORY = { colour: "#7d8aa5", waits: true };

/** @param {string} kind */
export function category(kind) {
  return CATEGORIES.get(kind) || OTHER_CATEGORY;
}

/** The name of a kind of time, for people.
 * @param {string} kind */
export function categoryLabel(kind) {
  return category(kind).label || kind;
}

export class Colours {
  /** @param {Store} store */
  constructor(store) {
    this.store = store;
    // The functions that take most time get colours first, so that their colours differ.
    const order = store.meta.colour_order;
    /** The palette index of each name. */
    this.ofName = new Uint8Array(store.names.length);
    let position = 0;
    for (const group of order) {
      // Waiting is not work, so it has its own colour.
      const colour = WAIT_NAMES.has(store.names[group[0]]) ? WAIT_COLOUR : position++ % WAIT_COLOUR;
      for (const name of group) this.ofName[name] = colour;
    }
    // The labels of the flame graph lack the suffix that distinguishes executions from submissions.
    const byCall = new Map();
    store.names.forEach((name, index) => {
      const call = callName(name);
      if (byCall.has(call)) this.ofName[index] = this.ofName[byCall.get(call)];
      else byCall.set(call, index);
    });
    this.failed = FAILED_COLOUR;
    this.ink = this.soft = this.faint = this.line = this.surface = this.panel = this.accent = this.path = this.submission = "";
    /** What was made of colours, in the current scheme.
     * @type {Map<string, any>} */
    this.made = new Map();
    this.update();
  }

  /** Read the colours of the current scheme, light or dark. */
  update() {
    const style = getComputedStyle(document.documentElement);
    /** @param {string} name */
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
    this.made.clear();
  }

  /** What was made of a colour before, or else is made now.
   * @template T
   * @param {string} what @param {string} colour @param {() => T} make @returns {T} */
  once(what, colour, make) {
    const key = `${what} ${colour}`;
    if (!this.made.has(key)) this.made.set(key, make());
    return this.made.get(key);
  }

  /** Thin stripes in a colour, on a transparent ground.
   * @param {CanvasRenderingContext2D} context @param {string} colour @returns {CanvasPattern | string} */
  hatch(context, colour) {
    return this.once("hatch", colour, () => {
      const tile = el("canvas", { width: 6, height: 6 });
      const inner = pen(tile);
      inner.strokeStyle = colour;
      inner.lineWidth = 1;
      inner.beginPath();
      for (const at of [-6, 0, 6]) {
        inner.moveTo(at, 6);
        inner.lineTo(at + 6, 0);
      }
      inner.stroke();
      return context.createPattern(tile, "repeat") ?? colour;
    });
  }

  /** @param {number} row */
  of(row) {
    const flags = this.store.flags[row];
    if (flags & FAILED) return this.failed;
    if ((flags & 7) === PRODUCER) return this.submission;
    return PALETTE[this.ofName[this.store.name[row]] ?? 0];
  }

  /** @param {number} name */
  ofNameIndex(name) {
    return PALETTE[this.ofName[name] ?? 0];
  }

  /** The colour as a number for an ImageData viewed as 32-bit words (little endian: ABGR).
   * @param {string} colour */
  pixel(colour) {
    const [r, g, b] = channels(colour);
    return ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
  }

  /** Black or white, whichever is readable on the colour.
   * @param {string} colour */
  text(colour) {
    // The luminance at which both have the same contrast.
    return this.once("text", colour, () => (luminance(colour) > 0.179 ? "#000000" : "#ffffff"));
  }

  /** The colour of secondary text, if it is readable on this ground, else a readable one.
   * @param {string} ground */
  quiet(ground) {
    return this.once("quiet", ground, () => [this.soft, this.ink].find((ink) => contrast(ground, ink) >= 4.5) ?? this.text(ground));
  }

  /** A colour between this one and the surface, for items outside the selection.
   * @param {string} colour */
  dimmed(colour) {
    return this.once("dimmed", colour, () => {
      const a = channels(colour), b = channels(this.surface);
      return "#" + a.map((each, i) => Math.round(each * 0.22 + b[i] * 0.78).toString(16).padStart(2, "0")).join("");
    });
  }
}

/** @param {string} colour */
function channels(colour) {
  return [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
}

/** @param {string} a @param {string} b */
function contrast(a, b) {
  const [dark, light] = [luminance(a), luminance(b)].sort((x, y) => x - y);
  return (light + 0.05) / (dark + 0.05);
}

/** @param {string} colour */
function luminance(colour) {
  const [r, g, b] = channels(colour).map((c) => (c / 255 <= 0.04 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
