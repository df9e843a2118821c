/** CSV records: quotes, line ends and chunks; the records do not depend on the chunks. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { parse } from "csv-parse/sync";
import fc from "fast-check";
import { CsvRecords } from "./csv-records.js";

function split(...chunks: string[]): string[][] {
  const records: string[][] = [];
  const splitter = new CsvRecords(
    (fields) => records.push(fields),
    (problem) => new Error(problem),
  );
  for (const chunk of chunks) splitter.push(chunk);
  splitter.end();
  return records;
}

test("records end at LF or CRLF, and the last may end without either", () => {
  assert.deepEqual(split("a,b\r\n1,2\n3,4"), [
    ["a", "b"],
    ["1", "2"],
    ["3", "4"],
  ]);
});

test("a byte order mark is dropped at the start only", () => {
  assert.deepEqual(split("\uFEFFa\n", "\uFEFFb\n"), [["a"], ["\uFEFFb"]]);
});

test("quoted fields may hold commas, line ends and doubled quotes", () => {
  assert.deepEqual(split('a,"b,c"\n"d\ne","f ""g"""\n"",x\n'), [
    ["a", "b,c"],
    ["d\ne", 'f "g"'],
    ["", "x"],
  ]);
});

test("text next to a quoted field and an unclosed quote are rejected", () => {
  for (const text of ['a,"b"c\n', 'a,b"c"\n', 'a,"b', 'a,5"\n1,2\n']) {
    assert.throws(() => split(text), /an unclosed quote, or text next to/, text);
  }
});

test("a record without an end is rejected before it fills the memory", () => {
  const endless = "x".repeat(40_000);
  assert.throws(() => split(endless, endless), /longer than 65536/);
  assert.throws(() => split(`"${endless}\n`, `${endless}\n`, "a,b\n"), /longer than 65536/);
});

const field = fc.string({
  unit: fc.constantFrom("a", "1", ".", " ", ",", '"', "\n", "é", "-"),
  maxLength: 6,
});

test("the records equal those of csv-parse, for any split into chunks", () => {
  const table = fc
    .integer({ min: 2, max: 4 })
    .chain((width) =>
      fc.array(fc.array(field, { minLength: width, maxLength: width }), { minLength: 1, maxLength: 6 }),
    );
  fc.assert(
    fc.property(
      table,
      fc.array(fc.nat(200), { maxLength: 5 }),
      fc.constantFrom("\n", "\r\n"),
      (rows, cuts, end) => {
        const lines = rows.map((row) => row.map(quoteField).join(","));
        const text = lines.map((line) => line + end).join("");
        const offsets = [0, ...cuts.filter((cut) => cut < text.length).sort((a, b) => a - b), text.length];
        const chunks = offsets.slice(1).map((offset, index) => text.slice(offsets[index], offset));
        assert.deepEqual(split(...chunks), parse(text, { record_delimiter: end }));
        assert.deepEqual(split(...chunks), rows);
      },
    ),
    { numRuns: 500 },
  );
});

function quoteField(text: string): string {
  return /[",\n]/.test(text) || text.length % 2 === 1 ? `"${text.replaceAll('"', '""')}"` : text;
}
