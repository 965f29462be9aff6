// Search and filter: what does not pass is hidden in every view, and the page says how much that is.

const FILTER_HELP = [
  ["load", "the name contains load; * and ? stand for anything"],
  ["-load", "hides what has it in its name"],
  ["\"two words\"", "a text with spaces"],
  ["key=value", "an attribute contains the value; -key=value hides it"],
  [">10ms  <1s", "took longer, or less"],
  ["is:error", "failed; also is:running, is:lost, is:submission, is:execution, is:path"],
  ["on:text", "the worker, actor or node contains the text"],
];

class Filter {
  constructor(store, app) {
    Object.assign(this, { store, app });
    this.byAttribute = new Map();
    this.turn = 0;
  }

  tokens(query) {
    const found = [];
    for (const [, minus, text] of query.matchAll(/(-?)((?:[^\s"]|"[^"]*")+)/g)) {
      const plain = text.replaceAll('"', "");
      if (plain) found.push({ hides: minus === "-", text: plain });
    }
    return found;
  }

  async apply(query) {
    const turn = ++this.turn;
    const { store } = this;
    if (store.askFilter) return store.askFilter(query, () => turn === this.turn);
    store.query = query;
    const tests = [];
    for (const token of this.tokens(query)) {
      const test = await this.test(token, turn);
      if (turn !== this.turn) return;
      if (test) tests.push(test);
    }
    if (!tests.length) {
      store.keep = null;
      store.kept = store.count;
    } else {
      const keep = new Uint8Array(store.count);
      let kept = 0;
      for (let i = 0; i < store.count; i++) {
        let passes = 1;
        for (const test of tests) if (!test(i)) { passes = 0; break; }
        keep[i] = passes;
        kept += passes;
      }
      store.keep = keep;
      store.kept = kept;
    }
    store.sort();
    store.changed("filter");
  }

  async test({ hides, text }, turn) {
    const { store } = this;
    const flip = (test) => (hides ? (i) => !test(i) : test);
    const longer = /^([<>])=?(.+)$/.exec(text);
    if (longer) {
      const limit = parseDuration(longer[2]);
      if (limit === null) return null;
      return flip(longer[1] === ">" ? (i) => store.took[i] >= limit : (i) => store.took[i] <= limit);
    }
    const is = {
      "is:error": (i) => store.failed(i), "is:running": (i) => store.state(i) === 1, "is:lost": (i) => store.state(i) === 2,
      "is:submission": (i) => store.kind(i) === PRODUCER, "is:execution": (i) => store.kind(i) === CONSUMER, "is:path": (i) => store.onPath(i),
    }[text];
    if (is) return flip(is);
    if (text.startsWith("on:")) {
      const fits = matcher(text.slice(3));
      const places = store.meta.places.map(({ label, detail, node }) => fits(`${label} ${detail} ${store.meta.nodes[node].label}`));
      return flip((i) => places[store.place(i)]);
    }
    const pair = /^([^=]+)=(.*)$/.exec(text);
    if (pair) {
      const mask = await this.attribute(pair[1], pair[2], turn);
      return mask && flip((i) => mask[i]);
    }
    const fits = matcher(text);
    const names = Uint8Array.from(store.names, (name) => (fits(name) ? 1 : 0));
    return flip((i) => names[store.name[i]]);
  }

  // The spans that have an attribute with such a value: reads all attributes of the page, once for each question.
  async attribute(key, value, turn) {
    const asked = `${key}=${value}`;
    const known = this.byAttribute.get(asked);
    if (known) return known;
    const { store } = this;
    const fits = matcher(value);
    const fitsKey = key.includes("*") ? matcher(key) : (name) => name === key || name.endsWith("." + key);
    const mask = new Uint8Array(store.count);
    const resources = store.meta.resources.map((resource) => Object.entries(resource).some(([name, given]) => fitsKey(name) && fits(shown(given))));
    const rowOf = inverse(store.detail);
    const { lines, chunkSize } = store.details;
    for (let n = 0; n < lines.length; n++) {
      if (turn !== this.turn) return null;
      if (n % 20 === 19) this.app.say(`Searching attributes: ${percent(n / lines.length)}`);
      const chunk = await readJson(lines[n]);
      const columns = chunk.shapes.map((keys) => keys.map((name, at) => (fitsKey(name) ? at : -1)).filter((at) => at >= 0));
      chunk.spans.forEach((span, at) => {
        const row = rowOf[n * chunkSize + at];
        if (columns[span[1]].some((column) => fits(shown(span[2][column])))) mask[row] = 1;
      });
    }
    for (let i = 0; i < store.count; i++) if (resources[store.resource[i]]) mask[i] = 1;
    this.byAttribute.set(asked, mask);
    return mask;
  }
}

// By the place among the details, the row.
function inverse(places) {
  const found = new Uint32Array(places.length);
  places.forEach((place, row) => {
    if (place) found[place - 1] = row;
  });
  return found;
}

// Whether a text contains the pattern, whatever the case; with * and ? it may fit anywhere in it too.
function matcher(pattern) {
  const wanted = pattern.toLowerCase();
  if (!/[*?]/.test(wanted)) return (text) => text.toLowerCase().includes(wanted);
  // Parts one after the other, not a regular expression: what one can be made to do takes for ever.
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

function indexWithMarks(text, part, from) {
  if (!part.includes("?")) return text.indexOf(part, from);
  for (let at = from; at + part.length <= text.length; at++) {
    let n = 0;
    while (n < part.length && (part[n] === "?" || part[n] === text[at + n])) n++;
    if (n === part.length) return at;
  }
  return -1;
}

// An attribute's value as text.
function shown(value) {
  if (typeof value === "string") return value;
  return JSON.stringify(value);
}
