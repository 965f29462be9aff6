import assert from "node:assert/strict";
import { test } from "node:test";
import { matcher, narrowed, parsed, toggled, words } from "../../ray_tracing_hooks/_insight/views/page/assets/search.js";

test("a query is words; a minus hides, quotes keep spaces", () => {
  assert.deepEqual(words('load -get "two words" -"a b" key="x y" ""').map(({ hides, text }) => [hides, text]),
    [[false, "load"], [true, "get"], [false, "two words"], [true, "a b"], [false, "key=x y"]]);
  assert.deepEqual(words("   "), []);
});

test("each word asks for one thing", () => {
  const asks = (query) => parsed(query).map((term) => term.asks);
  assert.deepEqual(asks(">10ms <=1s is:error on:node key=1 load"), ["longer", "shorter", "is", "place", "attribute", "name"]);
  assert.deepEqual(asks("is:nothing"), ["name"]);
  assert.deepEqual(asks("> >ten"), ["name"]);
  assert.deepEqual(parsed("-<2us"), [{ hides: true, asks: "shorter", ns: 2000 }]);
});

test("a key is whole, or what follows a dot", () => {
  const [{ fitsKey }] = parsed("name=x");
  assert.deepEqual(["name", "ray.name", "rename", "name.x"].map(fitsKey), [true, true, false, false]);
  assert.equal(parsed("ray.*=x")[0].fitsKey("ray.name"), true);
});

test("a pattern fits anywhere, whatever the case", () => {
  const fits = (pattern, text) => matcher(pattern)(text);
  assert.equal(fits("LOAD", "preload"), true);
  assert.equal(fits("lo?d", "a load"), true);
  assert.equal(fits("lo?d", "lod"), false);
  assert.equal(fits("a*c*b", "abc"), false);
  assert.equal(fits("w*init", "Worker.__init__"), true);
  assert.equal(fits("", "x"), true);
  assert.equal(fits("(a+)+$", "aaaa"), false);
});

test("a pattern of many parts takes no time", () => {
  const began = performance.now();
  assert.equal(matcher("*a".repeat(300) + "?b")("a".repeat(20000)), false);
  assert.ok(performance.now() - began < 2000);
});

test("a button adds its word, and takes it away again", () => {
  assert.equal(toggled("", "is:error"), "is:error");
  assert.equal(toggled('"two  words"', "is:error"), '"two  words" is:error');
  assert.equal(toggled('"two  words" is:error x', "is:error"), '"two  words" x');
  assert.equal(toggled("-is:error", "is:error"), "");
  assert.equal(toggled("is:errors", "is:error"), "is:errors is:error");
});

test("a value that is clicked narrows the query", () => {
  assert.equal(narrowed("x", "key", "1"), "x key=1");
  assert.equal(narrowed("", "key", 'a "b" c'), '"key=a b c"');
  assert.equal(parsed(narrowed("", "key", "a b"))[0].value, "a b");
});
