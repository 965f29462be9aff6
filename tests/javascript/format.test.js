import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import * as format from "../../ray_tracing_hooks/_insight/views/page/assets/format.js";

const cases = JSON.parse(readFileSync(new URL("cases/durations.json", import.meta.url)));

test("durations read as the commands print them", () => {
  for (const [ns, text] of cases.printed) assert.equal(format.duration(ns), text, `${ns}`);
  assert.equal(format.duration(-1500), "-1.50 us");
});

test("durations that are asked for are read, and nothing else", () => {
  for (const [text, ns] of cases.read) assert.equal(format.parseDuration(text), ns, text);
});

test("counts have a plural, and separators of thousands", () => {
  assert.deepEqual([0, 1, 2, 1234567].map((n) => format.counted(n, "span")), ["0 spans", "1 span", "2 spans", "1,234,567 spans"]);
  assert.equal(format.counted(2, "child", "children"), "2 children");
});

test("a share that is little is not nothing", () => {
  assert.deepEqual([0, 0.0009, 0.001, 0.5, 1].map(format.percent), ["0.0 %", "< 0.1 %", "0.1 %", "50.0 %", "100.0 %"]);
});

test("sizes have the unit that keeps them short", () => {
  assert.deepEqual([0, 1023, 1024, 1 << 20, 3 << 29].map(format.byteSize), ["0 B", "1023 B", "1.00 KiB", "1.00 MiB", "1.50 GiB"]);
});

test("what cannot be seen, or turns the direction of writing, is shown as an escape", () => {
  assert.equal(format.safe("a\u202eb\u001b[31m\n"), "a\\u202eb\\u001b[31m\\u000a");
  assert.equal(format.safeLines("a\n\tb\u200b"), "a\n\tb\\u200b");
  assert.equal(format.safe('it\'s "quoted" <b>é 日本'), 'it\'s "quoted" <b>é 日本');
});

test("a long text keeps both ends, a long value its beginning", () => {
  assert.equal(format.shortened("abcdefghij", 10), "abcdefghij");
  assert.equal(format.shortened("abcdefghijk", 10), "abcdef…ijk");
  assert.equal(format.cut("abcd", 3), "abc… (4 characters)");
});

test("names lose what says that they are calls, or of a script", () => {
  assert.deepEqual(["f ray.remote", "A.m ray.remote_worker", "ray.remote f"].map(format.callName), ["f", "A.m", "ray.remote f"]);
  assert.deepEqual(["__main__.f ray.remote_worker", "__main__.py ray.driver", "x.__main__.f"].map(format.plainName), ["f", "__main__.py ray.driver", "x.__main__.f"]);
});

test("an attribute's value is text, or JSON", () => {
  assert.deepEqual(["x", 1, true, null, [1, "a"], { a: 1 }].map(format.shown), ["x", "1", "true", "null", '[1,"a"]', '{"a":1}']);
});
