// Text for people. Whatever comes from a span reaches the page as text only, through `el` and `textContent`.

const UNSAFE = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu;
const escaped = (c) => "\\u" + c.codePointAt(0).toString(16).padStart(4, "0");

// With what cannot be seen, or turns the direction of writing, as escapes.
function safe(text) {
  return String(text).replace(UNSAFE, escaped);
}

// The same for texts of several lines.
function safeLines(text) {
  return String(text).replace(UNSAFE, (c) => (c === "\n" || c === "\t" ? c : escaped(c)));
}

function shortened(text, most) {
  if (text.length <= most) return text;
  const tail = Math.floor((most - 1) / 3);
  return text.slice(0, most - 1 - tail) + "…" + text.slice(text.length - tail);
}

function threeDigits(number) {
  return number < 9.995 ? number.toFixed(2) : number < 99.95 ? number.toFixed(1) : number.toFixed(0);
}

// As the commands print it: 812 us, 1.23 ms, 45.6 s, 2m 05s, 1h 02m.
function duration(ns) {
  if (ns < 0) return "-" + duration(-ns);
  if (ns < 999.5e3) return threeDigits(ns / 1e3) + " us";
  if (ns < 999.5e6) return threeDigits(ns / 1e6) + " ms";
  if (ns < 59.95e9) return threeDigits(ns / 1e9) + " s";
  const seconds = Math.round(ns / 1e9);
  const two = (n) => String(n).padStart(2, "0");
  if (seconds < 3600) return `${Math.floor(seconds / 60)}m ${two(seconds % 60)}s`;
  return `${Math.floor(seconds / 3600)}h ${two(Math.floor(seconds / 60) % 60)}m`;
}

const UNITS = { ns: 1, us: 1e3, "µs": 1e3, ms: 1e6, s: 1e9, m: 60e9, h: 3600e9 };

// Nanoseconds of "10ms", or null.
function parseDuration(text) {
  const found = /^(\d+(?:\.\d+)?)\s*(ns|us|µs|ms|s|m|h)$/.exec(text.trim());
  return found ? Number(found[1]) * UNITS[found[2]] : null;
}

const number = (n) => Number(n).toLocaleString("en-US");
const counted = (n, one, many = one + "s") => `${number(n)} ${n === 1 ? one : many}`;
const percent = (share) => (share > 0 && share < 0.001 ? "< 0.1 %" : `${(100 * share).toFixed(1)} %`);
const bytes = (n) => (n < 1024 ? `${n} B` : n < 1 << 20 ? `${threeDigits(n / 1024)} KiB` : n < 1 << 30 ? `${threeDigits(n / (1 << 20))} MiB` : `${threeDigits(n / (1 << 30))} GiB`);

// A moment by the clock: of the day, with as many digits as `step` (ns) makes worth having.
function clock(ms, step = 1e6) {
  const at = new Date(ms);
  const two = (n) => String(n).padStart(2, "0");
  const time = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  return step >= 1e9 ? time : `${time}.${String(at.getMilliseconds()).padStart(3, "0")}`;
}

// An element. Children are elements or texts; `on...` are listeners, other properties attributes.
function el(tag, properties, ...children) {
  const element = document.createElement(tag);
  fill(element, properties, children);
  return element;
}

const SVG = "http://www.w3.org/2000/svg";
function svg(tag, properties, ...children) {
  const element = document.createElementNS(SVG, tag);
  fill(element, properties, children);
  return element;
}

function fill(element, properties, children) {
  for (const [key, value] of Object.entries(properties || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key === "style") for (const [name, given] of Object.entries(value)) element.style.setProperty(name, given);
    else element.setAttribute(key, value === true ? "" : value);
  }
  for (const child of children.flat()) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(safeLines(child)));
  }
}

function emptied(element, ...children) {
  element.replaceChildren(...children.flat().filter(Boolean));
  return element;
}
