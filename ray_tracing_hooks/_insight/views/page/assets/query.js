// The language of search and filter, without the spans: words, patterns, durations. index/filters.py speaks the same one;
// tests/javascript/cases/filters.json holds both to it.

import { parseDuration } from "./format.js";

/** One condition of a query. Without `is` of what it asks, it hides what fits instead.
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

// Somebody who writes so means what Ray puts at the end of names, too.
const NAMES_SUFFIX = /ray\.|remote_worker/i;

/** The words of a query: a minus hides, quotes keep spaces.
 * @param {string} query */
export function words(query) {
  const found = [];
  for (const [, minus, text] of query.matchAll(/(-?)((?:[^\s"]|"[^"]*")+)/g)) {
    const plain = text.replaceAll('"', "");
    if (plain) found.push({ hides: minus === "-", text: plain });
  }
  return found;
}

/** The conditions of a query; a word that says nothing, such as `>` without a duration, is left out.
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

/** Whether a text contains the pattern, whatever the case; `*` and `?` stand for anything.
 * @param {string} pattern @returns {Matcher} */
export function matcher(pattern) {
  const wanted = pattern.toLowerCase();
  if (!/[*?]/.test(wanted)) return (text) => text.toLowerCase().includes(wanted);
  // Parts one after the other, each at the first place that it fits: a regular expression could be made to take for ever.
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

/** The query with the word in it, or without it where it is there. The word is one of letters and colons.
 * @param {string} query @param {string} word */
export function toggled(query, word) {
  if (!words(query).some(({ text }) => text === word)) return `${query} ${word}`.trim();
  return query.replace(new RegExp(`(^|\\s+)-?"?${word}"?(?=\\s|$)`, "g"), "").trim();
}

/** The query with a condition that an attribute has a value.
 * @param {string} query @param {string} key @param {string} value */
export function narrowed(query, key, value) {
  const token = `${key}=${value.slice(0, 200)}`;
  return `${query} ${/[\s"]/.test(token) ? `"${token.replaceAll('"', "")}"` : token}`.trim();
}
