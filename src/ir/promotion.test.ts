/** Type promotion against PyTorch's complete table. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { type Dtype, type DtypeKind, dtypeNames } from "./dtypes.js";
import { isFloat8 } from "./float8.js";
import { promote, promoteWithScalar } from "./promotion.js";

/** `torch.promote_types`, row with column, and i32 where PyTorch has i16. */
const tensorTable = `
         f32   f64   bf16  f16   i64   i32   i8    u8    bool
  f32    f32   f64   f32   f32   f32   f32   f32   f32   f32
  f64    f64   f64   f64   f64   f64   f64   f64   f64   f64
  bf16   f32   f64   bf16  f32   bf16  bf16  bf16  bf16  bf16
  f16    f32   f64   f32   f16   f16   f16   f16   f16   f16
  i64    f32   f64   bf16  f16   i64   i64   i64   i64   i64
  i32    f32   f64   bf16  f16   i64   i32   i32   i32   i32
  i8     f32   f64   bf16  f16   i64   i32   i8    i32   i8
  u8     f32   f64   bf16  f16   i64   i32   i32   u8    u8
  bool   f32   f64   bf16  f16   i64   i32   i8    u8    bool
`;

/** `torch.result_type` of a tensor with a Python scalar, the default dtype f32, and i32 where PyTorch has i64. */
const scalarTable = `
         float  integer  boolean
  f32    f32    f32      f32
  f64    f64    f64      f64
  bf16   bf16   bf16     bf16
  f16    f16    f16      f16
  i64    f32    i64      i64
  i32    f32    i32      i32
  i8     f32    i8       i8
  u8     f32    u8       u8
  bool   f32    i32      bool
`;

/** The table of a function of two names, in the same layout. */
/** 8-bit floats are only stored. */
const computed = dtypeNames.filter((dtype) => !isFloat8(dtype));

function tabulate(columns: readonly string[], meet: (row: Dtype, column: string) => Dtype): string {
  const rows = computed.map((row) => [row, ...columns.map((column) => meet(row, column))].join(" "));
  return [columns.join(" "), ...rows].join("\n");
}

function squeeze(table: string): string {
  return table.trim().replaceAll(/\n +/g, "\n").replaceAll(/ +/g, " ");
}

test("each of the 81 pairs of tensors promotes as in PyTorch", () => {
  const actual = tabulate(computed, (row, column) => promote(row, column as Dtype));
  assert.equal(actual, squeeze(tensorTable));
});

test("each of the 27 pairs of a tensor and a scalar promotes as in PyTorch", () => {
  const kinds: readonly Exclude<DtypeKind, "storage">[] = ["float", "integer", "boolean"];
  const actual = tabulate(kinds, (row, column) => promoteWithScalar(row, column as (typeof kinds)[number]));
  assert.equal(actual, squeeze(scalarTable));
});

test("in a chain of operands neither order nor grouping matters", () => {
  for (const a of computed) {
    for (const b of computed) {
      assert.equal(promote(a, b), promote(b, a));
      for (const c of computed) assert.equal(promote(promote(a, b), c), promote(a, promote(b, c)));
    }
  }
});
