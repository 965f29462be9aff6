// The query language of search and filter, independent of the spans.

import { parseDuration } from "./format.js";

/** One condition of a query.
 * @typedef {{ hides: boolean } & (
 *   | { asks: "longer", ns: number }
 *   | { asks: "shorter", ns: number }
 *   | { asks: "is", state: string }
 *   | { asks: "place", fits: Matcher }
 *   | { asks: "attribute", key: string, value: string, fitsKey: Matcher, fits: Matcher }
 *   | { asks: "name", isWhole: boolean, fits: Matcher })} Term */
/** @typedef {(text: string) => boolean} Matcher */

/** What `is:...` may ask for. */
export const STATES_ASKED = ["error", "running", "lost", "submission", "execution", "path"];

// A query with these also searches the suffixes that Ray adds to names.
const NAMES_SUFFIX = /ray\.|remote_worker/i;

/** The words of a query: a minus excludes, quotes keep spaces.
 * @param {string} query */
export function words(query) {
  const found = [];
  for (const [, minus, text] of query.matchAll(/(-?)((?:[^\s"]|"[^"]*")+)/g)) {
    const plain = text.replaceAll('"', "");
    if (plain) found.push({ hides: minus === "-", text: plain });
  }
  return found;
}

/** The conditions of a query; an incomplete one, such as `>` without a duration, is ignored.
 * @param {string} query @returns {Term[]} */
export function parsed(query) {
  return words(query).map(({ hides, text }) => term(hides, text)).filter((each) => each !== null);
}

/** @param {boolean} hides @param {string} text @returns {Term | null} */
function term(hides, text) {
  const longer = /^([<>])=?(.+)$/s.exec(text);
  if (longer) {
    const ns = parseDuration(longer[2]);
    return ns === null ? null : { hides, asks: longer[1] === ">" ? "longer" : "shorter", ns };
  }
  if (text.startsWith("is:") && STATES_ASKED.includes(text.slice(3))) return { hides, asks: "is", state: text.slice(3) };
  if (text.startsWith("on:")) return { hides, asks: "place", fits: matcher(text.slice(3)) };
  const pair = /^([^=]+)=(.*)$/s.exec(text);
  if (pair) {
    const [, key, value] = pair;
    const fitsKey = key.includes("*") ? matcher(key) : (/** @type {string} */ name) => name === key || name.endsWith("." + key);
    return { hides, asks: "attribute", key, value, fitsKey, fits: matcher(value) };
  }
  return { hides, asks: "name", isWhole: NAMES_SUFFIX.test(text), fits: matcher(text) };
}

/** Whether a text contains the pattern, ignoring case; `*` and `?` are wildcards.
 * @param {string} pattern @returns {Matcher} */
export function matcher(pattern) {
  const wanted = pattern.toLowerCase();
  if (!/[*?]/.test(wanted)) return (text) => text.toLowerCase().includes(wanted);
  // Match the parts in order, each at its first occurrence: a regular expression could backtrack exponentially.
  const parts = wanted.split(/\*+/);
  return (text) => {
    const where = text.toLowerCase();
    let at = 0;
    for (const part of parts) {
      const found = indexWithMarks(where, part, at);
      if (found < 0) return false;
      at = found + part.length;
    }
    return true;
  };
}

/** @param {string} text @param {string} part @param {number} from */
function indexWithMarks(text, part, from) {
  if (!part.includes("?")) return text.indexOf(part, from);
  for (let at = from; at + part.length <= text.length; at++) {
    let n = 0;
    while (n < part.length && (part[n] === "?" || part[n] === text[at + n])) n++;
    if (n === part.length) return at;
  }
  return -1;
}

/** The query with the word added, or removed if it has the word. The word consists of letters and colons.
 * @param {string} query @param {string} word */
export function toggled(query, word) {
  if (!words(query).some(({ text }) => text === word)) return `${query} ${word}`.trim();
  return query.replace(new RegExp(`(^|\\s+)-?"?${word}"?(?=\\s|$)`, "g"), "").trim();
}

/** The query with the added condition that an attribute has a value.
 * @param {string} query @param {string} key @param {string} value */
export function narrowed(query, key, value) {
  const token = `${key}=${value.slice(0, 200)}`;
  return `${query} ${/[\s"]/.test(token) ? `"${token.replaceAll('"', "")}"` : token}`.trim();
}
