/** Which files are accepted. */

import assert from "node:assert/strict";
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { inFolder, rejectsLater, withFile } from "../../../test/support/bar-files.js";
import { readBars } from "./read.js";

test("another extension is rejected before the file is opened", async () => {
  for (const path of ["bars.json", "bars", "bars.csv.gz", "csv"]) {
    await rejectsLater("BAD_FILE", readBars(path), /extension is neither \.csv nor \.parquet/);
  }
});

test("a missing file and a folder are rejected by their paths", async () => {
  await inFolder(async (folder) => {
    await rejectsLater("BAD_FILE", readBars(join(folder, "none.csv")), /none\.csv: it does not exist/);
    await rejectsLater(
      "BAD_FILE",
      readBars(join(folder, "none.parquet")),
      /none\.parquet: it does not exist/,
    );
    await mkdir(join(folder, "folder.csv"));
    await rejectsLater(
      "BAD_FILE",
      readBars(join(folder, "folder.csv")),
      /it is a folder, a pipe or a device/,
    );
  });
});

test("the extension may have capital letters", async () => {
  const bars = await withFile("BARS.CSV", "time,open,high,low,close,volume\n1,1,1,1,1,1\n", readBars);
  assert.equal(bars.time[0], 1000);
});
