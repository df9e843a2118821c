/** Bars from CSV: written bars are read back bit for bit, and other files are rejected. */

import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { rejectsLater, withFile } from "../../../test/support/bar-files.js";
import { type Bars, barColumns } from "./bars.js";
import { readBars } from "./read.js";

const header = "time,open,high,low,close,volume";
const rows = ["2024-01-01T00:00:00Z,2,3,1,2.5,10", "2024-01-01T00:01:00Z,2.5,4,2,3,0"];

function readText(text: string | Uint8Array): Promise<Bars> {
  return withFile("some.csv", text, readBars);
}

async function isRejected(text: string | Uint8Array, message: RegExp): Promise<void> {
  await rejectsLater("BAD_FILE", readText(text), message);
}

test("a plain file is read", async () => {
  const bars = await readText(`${header}\n${rows.join("\n")}\n`);
  assert.deepEqual([...bars.time], [Date.UTC(2024, 0, 1), Date.UTC(2024, 0, 1, 0, 1)]);
  assert.deepEqual([...bars.close], [2.5, 3]);
  assert.deepEqual([...bars.volume], [10, 0]);
});

test("a byte order mark, CRLF, quotes, further columns and blank lines at the end change nothing", async () => {
  const text = [
    '\uFEFFNote,"Date",OPEN,high,low,close,"volume"',
    '"a, b",2024-01-01 00:00,"2",3,1,2.5,10',
    '"two\nlines",2024-01-01 00:01,2.5,4,2,3,0',
    "",
    "  ",
    "",
  ].join("\r\n");
  const [bars, plain] = [await readText(text), await readText(`${header}\n${rows.join("\n")}`)];
  for (const column of barColumns) assert.deepEqual([...bars[column]], [...plain[column]], column);
});

test("an empty file, one of blank lines and a header alone are rejected", async () => {
  await isRejected("", /some\.csv: it is empty/);
  await isRejected("\n\n", /it is empty/);
  await isRejected("\uFEFF", /it is empty/);
  await isRejected(`${header}\n`, /it has no rows/);
});

test("a missing column is rejected with the header's columns", async () => {
  await isRejected(
    "time,open,high,low,volume\n1,2,3,1,4\n",
    /column "close" is missing in "time, open, high, low, volume"/,
  );
  await isRejected(rows.join("\n"), /column "time" is missing in "2024-01-01T00:00:00Z/);
});

test("a wrong row is rejected with its number, the header not counted", async () => {
  const next = (row: string): string => `${header}\n${rows.join("\n")}\n${row}\n`;
  await isRejected(next("2024-01-01 00:02,NaN,4,2,3,1"), /row 3 has the open "NaN", which is not a number/);
  await isRejected(next("2024-01-01 00:02,3,4,2,,1"), /row 3 has no close/);
  await isRejected(
    next("2024-01-01 00:02,3,4,2,0,1"),
    /row 3 has the close "0", which is not a number above 0/,
  );
  await isRejected(next("2024-01-01 00:01,3,4,2,3,1"), /row 3 is at .*, not after the row before it/);
  await isRejected(next("2024-01-01 00:02,3,4,2,3"), /row 3 has 5 fields, the header has 6/);
  await isRejected(next("2024-01-01 00:02,3,4,2,3,1,5"), /row 3 has 7 fields, the header has 6/);
  await isRejected(next("\n2024-01-01 00:02,3,4,2,3,1"), /row 3 is blank/);
  await isRejected(next('2024-01-01 00:02,3,4,2,3,"1'), /row 3 has an unclosed quote/);
});

test("binary garbage is rejected, with lines in it or without", async () => {
  const garbage = Uint8Array.from({ length: 300_000 }, (_, index) => (index * index * 31 + index * 7) % 251);
  await isRejected(garbage, /some\.csv: (there is no column|the header)/);
  await isRejected(
    garbage.map((byte) => (byte === 10 || byte === 34 ? 11 : byte)),
    /the header is longer than 65536/,
  );
});

test("a message shows the start of a long cell only, and no control characters", async () => {
  const cell = `\u0007${"9".repeat(1000)}x`;
  await isRejected(`${header}\n2024-01-01,${cell},4,2,3,1\n`, /row 1 has the open "\\u00079{59}…"/);
});

const price = fc.double({ min: 1e-300, max: 1e300, noNaN: true });
const bar = fc.record({
  step: fc.integer({ min: 1, max: 1e9 }),
  open: price,
  close: price,
  range: fc.tuple(price, price),
  volume: fc.double({ min: 0, max: 1e300, noNaN: true }).map((volume) => volume + 0),
});

test("any bars are read bit for bit, in any order of columns and with any format of times", async () => {
  const order = fc.shuffledSubarray([...barColumns], { minLength: barColumns.length });
  const form = fc.constantFrom<(ms: number) => string>(
    (ms) => String(ms),
    (ms) => new Date(ms).toISOString(),
    (ms) => new Date(ms).toISOString().replace("T", " ").replace("Z", ""),
  );
  await fc.assert(
    fc.asyncProperty(
      fc.array(bar, { minLength: 1, maxLength: 20 }),
      order,
      form,
      async (drawn, columns, timeText) => {
        let time = 1e12;
        const expected = drawn.map(({ step, open, close, range, volume }) => {
          time += step;
          return { time, open, high: Math.max(...range), low: Math.min(...range), close, volume };
        });
        const lines = expected.map((row) =>
          columns.map((column) => (column === "time" ? timeText(row.time) : String(row[column]))).join(","),
        );
        const bars = await readText([columns.join(","), ...lines].join("\n"));
        for (const column of barColumns) {
          assert.deepEqual(
            [...bars[column]],
            expected.map((row) => row[column]),
            column,
          );
        }
      },
    ),
    { numRuns: 150 },
  );
});
