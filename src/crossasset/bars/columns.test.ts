/** The columns that readers fill: they grow, and reject each kind of invalid row with its number. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { rejects } from "../../../test/support/rejects.js";
import { BarColumns, findColumns } from "./columns.js";

const good = ["2024-01-01", 2, 3, 1, 2, 10];

/** A valid row, then this one. */
function addAfterGood(...cells: unknown[]): () => void {
  const columns = new BarColumns("some.csv");
  columns.add(good);
  return () => columns.add(cells);
}

test("columns grow past any capacity and keep every row", () => {
  const columns = new BarColumns("some.csv");
  for (let row = 1; row <= 5000; row++) columns.add([row, row, row + 1, row, row, row % 7]);
  const bars = columns.finish();
  assert.equal(bars.time.length, 5000);
  assert.deepEqual([bars.time[4999], bars.open[4999], bars.high[0], bars.volume[6]], [5_000_000, 5000, 2, 0]);
});

test("an invalid row is rejected with the file, its number and the problem", () => {
  const day = "2024-01-02";
  rejects(
    "BAD_FILE",
    addAfterGood(day, "x", 3, 1, 2, 10),
    /^some\.csv: row 2 has the open "x", which is not a number/,
  );
  rejects(
    "BAD_FILE",
    addAfterGood(day, 2, 3, 1, Number.NaN, 10),
    /row 2 has the close NaN, which is not a number/,
  );
  rejects(
    "BAD_FILE",
    addAfterGood(day, 2, 3, 0, 2, 10),
    /row 2 has the low 0, which is not a number above 0/,
  );
  rejects("BAD_FILE", addAfterGood(day, 2, 3, 1, -2, 10), /close -2, which is not a number above 0/);
  rejects("BAD_FILE", addAfterGood(day, 2, 3, 1, 2, -1), /volume -1, which is not a number of 0 or more/);
  rejects("BAD_FILE", addAfterGood(day, 2, 1, 3, 2, 10), /row 2 has a high of 1 below its low of 3/);
  rejects("BAD_FILE", addAfterGood(day, 2, 3, 1, null, 10), /row 2 has no close/);
  rejects("BAD_FILE", addAfterGood(day, 2, 3, 1, 2), /row 2 has no volume/);
  rejects("BAD_FILE", addAfterGood("soon", 2, 3, 1, 2, 10), /row 2 has the time "soon"/);
});

test("a time that does not increase is rejected with both times", () => {
  rejects(
    "BAD_FILE",
    addAfterGood(...good),
    /row 2 is at 2024-01-01T00:00:00.000Z, not after the row before it/,
  );
  rejects(
    "BAD_FILE",
    addAfterGood("2023-12-31", 2, 3, 1, 2, 10),
    /row 2 is at 2023-12-31T.*, at 2024-01-01T/,
  );
});

test("an open or a close outside of low and high is accepted: feeds have such bars", () => {
  assert.doesNotThrow(addAfterGood("2024-01-02", 5, 3, 1, 0.5, 10));
});

test("a rejected row does not count: the next row has its number", () => {
  const columns = new BarColumns("some.csv");
  rejects("BAD_FILE", () => columns.add(["2024-01-01", 0, 3, 1, 2, 10]), /row 1 /);
  columns.add(good);
  assert.equal(columns.finish().time.length, 1);
});

test("no row at all is rejected", () => {
  rejects("BAD_FILE", () => new BarColumns("some.csv").finish(), /some\.csv: it has no rows/);
});

test("a volume of minus zero becomes zero", () => {
  const columns = new BarColumns("some.csv");
  columns.add([1, 2, 3, 1, 2, -0]);
  assert.ok(Object.is(columns.finish().volume[0], 0));
});

test("columns are found in any order, in capitals, among others, and time under each of its names", () => {
  const header = ["Volume", "CLOSE", "note", "low", " high ", "Open", "Timestamp"];
  assert.deepEqual(findColumns("some.csv", header), [6, 5, 4, 3, 1, 0]);
  for (const name of ["time", "timestamp", "date", "DateTime"]) {
    assert.equal(findColumns("some.csv", [name, "open", "high", "low", "close", "volume"])[0], 0);
  }
});

test("a missing or duplicate column is rejected with its name", () => {
  const header = ["time", "open", "high", "low", "closing", "volume"];
  rejects(
    "BAD_FILE",
    () => findColumns("some.csv", header),
    /column "close" is missing in "time, open, high, low, closing/,
  );
  rejects("BAD_FILE", () => findColumns("some.csv", ["date", ...header]), /2 columns match time/);
});
