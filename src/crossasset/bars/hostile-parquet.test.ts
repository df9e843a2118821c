/** Parquet files that would take all memory, never end, or end the process: each is rejected, and the process continues. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { rejectsLater, withFile } from "../../../test/support/bar-files.js";
import { effort } from "../../../test/support/effort.js";
import { bombFile, parquetBombs } from "../../../test/support/fuzz/parquet-bombs.js";
import { MiB } from "../../units/index.js";
import { readBars } from "./read.js";
import { readParquet } from "./read-parquet.js";

/** How many bombs are decoded in a thread, as the library does. The others are decoded here, which saves the start of a thread. */
const inThreads = effort({ quick: 2, thorough: Infinity });
const decodeHere: typeof readBars = (path) => readParquet(path, { inThread: false });

for (const [index, [name, bytes]] of Object.entries(parquetBombs).entries()) {
  test(`a file of ${bytes.length} bytes is rejected: ${name.replaceAll("-", " ")}`, async () => {
    const before = process.memoryUsage().rss;
    await withFile("bomb.parquet", bytes, async (path) => {
      const bars = (index < inThreads ? readBars : decodeHere)(path);
      await rejectsLater("BAD_FILE", bars, /bomb\.parquet: /);
    });
    const grown = process.memoryUsage().rss - before;
    assert.ok(grown < 400 * MiB, `${Math.round(grown / MiB)} MiB more are in use`);
  });
}

test("the same file without its claim is read up to its first bar", async () => {
  await withFile("sound.parquet", bombFile(), async (path) => {
    await rejectsLater("BAD_FILE", readBars(path), /row 1 has the open 7\.7\d+e-304|row 2 is at/);
  });
});

const forEver = program("for (;;);");

test("a decoder that makes no progress is ended", async () => {
  await withFile("slow.parquet", bombFile(), async (path) => {
    const slow = readParquet(path, { program: forEver, pageMs: 80 });
    await rejectsLater("BAD_FILE", slow, /slow\.parquet: one of its pages was not decoded in 80ms/);
  });
});

test("a decoder that takes too much memory is ended", async () => {
  const greedy = program("const held = []; for (;;) held.push(new Array(1000).fill(held.length));");
  await withFile("big.parquet", bombFile(), async (path) => {
    const big = readParquet(path, { program: greedy, heapBytes: 32 * MiB });
    await rejectsLater("BAD_FILE", big, /needs more than 32 MiB of memory.*row groups of 65536 rows/);
  });
});

test("if a decoder fails, or ends without a message, the file is rejected", async () => {
  await withFile("odd.parquet", bombFile(), async (path) => {
    const failing = readParquet(path, { program: program("throw new TypeError('odd')") });
    await rejectsLater("BAD_FILE", failing, /its decoder failed: "odd"/);
    const silent = readParquet(path, { program: program("process.exit(3)") });
    await rejectsLater("BAD_FILE", silent, /its decoder ended with exit code 3/);
  });
});

test("if no thread can be started, the error says so, with advice", async () => {
  await withFile("some.parquet", bombFile(), async (path) => {
    const rejected = readParquet(path, { program: new URL("ftp://nowhere/thread.js") });
    await rejectsLater("UNSUPPORTED", rejected, /no thread could be started .*ulimit -u.*use CSV/);
  });
});

test("a pipe under the file's name is rejected at once", async () => {
  await rejectsLater("BAD_FILE", decodeHere("/dev/null"), /a folder, a pipe or a device/);
});

function program(text: string): URL {
  return new URL(`data:text/javascript,${encodeURIComponent(text)}`);
}
