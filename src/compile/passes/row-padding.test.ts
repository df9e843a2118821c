/** Which matrices get padded rows, and which do not because a call does not access them row by row. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { withNullGpu } from "../../../test/support/null-gpu.js";
import { rewritten } from "../../../test/support/rewritten.js";
import {
  type ColumnKernel,
  type Expression,
  iterateElements,
  iterateRows,
  type RowKernel,
  term,
} from "../../ir/index.js";
import { span } from "../../units/index.js";
import type { Buffer, BufferSlice, Call, GemmCall } from "../program/program.js";
import { padRows } from "./row-padding.js";

const [rows, width, columns] = [64, 32, 13] as const;
const paddedColumns = 16;

let buffers = 0;
const bufferOf = (label: string, floats: number): Buffer => ({ id: buffers++, bytes: 4 * floats, label });
const whole = (buffer: Buffer): BufferSlice => ({ buffer, offset: 0, size: buffer.bytes });

type Problem = GemmCall["problem"];

function gemm(op: string, problem: Pick<Problem, "m" | "n" | "k" | "a" | "b" | "c">): Call {
  return { op, work: { kind: "gemm", problem: { dtype: "f32", ...problem } } };
}

const matrix = (buffer: Buffer, rowStride: number, isTransposed = false) => ({
  ...{ slice: whole(buffer), rowStride, isTransposed },
});

function rowKernel(value: Expression): RowKernel {
  return {
    ...{ name: "rows", inputs: ["f32"], outputs: [{ dtype: "f32", per: "element" }], scalars: [] },
    stages: [
      { kind: "reduce", op: "add", value: term.load(0, "f32") },
      { kind: "store", output: 0, value },
    ],
  };
}

const centred = term.sub(term.load(0, "f32"), term.reduced(0, "f32"));
const xAndY = [
  [columns, 1],
  [columns, 1],
];
const byRows = iterateRows([rows, columns], xAndY, 1);
const flat = iterateElements([rows, columns], xAndY);
const exp: RowKernel = {
  ...rowKernel(centred),
  stages: [{ kind: "store", output: 0, value: term.exp(term.load(0, "f32")) }],
};

const sumKernel: ColumnKernel = {
  ...{ name: "sum", op: "add", inputs: ["f32"], outputs: ["f32"], scalars: [] },
  values: [term.load(0, "f32")],
};

interface Changes {
  readonly kernel?: RowKernel;
  readonly iteration?: typeof byRows;
  readonly storage?: Buffer["storage"];
}

/** x = h · wᵀ, y = f(x), dh = y · w, dw = yᵀ · h, db = column sums of y. */
function chain({ kernel = rowKernel(centred), iteration = byRows, storage }: Changes = {}) {
  const [h, w, dh, dw, db] = [rows * width, columns * width, rows * width, columns * width, columns].map(
    (floats, index) => bufferOf(`b${index}`, floats),
  ) as [Buffer, Buffer, Buffer, Buffer, Buffer];
  const x = { ...bufferOf("x", rows * columns), ...(storage && { storage }) };
  const y = bufferOf("y", rows * columns);
  const calls: readonly Call[] = [
    gemm("head", {
      ...{ m: rows, n: columns, k: width },
      ...{ a: matrix(h, width), b: matrix(w, width, true), c: matrix(x, columns) },
    }),
    {
      op: "rows",
      work: { kind: "row", kernel, iteration, operands: [whole(x), whole(y)], scalars: [] },
    },
    gemm("dh", {
      ...{ m: rows, n: width, k: columns },
      ...{ a: matrix(y, columns), b: matrix(w, width), c: matrix(dh, width) },
    }),
    gemm("dw", {
      ...{ m: columns, n: width, k: rows },
      ...{ a: matrix(y, columns, true), b: matrix(h, width), c: matrix(dw, width) },
    }),
    {
      op: "db",
      work: {
        ...{ kind: "column", kernel: sumKernel, rows, columns, scalars: [] },
        ...{ strides: [{ row: columns, column: "unit" }], operands: [whole(y), whole(db)] },
      },
    },
  ];
  return calls;
}

const pad = (calls: readonly Call[], minMacs = 1): readonly Call[] =>
  withNullGpu("bf16", ({ runtime }) => rewritten(calls, (program) => padRows(runtime, program, minMacs)));

/** The row strides of x and y in each call. */
const stridesOf = (calls: readonly Call[]): readonly unknown[] =>
  calls.map(({ work }) => {
    if (work.kind === "gemm") return [work.problem.a.rowStride, work.problem.c.rowStride];
    if (work.kind === "column") return work.strides[0]?.row;
    return work.kind === "row" ? work.iteration.outer[0]?.strides : undefined;
  });

test("all calls get the strides of the padded rows, and larger buffers", () => {
  const calls = pad(chain());
  assert.deepEqual(stridesOf(calls), [
    [width, paddedColumns],
    [paddedColumns, paddedColumns],
    [paddedColumns, width],
    [paddedColumns, width],
    paddedColumns,
  ]);
  const [head, loss] = calls;
  assert.ok(head?.work.kind === "gemm" && loss?.work.kind === "row");
  const { slice } = head.work.problem.c;
  assert.deepEqual([slice.size, slice.buffer.bytes], [4 * rows * paddedColumns, 4 * rows * paddedColumns]);
  assert.equal(loss.work.operands[0]?.buffer, slice.buffer);
  assert.deepEqual(loss.work.iteration.row.size, columns);
});

test("a matrix that outlives the step, or that a call reads without rows, keeps its strides; others do not", () => {
  const storage = { span: span(4096, 4 * rows * columns) } as unknown as NonNullable<Buffer["storage"]>;
  const read = stridesOf(pad(chain({ storage })));
  assert.deepEqual(read.slice(0, 3), [
    [width, columns],
    [columns, paddedColumns],
    [paddedColumns, width],
  ]);
  const calls = chain({ kernel: exp, iteration: flat });
  assert.equal(pad(calls), calls);
});

test("a row may be read at an index that stays in the row", () => {
  const at = (index: number): RowKernel => ({
    ...rowKernel(centred),
    outputs: [{ dtype: "f32", per: "row" }],
    stages: [{ kind: "store", output: 0, value: term.load(0, "f32", term.constant(index, "i32")) }],
  });
  const perRow = [
    [columns, 1],
    [1, 0],
  ];
  const strides = (index: number) => {
    const iteration = iterateRows([rows, columns], perRow, 1);
    return stridesOf(pad(chain({ kernel: at(index), iteration }).slice(0, 2)))[0];
  };
  assert.deepEqual(strides(columns - 1), [width, paddedColumns]);
  assert.deepEqual(strides(columns), [width, columns], "an element of the next row");
});

test("only large GEMMs with unaligned rows, and little padding", () => {
  const calls = chain();
  assert.equal(pad(calls, 1e9), calls);
  const [x, h, w] = [bufferOf("x", rows * 9), bufferOf("h", rows * 8), bufferOf("w", 9 * 8)];
  const narrow = [
    gemm("head", {
      ...{ m: rows, n: 9, k: 8 },
      ...{ a: matrix(h, 8), b: matrix(w, 8, true), c: matrix(x, 9) },
    }),
  ];
  assert.equal(pad(narrow), narrow, "seven more elements for each seventeen");
});
