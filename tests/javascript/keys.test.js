import assert from "node:assert/strict";
import { test } from "node:test";
import { KEYS, actionOf, tabAfter } from "../../ray_tracing_hooks/_insight/views/page/assets/keys.js";
import { read, written } from "../../ray_tracing_hooks/_insight/views/page/assets/address.js";

const PRESSED = { view: "timeline", isTyping: false, isSlider: false, hasModifier: false, isHelpOpen: false };
const act = (key, more = {}) => actionOf({ key, ...PRESSED, ...more }, 7)?.act ?? null;

test("each key does what the list says", () => {
  const acts = { w: "in", W: "in", "+": "in", "=": "in", s: "out", "-": "out", a: "left", d: "right", 0: "whole", c: "path", f: "close-up", "/": "search", "?": "help", Enter: "details", Escape: "escape" };
  for (const [key, expected] of Object.entries(acts)) assert.equal(act(key), expected, key);
  for (const key of ["x", "Tab", " ", "F1", "constructor", "toString"]) assert.equal(act(key), null, key);
  assert.equal(KEYS.length, 12);
});

test("digits open tabs, as many as there are", () => {
  assert.deepEqual(actionOf({ key: "7", ...PRESSED }, 7), { act: "tab", tab: 6 });
  assert.equal(act("8"), null);
});

test("arrows go from span to span on the timeline only", () => {
  assert.deepEqual(actionOf({ key: "ArrowUp", ...PRESSED }, 7), { act: "arrow", key: "ArrowUp" });
  assert.equal(act("ArrowUp", { view: "spans" }), null);
  assert.equal(act("ArrowLeft", { isSlider: true }), null);
});

test("what is typed into a field, or meant for the browser, does nothing", () => {
  assert.equal(act("w", { isTyping: true }), null);
  assert.equal(act("w", { hasModifier: true }), null);
  assert.equal(act("Escape", { isTyping: true }), "leave");
  assert.equal(act("w", { isHelpOpen: true }), null);
  assert.equal(act("?", { isHelpOpen: true }), "help");
  assert.equal(act("Escape", { isHelpOpen: true, isTyping: true }), "escape");
});

test("the graph of calls has a size of its own", () => {
  assert.equal(act("+", { view: "logical" }), "larger");
  assert.equal(act("-", { view: "logical" }), "smaller");
  assert.equal(act("w", { view: "logical" }), "in");
});

test("arrows among the tabs go round", () => {
  assert.deepEqual(["ArrowLeft", "ArrowRight", "Home", "End", "x"].map((key) => tabAfter(key, 0, 7)), [6, 1, 0, 6, -1]);
  assert.equal(tabAfter("ArrowRight", 6, 7), 0);
});

test("an address says again what it was written from", () => {
  const look = { view: "timeline", range: [100, 200], query: 'a "b c" -d&e', showPath: false, apart: false, part: "actor queue", dataset: 2, moment: 12, span: 7 };
  assert.deepEqual(read(written(look)), { ...look, function: -1, flame: -1, place: -1, name: -1 });
  assert.deepEqual(read(written({ view: "flame", flame: 3 })).flame, 3);
  assert.equal(written({ view: "findings" }), "#view=findings");
  assert.equal(written({ view: "timeline", range: [0.4, 10.6], moment: 0 }), "#view=timeline&t=0-11&at=0");
});

test("an address that says nonsense says nothing", () => {
  const nothing = read("");
  assert.deepEqual(read("#span=1.5&flame=x&t=9-&at=-3&place=-1&t=a-b&function="), nothing);
  assert.deepEqual([nothing.span, nothing.range, nothing.moment, nothing.showPath], [-1, null, null, true]);
});
