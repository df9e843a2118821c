/** Cells: which texts, numbers and dates are accepted, and their values. */

import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { parseNumber, parseTime } from "./cells.js";

test("a number's text gives the same double as Number()", () => {
  const decimal = fc
    .tuple(fc.bigInt({ min: 0n, max: 10n ** 18n }), fc.integer({ min: 0, max: 18 }))
    .map(([whole, decimals]) => {
      const digits = String(whole).padStart(decimals + 1, "0");
      return `${digits.slice(0, digits.length - decimals)}.${digits.slice(digits.length - decimals)}`;
    });
  const any = fc.double({ noNaN: true, noDefaultInfinity: true }).map(String);
  fc.assert(
    fc.property(fc.oneof(decimal, any), (text) => {
      assert.equal(parseNumber(text), Number(text), text);
    }),
    { numRuns: 2000 },
  );
});

test("only finite decimal numbers are numbers", () => {
  const others = [
    "",
    " ",
    ".",
    "-",
    "NaN",
    "Infinity",
    "0x10",
    "0B1",
    "0o7",
    "1_000",
    "1.2.3",
    "1,5",
    "abc",
    "1e999",
  ];
  for (const text of others) assert.equal(parseNumber(text), Number.NaN, text);
  for (const cell of [null, undefined, true, {}, new Date(5), Number.POSITIVE_INFINITY])
    assert.equal(parseNumber(cell), Number.NaN);
});

test("numbers, bigints and text with spaces around are numbers", () => {
  assert.equal(parseNumber(1.5), 1.5);
  assert.equal(parseNumber(12n), 12);
  assert.equal(parseNumber(" 1.5 "), 1.5);
  assert.equal(parseNumber("-.5e1"), -5);
});

const noon = Date.UTC(2024, 1, 29, 12, 34, 0);

test("a time is read from ISO 8601 with T or a space, to the minute or finer, and without a zone it is UTC", () => {
  for (const text of [
    "2024-02-29T12:34:00Z",
    "2024-02-29T12:34",
    "2024-02-29 12:34",
    "2024-02-29 12:34:00",
    " 2024-02-29 12:34:00.000 ",
    "2024-02-29T12:34:00.000Z",
    "2024-02-29T14:34:00+02:00",
    "2024-02-29 07:04:00-0530",
    "2024-02-29 12:34Z",
  ]) {
    assert.equal(parseTime(text), noon, text);
  }
  assert.equal(parseTime("2024-02-29"), Date.UTC(2024, 1, 29));
  assert.equal(parseTime("2024-02-29T12:34:05.6789Z"), noon + 5679);
});

test("a number is seconds below 1e11, else milliseconds, whatever its type", () => {
  const cells = [
    noon,
    noon / 1000,
    String(noon),
    String(noon / 1000),
    BigInt(noon),
    BigInt(noon / 1000),
    new Date(noon),
  ];
  for (const cell of cells) assert.equal(parseTime(cell), noon, typeof cell);
  assert.equal(parseTime(1e11), 1e11);
  assert.equal(parseTime(1e11 - 1), 1000 * (1e11 - 1));
});

test("eight digits that are a calendar day are that day, not a second of 1970", () => {
  for (const cell of ["20200101", " 20200101 ", 20200101, 20200101n, "20200101.0"])
    assert.equal(parseTime(cell), Date.UTC(2020, 0, 1), String(cell));
  assert.equal(parseTime("19000101"), Date.UTC(1900, 0, 1));
  assert.equal(parseTime("20240229"), Date.UTC(2024, 1, 29));
  assert.equal(parseTime("21991231"), Date.UTC(2199, 11, 31));
  // An invalid day is rejected; it must not be read as seconds.
  for (const cell of ["20200001", "20201301", "20230229", "20200100", "20200132", 20200431])
    assert.ok(Number.isNaN(parseTime(cell)), String(cell));
  assert.equal(parseTime("19000100"), 19000100_000);
  assert.equal(parseTime("21991232"), 21991232_000);
  assert.equal(parseTime("20200101.5"), 20200101_500);
});

test("microseconds and nanoseconds are rejected, not read as a far future", () => {
  assert.equal(parseTime(noon * 1e3), Number.NaN);
  assert.equal(parseTime(BigInt(noon) * 1_000_000n), Number.NaN);
});

test("an impossible date or time is not a time", () => {
  for (const text of [
    "2023-02-29",
    "2024-13-01",
    "2024-00-10",
    "2024-01-00",
    "2024-01-01T24:00",
    "2024-01-01T12:60",
    "2024-01-01T12:00:60",
    "2024-01-01T12:00:00+25:00",
    "2024-01-01X12:00",
    "2024-01-01T12",
    "2024-01-01T12:00:00 tomorrow",
    "2024-1-1 12:00",
    "01/02/2024",
    "",
    "soon",
  ]) {
    assert.equal(parseTime(text), Number.NaN, text);
  }
  assert.equal(parseTime(new Date(Number.NaN)), Number.NaN);
  assert.equal(parseTime(null), Number.NaN);
});

test("every time that a Date writes is read back", () => {
  fc.assert(
    fc.property(
      fc.date({ min: new Date("1900-01-01"), max: new Date("9999-12-31"), noInvalidDate: true }),
      (date) => {
        assert.equal(parseTime(date.toISOString()), date.getTime());
      },
    ),
    { numRuns: 1000 },
  );
});
