/** Bars are written and read back bit for bit; a write is complete or has no effect. */

import assert from "node:assert/strict";
import { mkdir, readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { inFolder, rejectsLater } from "../../../test/support/bar-files.js";
import { effort } from "../../../test/support/effort.js";
import { copyBars } from "../../../test/support/random-bars.js";
import { sameNamedBytes } from "../../../test/support/same-bytes.js";
import type { Bars } from "./bars.js";
import { generateBars } from "./generate.js";
import { readBars } from "./read.js";
import { writeBars } from "./write.js";

/** The arrays of bars, by name. */
const named = (bars: Bars): Record<string, Float64Array> => ({ ...bars });

test("bars go to CSV, from there to Parquet and back with the same bits, over several row groups", async () => {
  const counts = effort({
    quick: { csv: 5000, parquet: 66_000 },
    thorough: { csv: 70_000, parquet: 70_000 },
  });
  const generated = generateBars({ bars: counts.parquet, seed: 3 });
  const first = copyBars(generated, 0, counts.csv);
  await inFolder(async (folder) => {
    const [csv, parquet] = [join(folder, "made.csv"), join(folder, "made.parquet")];
    await writeBars(csv, first);
    const fromCsv = await readBars(csv);
    sameNamedBytes(named(fromCsv), named(first), "CSV");
    await writeBars(parquet, fromCsv);
    sameNamedBytes(named(await readBars(parquet)), named(first), "Parquet from CSV");
    if (counts.csv === counts.parquet) return;
    await writeBars(parquet, generated);
    sameNamedBytes(named(await readBars(parquet)), named(generated), "Parquet of two row groups");
  });
});

test("the smallest and largest doubles keep their bits, and times their milliseconds", async () => {
  const bars: Bars = {
    time: Float64Array.of(-1, 1, 999_999_999_999, 253_402_300_799_999),
    open: Float64Array.of(5e-324, 0.1 + 0.2, 1.7976931348623157e308, 1),
    high: Float64Array.of(1, 1 / 3, 1e21, 123456789.12345679),
    low: Float64Array.of(1e-7, 1 / 3, 2 ** 53 + 2, 0.000001),
    close: Float64Array.of(Math.PI, Number.EPSILON, 1e-320, 1e17 - 16),
    volume: Float64Array.of(0, 5e-324, 1e300, 7),
  };
  await inFolder(async (folder) => {
    for (const name of ["ends.csv", "ends.parquet"]) {
      await writeBars(join(folder, name), bars);
      sameNamedBytes(named(await readBars(join(folder, name))), named(bars), name);
    }
  });
});

test("a CSV file has a header and one line per bar, with readable times", async () => {
  await inFolder(async (folder) => {
    await writeBars(join(folder, "two.csv"), generateBars({ bars: 2, seed: 42 }));
    const lines = (await readFile(join(folder, "two.csv"), "utf8")).split("\n");
    assert.equal(lines[0], "time,open,high,low,close,volume");
    assert.match(lines[2] ?? "", /^2020-01-06T00:01:00Z,[\d.]+,[\d.]+,[\d.]+,[\d.]+,\d+$/);
    assert.equal(lines.length, 4);
  });
});

test("a write replaces an existing file and leaves no other file", async () => {
  await inFolder(async (folder) => {
    const path = join(folder, "made.parquet");
    await writeBars(path, generateBars({ bars: 20, seed: 1 }));
    await writeBars(path, generateBars({ bars: 10, seed: 1 }));
    assert.equal((await readBars(path)).time.length, 10);
    assert.deepEqual(await readdir(folder), ["made.parquet"]);
  });
});

test("a path that can't be written is rejected, and no file is left", async () => {
  const bars = generateBars({ bars: 10, seed: 1 });
  await inFolder(async (folder) => {
    await mkdir(join(folder, "folder.csv"));
    await rejectsLater(
      "BAD_FILE",
      writeBars(join(folder, "folder.csv"), bars),
      /folder\.csv: it can't be written/,
    );
    await rejectsLater(
      "BAD_FILE",
      writeBars(join(folder, "none", "x.csv"), bars),
      /x\.csv: it can't be written/,
    );
    await rejectsLater("BAD_FILE", writeBars(join(folder, "x.txt"), bars), /extension is neither/);
    assert.deepEqual(await readdir(folder), ["folder.csv"]);
  });
});

test("bars that could not be read back are not written", async () => {
  const bars = generateBars({ bars: 3, seed: 1 });
  const wrong: readonly (readonly [Bars, RegExp])[] = [
    [{ ...bars, close: Float64Array.of(1, 0, 1) }, /bar 1 has the close 0, which is not a number above 0/],
    [{ ...bars, low: Float64Array.of(1, 1) }, /2 values of low for 3 bars/],
    [{ ...bars, time: Float64Array.of(3, 2, 1) }, /bar 1 is at .* not after/],
    [{ ...bars, time: Float64Array.of(1, 1.5, 2) }, /bar 1 is not at a whole millisecond/],
    [{ ...bars, time: Float64Array.of(1, 2, 1e17) }, /bar 2 has the time/],
    [generateEmpty(), /0 values of time/],
  ];
  await inFolder(async (folder) => {
    for (const [bars, message] of wrong) {
      await rejectsLater("BAD_ARGUMENT", writeBars(join(folder, "x.csv"), bars), message);
    }
    assert.deepEqual(await readdir(folder), []);
  });
});

function generateEmpty(): Bars {
  const none = new Float64Array(0);
  return { time: none, open: none, high: none, low: none, close: none, volume: none };
}
