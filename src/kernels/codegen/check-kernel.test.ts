/** Invalid kernels: all printers reject them, with the same code and the same message. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { rejects } from "../../../test/support/rejects.js";
import type { ErrorCode } from "../../errors/index.js";
import {
  type BinaryOp,
  binaryOps,
  type ColumnKernel,
  type Compute,
  checkColumnKernel,
  checkRowKernel,
  compareOps,
  type Expression,
  type RowKernel,
  roundings,
  term,
  type UnaryOp,
  unaryOps,
} from "../../ir/index.js";
import { printColumnKernel as printCudaColumns } from "./cuda/column-kernel.js";
import { printElementKernel } from "./cuda/element-kernel.js";
import { printReducingKernel } from "./cuda/row-kernel.js";
import { printColumnKernel as printWasmColumns } from "./wasm/column-kernel.js";
import { printRowKernel } from "./wasm/row-kernel.js";

const layout = { outerRank: 1, inner: ["unit", "unit"], aliases: new Map() } as const;

const rowPrinters: readonly ((kernel: RowKernel) => unknown)[] = [
  checkRowKernel,
  (kernel) => printRowKernel(kernel, layout),
  (kernel) => printElementKernel(kernel, { ...layout, width: 1, access: "vector" }),
  (kernel) =>
    printReducingKernel(kernel, { ...layout, access: "scalar", lanes: 32, vectors: 1, cachedBytes: 4 }),
];

const columnPrinters: readonly ((kernel: ColumnKernel) => unknown)[] = [
  checkColumnKernel,
  (kernel) => printWasmColumns(kernel, ["unit"]),
  (kernel) => printCudaColumns(kernel, { strides: ["unit"], partials: 32, lanes: 32, columns: 8, unroll: 1 }),
];

function rowKernel(value: Expression, output: RowKernel["outputs"][number]["dtype"] = "f32"): RowKernel {
  return {
    name: "odd",
    inputs: ["f32"],
    outputs: [{ dtype: output, per: "element" }],
    scalars: [],
    stages: [{ kind: "store", output: 0, value }],
  };
}

function rejectedByAll(code: ErrorCode, kernel: RowKernel, message: RegExp): void {
  for (const print of rowPrinters) rejects(code, () => print(kernel), message);
}

const x = term.load(0, "f32");
const whole = term.convert(x, "i32");

describe("row kernels", () => {
  test("without stages are rejected", () => {
    rejectedByAll("BAD_ARGUMENT", { ...rowKernel(x), stages: [] }, /"odd" has no stages/);
  });

  test("need an integer index", () => {
    rejectedByAll("BAD_ARGUMENT", rowKernel(term.load(0, "f32", x)), /"at" is f32/);
  });

  test("need the inputs, outputs, scalars and earlier reductions that they use", () => {
    rejectedByAll("BAD_ARGUMENT", rowKernel(term.load(1, "f32")), /"odd" uses input 1/);
    rejectedByAll("BAD_ARGUMENT", rowKernel(term.scalar(0, "f32")), /"odd" uses scalar 0/);
    rejectedByAll("BAD_ARGUMENT", rowKernel(term.reduced(0, "f32")), /earlier reduction 0/);
    const kernel = rowKernel(x);
    const stages = [{ kind: "store", output: 1, value: x } as const];
    rejectedByAll("BAD_ARGUMENT", { ...kernel, stages }, /stores to output 1/);
  });

  test("load and store the compute types of their dtypes", () => {
    rejectedByAll("BAD_ARGUMENT", rowKernel(term.load(0, "f64"), "f64"), /input 0 as f64, which is f32/);
    rejectedByAll("BAD_ARGUMENT", rowKernel(x, "i32"), /stores f32 in i32/);
    rejectedByAll("BAD_ARGUMENT", rowKernel(whole, "bf16"), /stores i32 in bf16, whose compute type is f32/);
  });

  test("shift by a constant from 0 to 31", () => {
    rejectedByAll("UNSUPPORTED", rowKernel(term.shr(whole, whole), "i32"), /shift by a convert/);
    for (const by of [-1, 32, 0.5]) {
      rejectedByAll("UNSUPPORTED", rowKernel(term.shr(whole, by), "i32"), new RegExp(`shift by ${by}\\.`));
    }
    for (const by of [0, 31]) for (const print of rowPrinters) print(rowKernel(term.shr(whole, by), "i32"));
  });

  test("do not mix types", () => {
    const mixed: readonly Expression[] = [
      { kind: "binary", op: "add", a: x, b: whole, type: "f32" },
      { kind: "binary", op: "add", a: whole, b: whole, type: "f32" },
      { kind: "unary", op: "neg", a: whole, type: "f32" },
      term.convert({ kind: "compare", op: "lt", a: x, b: whole, type: "i32" }, "f32"),
      { kind: "select", condition: x, a: x, b: x, type: "f32" },
      { kind: "select", condition: whole, a: whole, b: x, type: "f32" },
      { kind: "select", condition: whole, a: x, b: whole, type: "f32" },
    ];
    for (const value of mixed) rejectedByAll("BAD_ARGUMENT", rowKernel(value), /which is (i32|f32)/);
  });

  /** The ops that are not defined for a type; all others are printed. */
  const undefinedOps: Readonly<Record<Compute, readonly (UnaryOp | BinaryOp)[]>> = {
    f32: ["and", "shr"],
    f64: ["and", "shr", ...roundings],
    i64: ["div", "pow", "atan2", "fmod", ...unaryOps.filter((op) => op !== "neg" && op !== "abs")],
    i32: ["div", "pow", "atan2", "fmod", ...unaryOps.filter((op) => op !== "neg" && op !== "abs")],
  };
  for (const type of ["f32", "f64", "i32", "i64"] as const) {
    test(`support the ops that are defined for ${type}, and no others`, () => {
      const a = term.convert(x, type);
      const values: [string, Expression][] = [
        ...unaryOps.map((op): [string, Expression] => [op, { kind: "unary", op, a, type }]),
        ...binaryOps.map((op): [string, Expression] => {
          const b = op === "shr" ? term.constant(3, type) : a;
          return [op, { kind: "binary", op, a, b, type }];
        }),
        ...compareOps.map((op): [string, Expression] => [op, { kind: "compare", op, a, b: a, type: "i32" }]),
        ["select", term.select(term.gt(a, 0), a, 1)],
      ];
      for (const [op, value] of values) {
        const kernel = rowKernel(value, value.type);
        if (undefinedOps[type].some((undefinedOp) => undefinedOp === op)) {
          rejectedByAll("UNSUPPORTED", kernel, new RegExp(`can't do ${op} in ${type}`));
        } else for (const print of rowPrinters) assert.doesNotThrow(() => print(kernel), `${op} of ${type}`);
      }
    });
  }
});

test("column kernels have no earlier stages, and follow all other rules", () => {
  const kernel = (value: Expression): ColumnKernel => ({
    name: "odd columns",
    inputs: ["f32"],
    outputs: ["f32"],
    scalars: [],
    op: "add",
    values: [value],
  });
  for (const print of columnPrinters) {
    rejects("BAD_ARGUMENT", () => print(kernel(term.reduced(0, "f32"))), /"odd columns" uses .*stage 0/);
    rejects("BAD_ARGUMENT", () => print(kernel(whole)), /stores i32 in f32/);
    rejects("UNSUPPORTED", () => print(kernel(term.and(x, x))), /can't do and in f32/);
    print(kernel(x));
  }
});

test("column kernels have one to four values, and an output for each of them", () => {
  const kernel = (values: number, outputs: number): ColumnKernel => ({
    name: "odd columns",
    inputs: ["f32"],
    outputs: Array.from({ length: outputs }, () => "f32" as const),
    scalars: [],
    op: "add",
    values: Array.from({ length: values }, () => x),
  });
  for (const print of columnPrinters) {
    rejects("BAD_ARGUMENT", () => print(kernel(0, 0)), /"odd columns" reduces no value/);
    rejects("BAD_ARGUMENT", () => print(kernel(5, 5)), /reduces 5 values in one pass, which takes up to 4/);
    rejects("BAD_ARGUMENT", () => print(kernel(2, 1)), /reduces 2 values into 1 outputs/);
    print(kernel(4, 4));
  }
});
