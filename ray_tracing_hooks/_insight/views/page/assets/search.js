// Search and filter for the spans in the page: spans that do not match are hidden in every view. And its query language.

import { readJson } from "./codec.js";
import { callName, parseDuration, percent, shown } from "./format.js";

export const FILTER_HELP = [
  ["load", "functions, classes and spans with “load” in the name; * and ? are wildcards"],
  ["-load", "hide them; - works before any other filter too"],
  ['"two words"', "text with spaces"],
  ["key=value", "an attribute contains the value"],
  [">10ms  <1s", "spans that took longer, or shorter"],
  ["is:error", "failed spans; also is:running, is:lost, is:submission, is:execution, is:path"],
  ["on:text", "spans on a worker, actor or node whose name contains the text"],
];

/** @typedef {(row: number) => boolean} Test */

export class Filter {
  /** @param {Store} store @param {(text: string) => void} say */
  constructor(store, say) {
    this.store = store;
    this.say = say;
    /** @type {Map<string, Uint8Array>} */
    this.byAttribute = new Map();
    this.turn = 0;
  }

  /** @param {string} query */
  async apply(query) {
    const turn = ++this.turn;
    const { store } = this;
    store.query = query;
    /** @type {Test[]} */
    const tests = [];
    for (const term of parsed(query)) {
      const test = await this.test(term, turn);
      if (turn !== this.turn || !test) return;
      tests.push(term.hides ? (/** @type {number} */ row) => !test(row) : test);
    }
    store.filter(tests.length ? Uint8Array.from({ length: store.count }, (_, row) => (tests.every((test) => test(row)) ? 1 : 0)) : null);
  }

  /** Null if another query has replaced this one.
   * @param {Term} term @param {number} turn @returns {Promise<Test | null>} */
  async test(term, turn) {
    const { store } = this;
    const { meta } = store;
    if (term.asks === "longer") return (row) => store.took[row] >= term.ns;
    if (term.asks === "shorter") return (row) => store.took[row] <= term.ns;
    if (term.asks === "is") return (row) => store.is(row, term.state);
    if (term.asks === "place") {
      const places = meta.places.map(({ label, detail, node }) => term.fits(`${label} ${detail} ${meta.nodes[node].label}`));
      return (row) => places[store.place(row)];
    }
    if (term.asks === "attribute") {
      const mask = await this.withAttribute(term, turn);
      return mask && ((row) => mask[row] === 1);
    }
    // "worker" means a class or function, not the " ray.remote_worker" that ends the name of every execution.
    const names = (term.isWhole ? store.names : store.names.map(callName)).map(term.fits);
    return (row) => names[store.name[row]];
  }

  /** The spans that have an attribute with such a value. Reads all attributes in the page, once for each query.
   * @param {Extract<Term, { asks: "attribute" }>} term @param {number} turn */
  async withAttribute({ key, value, fitsKey, fits }, turn) {
    const asked = `${key}=${value}`;
    const known = this.byAttribute.get(asked);
    if (known) return known;
    const { store } = this;
    const mask = new Uint8Array(store.count);
    const resources = store.meta.resources.map((resource) => Object.entries(resource).some(([name, given]) => fitsKey(name) && fits(shown(given))));
    const rowOf = inverse(store.detail);
    const { lines, chunkSize } = store.details;
    for (let n = 0; n < lines.length; n++) {
      if (turn !== this.turn) return null;
      if (n % 20 === 19) this.say(`Searching attributes: ${percent(n / lines.length)}`);
      /** @type {Chunk} */
      const chunk = await readJson(lines[n]);
      const columns = chunk.shapes.map((keys) => keys.map((name, at) => (fitsKey(name) ? at : -1)).filter((at) => at >= 0));
      chunk.spans.forEach((span, at) => {
        if (columns[span[1]].some((column) => fits(shown(span[2][column])))) mask[rowOf[n * chunkSize + at]] = 1;
      });
    }
    for (let i = 0; i < store.count; i++) if (resources[store.resource[i]]) mask[i] = 1;
    if (turn !== this.turn) return null;
    this.byAttribute.set(asked, mask);
    return mask;
  }
}

/** The row of each position among the details.
 * @param {Numbers} places */
function inverse(places) {
  const found = new Uint32Array(places.length);
  for (let row = 0; row < places.length; row++) if (places[row]) found[places[row] - 1] = row;
  return found;
}

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
  return words(query).map(({ hides, text }) => termOf(hides, text)).filter((each) => each !== null);
}

/** @param {boolean} hides @param {string} text @returns {Term | null} */
function termOf(hides, text) {
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
