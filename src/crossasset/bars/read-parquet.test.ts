/** Bars from Parquet: all encodings of times and numbers, and broken files. */

import assert from "node:assert/strict";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { type ColumnSource, parquetWriteBuffer } from "hyparquet-writer";
import { inFolder, rejectsLater, withFile } from "../../../test/support/bar-files.js";
import { effort, isThorough } from "../../../test/support/effort.js";
import type { Bars } from "./bars.js";
import { generateBars } from "./generate.js";
import { readBars } from "./read.js";
import { readParquet } from "./read-parquet.js";
import { writeBars } from "./write.js";

const start = Date.UTC(2024, 0, 1);
const times = [start, start + 60_000];

function fileWith(time: Partial<ColumnSource>, others: readonly ColumnSource[] = numbers): Uint8Array {
  const columnData = [...others, { name: "time", data: [], ...time }];
  return new Uint8Array(parquetWriteBuffer({ columnData, rowGroupSize: 1 }));
}

const numbers: readonly ColumnSource[] = [
  { name: "Volume", data: [10, 0], type: "INT32" },
  { name: "note", data: ["a", "b"], type: "STRING" },
  { name: "Close", data: [2.5, 3], type: "DOUBLE" },
  { name: "OPEN", data: [2, 2.5], type: "FLOAT" },
  { name: "high", data: [3n, 4n], type: "INT64" },
  { name: "low", data: ["1", "2"], type: "STRING" },
];

function read(content: Uint8Array): Promise<Bars> {
  return withFile("some.parquet", content, readBars);
}

/** What the thread of `readBars` does, without the thread, which takes a tenth of a second to start. */
const decodeFile: typeof readBars = isThorough ? readBars : (path) => readParquet(path, { inThread: false });

function decode(content: Uint8Array): Promise<Bars> {
  return withFile("some.parquet", content, decodeFile);
}

test("times are read as timestamps, whole numbers, doubles and text, in seconds or milliseconds", async () => {
  const forms: Partial<ColumnSource>[] = [
    { data: times.map((time) => new Date(time)), type: "TIMESTAMP" },
    { data: times.map(BigInt), type: "INT64" },
    { data: times.map((time) => BigInt(time / 1000)), type: "INT64" },
    { data: times.map((time) => time / 1000), type: "INT32" },
    { data: times, type: "DOUBLE" },
    { data: ["2024-01-01", "2024-01-01 00:01"], type: "STRING" },
    { name: "datetime", data: times, type: "DOUBLE" },
  ];
  for (const [index, form] of forms.entries()) {
    const bars = await (index === 0 ? read : decode)(fileWith(form));
    assert.deepEqual([...bars.time], times, JSON.stringify(form.type));
    assert.deepEqual([...bars.open, ...bars.high, ...bars.low, ...bars.close], [2, 2.5, 3, 4, 1, 2, 2.5, 3]);
    assert.deepEqual([...bars.volume], [10, 0]);
  }
});

test("a timestamp before 1973 is not read as seconds", async () => {
  const bars = await decode(fileWith({ data: [new Date(0), new Date(60_000)], type: "TIMESTAMP" }));
  assert.deepEqual([...bars.time], [0, 60_000]);
});

test("a wrong row is rejected with its number across row groups", async () => {
  const time: Partial<ColumnSource> = { data: times, type: "DOUBLE" };
  const without = (name: string): ColumnSource[] => numbers.filter((column) => column.name !== name);
  const wrong: readonly (readonly [Partial<ColumnSource>, readonly ColumnSource[], RegExp])[] = [
    [{ data: [start, start], type: "DOUBLE" }, numbers, /row 2 is at .*, not after the row before it/],
    [{ data: [start * 1000, start], type: "DOUBLE" }, numbers, /row 1 has the time 1704067200000000/],
    [
      time,
      [...without("Close"), { name: "close", data: [2, Number.NaN], type: "DOUBLE" }],
      /row 2 has the close NaN/,
    ],
    [time, [...without("Close"), { name: "close", data: [2, null], type: "DOUBLE" }], /row 2 has no close/],
    [time, [...without("low"), { name: "low", data: [0, 1], type: "DOUBLE" }], /row 1 has the low 0/],
    [time, without("Close"), /column "close" is missing in "Volume, note, OPEN, high, low, time"/],
  ];
  for (const [index, [times, columns, message]] of wrong.entries()) {
    const bars = (index === 0 ? read : decode)(fileWith(times, columns));
    await rejectsLater("BAD_FILE", bars, message);
  }
});

test("a file without rows is rejected", async () => {
  const none = numbers.map((column) => ({ ...column, data: [] }));
  await rejectsLater("BAD_FILE", decode(fileWith({ data: [], type: "DOUBLE" }, none)), /it has no rows/);
});

test("an empty file, garbage and a CSV under the wrong name are rejected", async () => {
  const garbage = Uint8Array.from({ length: 5000 }, (_, index) => (index * index * 31) % 251);
  await rejectsLater("BAD_FILE", read(new Uint8Array(0)), /it is empty/);
  await rejectsLater("BAD_FILE", read(garbage), /can't be read as Parquet.*Write or download it again/);
  await rejectsLater(
    "BAD_FILE",
    decode(new TextEncoder().encode("time,open\n1,2\n")),
    /can't be read as Parquet/,
  );
});

test("a file that is truncated anywhere is rejected", async () => {
  await inFolder(async (folder) => {
    const path = join(folder, "whole.parquet");
    await writeBars(path, generateBars({ bars: 500, seed: 1 }));
    const whole = await readFile(path);
    for (const share of [0.05, 0.5, 0.9, 0.999]) {
      const cut = join(folder, "cut.parquet");
      await writeFile(cut, whole.subarray(0, Math.floor(whole.length * share)));
      await rejectsLater("BAD_FILE", decodeFile(cut), /cut\.parquet: it can't be read as Parquet/);
    }
  });
});

test("a file whose bytes are altered is read or rejected, and never ends in another error", async () => {
  await inFolder(async (folder) => {
    const path = join(folder, "altered.parquet");
    await writeBars(path, generateBars({ bars: 40, seed: 1 }));
    const whole = await readFile(path);
    let rejected = 0;
    for (let at = 0; at < whole.length; at += effort({ quick: 31, thorough: 7 })) {
      const altered = Uint8Array.from(whole);
      altered[at] = (altered[at]! + 101) % 256;
      await writeFile(path, altered);
      try {
        await readParquet(path, { inThread: false });
      } catch (error) {
        assert.match(String(error), /BAD_FILE/, `byte ${at}`);
        rejected++;
      }
    }
    assert.ok(rejected > 10, `${rejected} files were rejected`);
  });
});
