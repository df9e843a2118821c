/** Tables in Parquet files: the types of columns, missing values, selected columns, and limits. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { type ColumnSource, parquetWriteBuffer } from "hyparquet-writer";
import { rejectsLater, withFile } from "../../test/support/bar-files.js";
import type { ParquetTable, ReadParquetOptions } from "./parquet-table.js";
import { readParquet, readParquetTable } from "./parquet-table.js";

const day = Date.UTC(2024, 0, 1);

const columnData: ColumnSource[] = [
  { name: "f64", data: [0.5, -1, 2], type: "DOUBLE" },
  { name: "f32", data: [0.5, null, 2], type: "FLOAT" },
  { name: "i32", data: [1, -2, 3], type: "INT32" },
  { name: "i64", data: [1n, -(2n ** 60n), 3n], type: "INT64" },
  { name: "gaps", data: [1n, 2n, null], type: "INT64" },
  { name: "flag", data: [true, false, true], type: "BOOLEAN" },
  { name: "time", data: [new Date(day), new Date(day + 1), null], type: "TIMESTAMP" },
  { name: "text", data: ["a", null, "long ".repeat(100)], type: "STRING" },
  { name: "list", data: [{ a: 1 }, { a: 2 }, { a: 3 }], type: "JSON" },
];

const contents = new Uint8Array(parquetWriteBuffer({ columnData, rowGroupSize: 2 }));
const plain = columnData.map(({ name }) => name).slice(0, -1);

function read(options: ReadParquetOptions): Promise<ParquetTable> {
  return withFile("table.parquet", contents, (path) => readParquetTable(path, options, { inThread: false }));
}

test("columns are typed arrays of their type, and lists of strings", async () => {
  const { rows, columns } = await withFile("table.parquet", contents, (path) =>
    readParquet(path, { columns: plain }),
  );
  assert.equal(rows, 3);
  assert.deepEqual(
    { ...columns },
    {
      f64: Float64Array.of(0.5, -1, 2),
      f32: Float32Array.of(0.5, Number.NaN, 2),
      i32: Int32Array.of(1, -2, 3),
      i64: BigInt64Array.of(1n, -(2n ** 60n), 3n),
      gaps: Float64Array.of(1, 2, Number.NaN),
      flag: Uint8Array.of(1, 0, 1),
      time: Float64Array.of(day, day + 1, Number.NaN),
      text: ["a", null, "long ".repeat(100)],
    },
  );
});

test("columns come in the order in which they are named, and unknown ones are rejected", async () => {
  const { rows, columns } = await read({ columns: ["text", "i32"] });
  assert.deepEqual([rows, Object.keys(columns)], [3, ["text", "i32"]]);
  await rejectsLater("BAD_ARGUMENT", read({ columns: ["nothing"] }), /no column "nothing"; it has f64, f32/);
  await rejectsLater("BAD_FILE", read({ columns: ["i32", "i32"] }), /"i32" comes twice/);
  await rejectsLater("BAD_FILE", read({}), /"list" has values of the kind JSON.*other columns/);
});

test("columns that take more bytes than allowed are rejected, and so is a text that repeats too often", async () => {
  await rejectsLater("BAD_FILE", read({ columns: plain, maxBytes: 50 }), /decompress to more/);
  const columnData: ColumnSource[] = [
    { name: "text", data: new Array<string>(5000).fill("x".repeat(1000)), encoding: "RLE_DICTIONARY" },
  ];
  const repeated = new Uint8Array(parquetWriteBuffer({ columnData }));
  const texts = withFile("texts.parquet", repeated, (path) =>
    readParquetTable(path, { maxBytes: 1_000_000 }, { inThread: false }),
  );
  await rejectsLater("BAD_FILE", texts, /its texts are longer/);
  await rejectsLater("BAD_ARGUMENT", read({ maxBytes: 0 }), /above 0/);
});
