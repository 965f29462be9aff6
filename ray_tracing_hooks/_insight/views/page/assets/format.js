// Formats names, figures, durations and times for people. Nothing here draws.

const UNSAFE = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu;

/** @param {string} c */
const escaped = (c) => "\\u" + Number(c.codePointAt(0)).toString(16).padStart(4, "0");

/** The text with escapes for invisible characters and for those that change the writing direction.
 * @param {unknown} text */
export function safe(text) {
  return String(text).replace(UNSAFE, escaped);
}

/** The same for text with several lines.
 * @param {unknown} text */
export function safeLines(text) {
  return String(text).replace(UNSAFE, (c) => (c === "\n" || c === "\t" ? c : escaped(c)));
}

/** The text, without part of its middle if it is longer than `most` characters.
 * @param {string} text @param {number} most */
export function shortened(text, most) {
  if (text.length <= most) return text;
  const tail = Math.floor((most - 1) / 3);
  return text.slice(0, most - 1 - tail) + "…" + text.slice(text.length - tail);
}

const MOST_VALUE = 4000;

/** The beginning of a long text, and its length.
 * @param {string} text @param {number} [most] */
export function cut(text, most = MOST_VALUE) {
  return text.length <= most ? text : `${text.slice(0, most)}… (${number(text.length)} characters)`;
}

/** An attribute's value as text.
 * @param {unknown} value @returns {string} */
export function shown(value) {
  return typeof value === "string" ? value : String(JSON.stringify(value));
}

/** @param {number} n */
export function threeDigits(n) {
  return n < 9.995 ? n.toFixed(2) : n < 99.95 ? n.toFixed(1) : n.toFixed(0);
}

/** @param {number} n */
const two = (n) => String(n).padStart(2, "0");

/** A duration, in the same format as in the commands: 812 us, 1.23 ms, 45.6 s, 2m 05s, 1h 02m.
 * @param {number} ns @returns {string} */
export function duration(ns) {
  if (ns < 0) return "-" + duration(-ns);
  if (ns < 999.5e3) return threeDigits(ns / 1e3) + " us";
  if (ns < 999.5e6) return threeDigits(ns / 1e6) + " ms";
  if (ns < 59.95e9) return threeDigits(ns / 1e9) + " s";
  const seconds = Math.round(ns / 1e9);
  if (seconds < 3600) return `${Math.floor(seconds / 60)}m ${two(seconds % 60)}s`;
  return `${Math.floor(seconds / 3600)}h ${two(Math.floor(seconds / 60) % 60)}m`;
}

/** @type {Record<string, number>} */
const UNITS = { ns: 1, us: 1e3, "µs": 1e3, ms: 1e6, s: 1e9, m: 60e9, h: 3600e9 };

/** Nanoseconds of "10ms", or null.
 * @param {string} text */
export function parseDuration(text) {
  const found = /^(\d{1,15}(?:\.\d{1,15})?)\s*(ns|us|µs|ms|s|m|h)$/.exec(text.trim());
  return found ? Number(found[1]) * UNITS[found[2]] : null;
}

/** @param {number} n */
export const number = (n) => Number(n).toLocaleString("en-US");

/** @param {number} n @param {string} one @param {string} [many] */
export const counted = (n, one, many = one + "s") => `${number(n)} ${n === 1 ? one : many}`;

/** @param {number} share */
export const percent = (share) => (share > 0 && share < 0.001 ? "< 0.1 %" : `${(100 * share).toFixed(1)} %`);

/** A size in bytes.
 * @param {number} n */
export function byteSize(n) {
  if (n < 1024) return `${n} B`;
  if (n < 1 << 20) return `${threeDigits(n / 1024)} KiB`;
  return n < 1 << 30 ? `${threeDigits(n / (1 << 20))} MiB` : `${threeDigits(n / (1 << 30))} GiB`;
}

/** The time of day, with milliseconds if `step` (nanoseconds) is small enough.
 * @param {number} ms @param {number} [step] */
export function clock(ms, step = 1e6) {
  const at = new Date(ms);
  const time = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  return step >= 1e9 ? time : `${time}.${String(at.getMilliseconds()).padStart(3, "0")}`;
}

/** @param {number} ms */
export function day(ms) {
  const at = new Date(ms);
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
}

/** The function in the name of a submission or execution; any other name unchanged.
 * @param {string} name */
export function callName(name) {
  return name.replace(/ ray\.remote(_worker)?$/, "");
}

/** The name without the module `__main__` and without the suffix of executions. The driver of `python -m`,
 * `__main__.py ray.driver`, is not a function of that module.
 * @param {string} name */
export function plainName(name) {
  return name.replace(/^__main__\.(?!py ray\.driver$)/, "").replace(/ ray\.remote_worker$/, "");
}
