/** Which chains of calls are tiled by rows, and which are not because a row needs other rows. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { withNullGpu } from "../../../test/support/null-gpu.js";
import { rewritten } from "../../../test/support/rewritten.js";
import { type Expression, iterateRows, type RowKernel, term } from "../../ir/index.js";
import type { TilingLimits } from "../cost-model.js";
import type { Buffer, BufferSlice, Call, GemmCall } from "../program/program.js";
import { tileRows } from "./row-tiling.js";

const [rows, width, columns] = [64, 8, 16] as const;

const limits: TilingLimits = {
  ...{
    rowAlignment: 8,
    minRows: 16,
    preferredRows: 16,
    minSummedRows: 24,
    minElements: 1,
    minShare: -Infinity,
  },
};

let buffers = 0;
const bufferOf = (label: string, floats: number): Buffer => ({ id: buffers++, bytes: 4 * floats, label });
const whole = (buffer: Buffer): BufferSlice => ({ buffer, offset: 0, size: buffer.bytes });

interface Names {
  readonly h: Buffer;
  readonly w: Buffer;
  readonly x: Buffer;
  readonly y: Buffer;
  readonly dh: Buffer;
  readonly dw: Buffer;
}

function makeBuffers(): Names {
  return {
    ...{ h: bufferOf("h", rows * width), w: bufferOf("w", columns * width) },
    ...{ x: bufferOf("x", rows * columns), y: bufferOf("y", rows * columns) },
    ...{ dh: bufferOf("dh", rows * width), dw: bufferOf("dw", columns * width) },
  };
}

type Problem = GemmCall["problem"];

function gemm(op: string, problem: Pick<Problem, "m" | "n" | "k" | "a" | "b" | "c">): Call {
  return { op, work: { kind: "gemm", problem: { dtype: "f32", ...problem } } };
}

/** y = f(x), element by element of a row after a sum of the row. */
function rowCall(op: string, x: Buffer, y: Buffer, value: Expression): Call {
  const kernel: RowKernel = {
    ...{ name: op, inputs: ["f32"], outputs: [{ dtype: "f32", per: "element" }], scalars: [] },
    stages: [
      { kind: "reduce", op: "add", value: term.load(0, "f32") },
      { kind: "store", output: 0, value },
    ],
  };
  const strides = [columns, 1];
  const iteration = iterateRows([rows, columns], [strides, strides], 1);
  return { op, work: { kind: "row", kernel, iteration, operands: [whole(x), whole(y)], scalars: [] } };
}

const centred = term.sub(term.load(0, "f32"), term.reduced(0, "f32"));

/** x = h · wᵀ, y = f(x), dh = y · w, dw = yᵀ · h. */
function chain({ h, w, x, y, dh, dw }: Names, value: Expression = centred): readonly Call[] {
  const matrix = (buffer: Buffer, rowStride: number, isTransposed = false) => ({
    ...{ slice: whole(buffer), rowStride, isTransposed },
  });
  return [
    gemm("head", {
      ...{ m: rows, n: columns, k: width },
      ...{ a: matrix(h, width), b: matrix(w, width, true), c: matrix(x, columns) },
    }),
    rowCall("rows", x, y, value),
    gemm("dh", {
      ...{ m: rows, n: width, k: columns },
      ...{ a: matrix(y, columns), b: matrix(w, width), c: matrix(dh, width) },
    }),
    gemm("dw", {
      ...{ m: columns, n: width, k: rows },
      ...{ a: matrix(y, columns, true), b: matrix(h, width), c: matrix(dw, width) },
    }),
  ];
}

function tile(calls: readonly Call[], given: TilingLimits = limits): readonly Call[] {
  return withNullGpu("bf16", ({ runtime }) =>
    rewritten(calls, (program) => tileRows(runtime, program, given)),
  );
}

const opsOf = (calls: readonly Call[]): string => calls.map(({ op }) => op).join(" ");
const gemmsOf = (calls: readonly Call[], op: string): readonly Problem[] =>
  calls.flatMap((call) => (call.op === op && call.work.kind === "gemm" ? [call.work.problem] : []));

test("a GEMM, its row kernel and the GEMMs that read it run chunk by chunk, in chunk-sized buffers", () => {
  const names = makeBuffers();
  const calls = tile(chain(names));
  assert.equal(opsOf(calls), "head rows dh dw head rows dh dw");
  const heads = gemmsOf(calls, "head");
  assert.deepEqual(
    heads.map(({ m, a, c }) => [m, a.slice.offset, c.slice.offset, c.slice.size]),
    [
      [32, 0, 0, 4 * 32 * columns],
      [32, 4 * 32 * width, 0, 4 * 32 * columns],
    ],
  );
  assert.ok(heads.every(({ c }) => c.slice.buffer === heads[0]?.c.slice.buffer));
  // Rows of the result are disjoint; sums over rows are added to the same result.
  assert.deepEqual(
    gemmsOf(calls, "dh").map(({ c }) => [c.slice.buffer, c.slice.offset]),
    [
      [names.dh, 0],
      [names.dh, 4 * 32 * width],
    ],
  );
  assert.deepEqual(
    gemmsOf(calls, "dw").map(({ k, c, beta }) => [k, c.slice.buffer, beta ?? 0]),
    [
      [32, names.dw, 0],
      [32, names.dw, 1],
    ],
  );
});

test("a result with a reader that needs all rows is stored whole, and the chain ends before it", () => {
  const names = makeBuffers();
  const all: Call = {
    op: "all",
    work: { kind: "copy", source: whole(names.y), target: whole(bufferOf("z", rows * columns)) },
  };
  assert.equal(opsOf(tile([...chain(names), all])), "head rows head rows head rows head rows dh dw all");
  const ofX: Call = { ...all, work: { kind: "copy", source: whole(names.x), target: whole(names.dh) } };
  assert.equal(opsOf(tile([...chain(names), ofX])), "head rows dh dw all", "x itself is read");
});

test("calls between the members stay before them, or follow if they depend on them", () => {
  const names = makeBuffers();
  const [head, row, dh, dw] = chain(names) as [Call, Call, Call, Call];
  const next: Call = {
    op: "next",
    work: { kind: "copy", source: whole(names.dh), target: whole(bufferOf("z", rows * width)) },
  };
  const other: Call = { op: "other", work: { kind: "fill", target: whole(bufferOf("o", 4)), byte: 0 } };
  assert.equal(opsOf(tile([head, row, dh, next, other, dw])), "other head rows dh dw head rows dh dw next");
});

test("members may share a value per row, but not the value of one row", () => {
  const names = makeBuffers();
  const [head, , ...gemms] = chain(names) as [Call, Call, Call, Call];
  const sums = bufferOf("sums", rows);
  const x = term.load(0, "f32");
  const sum: RowKernel = {
    ...{ name: "sum", inputs: ["f32"], outputs: [{ dtype: "f32", per: "row" }], scalars: [] },
    stages: [
      { kind: "reduce", op: "add", value: x },
      { kind: "store", output: 0, value: term.reduced(0, "f32") },
    ],
  };
  const minus: RowKernel = {
    ...{ name: "minus", inputs: ["f32", "f32"], outputs: [{ dtype: "f32", per: "element" }], scalars: [] },
    stages: [{ kind: "store", output: 0, value: term.sub(x, term.load(1, "f32")) }],
  };
  const elements = [columns, 1];
  const call = (kernel: RowKernel, strides: number[][], ...operands: Buffer[]): Call => ({
    op: kernel.name,
    work: {
      ...{ kind: "row", kernel, iteration: iterateRows([rows, columns], strides, 1) },
      ...{ operands: operands.map(whole), scalars: [] },
    },
  });
  const calls = (stride: number): readonly Call[] => [
    head,
    call(sum, [elements, [1, 0]], names.x, sums),
    call(minus, [elements, [stride, 0], elements], names.x, sums, names.y),
    ...gemms,
  ];
  assert.equal(opsOf(tile(calls(1))), "head sum minus dh dw head sum minus dh dw");
  assert.equal(opsOf(tile(calls(0))), "head sum minus dh dw");
});

test("rows that depend on other rows are not tiled", () => {
  const names = makeBuffers();
  const [head, row, ...gemms] = chain(names) as [Call, Call, Call, Call];
  const byIndex = chain(names, term.add(centred, term.convert(term.row, "f32")));
  assert.equal(opsOf(tile(byIndex)), "head rows dh dw", "the kernel reads the row's index");
  const elsewhere = chain(names, term.add(centred, term.load(0, "f32", term.constant(columns, "i32"))));
  assert.equal(opsOf(tile(elsewhere)), "head rows dh dw", "the kernel reads the next row");
  const between: Call = {
    op: "between",
    work: { kind: "copy", source: whole(names.x), target: whole(names.w) },
  };
  assert.equal(opsOf(tile([head, between, row, ...gemms])), "head between rows dh dw");
});

test("chunks are not smaller than the limits", () => {
  const calls = chain(makeBuffers());
  assert.equal(
    opsOf(tile(calls, { ...limits, minSummedRows: 33 })),
    "head rows head rows head rows head rows dh dw",
  );
  assert.equal(
    opsOf(tile(calls, { ...limits, minSummedRows: 33, minElements: 33 * columns })),
    "head rows dh dw",
  );
  assert.equal(opsOf(tile(calls, { ...limits, minShare: 0.9 })), "head rows dh dw", "the peak hardly falls");
  const withoutSums = { ...limits, minSummedRows: 33 };
  assert.equal(
    opsOf(tile(calls, { ...withoutSums, preferredRows: 32 })),
    "head rows head rows dh dw",
    "two chunks have the preferred rows",
  );
  assert.equal(
    opsOf(tile(calls, { ...withoutSums, preferredRows: 33 })),
    "head rows head rows head rows head rows dh dw",
    "there are too few rows for two such chunks",
  );
});
