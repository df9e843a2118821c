/** Steps and metrics as CSV are read back unchanged. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { parse } from "csv-parse/sync";
import { makeFolder } from "../../test/support/folders.js";
import { writeSampleRun } from "../../test/support/sample-run.js";
import { stepColumns } from "../records/index.js";
import { readSteps } from "../train/index.js";
import { metricsCsv, stepsCsv } from "./csv.js";

test("every step is a line, its numbers are read back bit for bit, and an unknown loss is empty", () => {
  const run = writeSampleRun(makeFolder(), "a", {
    steps: 5000,
    lossAt: (step) => (step === 3 ? Number.NaN : undefined),
  });
  const text = [...stepsCsv(readSteps(`${run.path}/steps.bin`))].join("");
  const rows = parse(text, { columns: true }) as Record<string, string>[];
  assert.equal(rows.length, 5000);
  assert.equal(rows[2]?.["loss"], "");
  for (const [index, row] of rows.entries()) {
    if (index === 2) continue;
    const expected = run.rowOf(index + 1);
    for (const column of stepColumns) assert.equal(Number(row[column]), expected[column]);
  }
});

test("records of different kinds share the columns, and nested fields have names with dots", () => {
  const text = metricsCsv([
    { step: 1, loss: 0.5 },
    { step: 2, test: { accuracy: 0.25, confusion: [[1, 2]] }, note: 'a "word", and\nmore' },
  ]);
  assert.deepEqual(parse(text, { columns: true }), [
    { step: "1", loss: "0.5", "test.accuracy": "", "test.confusion": "", note: "" },
    {
      step: "2",
      loss: "",
      "test.accuracy": "0.25",
      "test.confusion": "[[1,2]]",
      note: 'a "word", and\nmore',
    },
  ]);
});

test("a text that a spreadsheet would run as a formula is marked as text; negative numbers are not", () => {
  const text = metricsCsv([{ note: "=1+1", change: -2.5 }]);
  assert.deepEqual(parse(text, { columns: true }), [{ note: "'=1+1", change: "-2.5" }]);
});
