/** Elementwise work goes into the product whose result it reads, where it can, and nowhere else. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { onCalls } from "../../../test/support/rewritten.js";
import { iterateElements, type RowKernel } from "../../ir/index.js";
import type { Runtime } from "../../runtime/index.js";
import { accessesOf, type Buffer, type BufferSlice, type Call, type GemmCall } from "../program/program.js";
import { fuseEpilogues as fuseEpiloguesIn } from "./epilogue.js";

const fuseEpilogues = onCalls(fuseEpiloguesIn);

const on = (computeCapability: string, precision: string): Runtime =>
  ({
    device: { kind: "cuda", computeCapability, parallelism: 132 },
    settings: { precision },
  }) as unknown as Runtime;
const hopper = on("9.0", "tf32");

let buffers = 0;
const bufferOf = (elements: number): Buffer => {
  buffers++;
  return { id: buffers, bytes: 4 * elements, label: `b${buffers}` };
};
const whole = (buffer: Buffer): BufferSlice => ({ buffer, offset: 0, size: buffer.bytes });

const [m, n, k] = [3072, 1024, 256];

function product(more: Partial<GemmCall["problem"]> = {}) {
  const [left, right, result] = [bufferOf(m * k), bufferOf(k * n), bufferOf(m * n)];
  const problem: GemmCall["problem"] = {
    ...{ dtype: "f32", m, n, k },
    a: { slice: whole(left), rowStride: k },
    b: { slice: whole(right), rowStride: n },
    c: { slice: whole(result), rowStride: n },
    ...more,
  };
  const call: Call = { op: "linear", work: { kind: "gemm", problem } };
  return { call, result };
}

const kernel: RowKernel = {
  ...{ name: "twice", inputs: ["f32"], outputs: [{ dtype: "f32", per: "element" }], scalars: [] },
  stages: [{ kind: "store", output: 0, value: { kind: "load", input: 0, type: "f32" } }],
};

function rows(source: Buffer, target = bufferOf(m * n), stride = 1) {
  const iteration = iterateElements([m * n], [[1], [stride]]);
  const operands = [whole(source), whole(target)];
  const call: Call = { op: "twice", work: { kind: "row", kernel, iteration, operands, scalars: [] } };
  return { call, target };
}

const kinds = (calls: readonly Call[]): string[] => calls.map(({ work }) => work.kind);

test("work on a product's result is done with it, and the result itself is gone where nobody else reads it", () => {
  const { call, result } = product({ scratch: whole(bufferOf(64)), algorithm: 2 });
  const work = rows(result);
  const [made, ...others] = fuseEpilogues(hopper, [call, work.call]);
  assert.deepEqual(others, []);
  assert.ok(made?.work.kind === "gemm-epilogue");
  assert.equal(made.op, "linear + twice");
  assert.equal(made.work.epilogue.storesC, false);
  const met = accessesOf(made);
  assert.deepEqual(
    met.flatMap(({ slice, writes }) => (writes ? [slice.buffer] : [])),
    [work.target],
  );
  assert.ok(met.every(({ slice }) => slice.buffer !== result));
  assert.equal(met.length, 3);
});

test("what the work stores and reads back is no operand of its own", () => {
  const { call, result } = product();
  const [first, second] = [bufferOf(m * n), bufferOf(m * n)];
  const load = (input: number) => ({ kind: "load", input, type: "f32" }) as const;
  const reading: RowKernel = {
    ...{ name: "twice over", inputs: ["f32", "f32"], scalars: [] },
    outputs: [kernel.outputs[0]!, kernel.outputs[0]!],
    stages: [
      { kind: "store", output: 0, value: load(0) },
      { kind: "store", output: 1, value: load(1) },
    ],
  };
  const iteration = iterateElements([m * n], [[1], [1], [1], [1]]);
  const callOf = (operands: readonly Buffer[]): Call => ({
    op: "twice over",
    work: { kind: "row", kernel: reading, iteration, operands: operands.map(whole), scalars: [] },
  });
  const [made] = fuseEpilogues(hopper, [call, callOf([result, first, first, second])]);
  assert.ok(made?.work.kind === "gemm-epilogue");
  const met = accessesOf(made);
  assert.deepEqual(
    met.flatMap(({ slice, writes }) => (writes ? [slice.buffer] : [])),
    [first, second],
  );
  assert.ok(met.every(({ slice, reads }) => !reads || slice.buffer !== first));
  // Here the second output's memory is read before it is stored; there the result is read as two inputs, of which one would be stale.
  for (const read of [second, result]) {
    const early = [call, callOf([result, read, first, second])];
    assert.deepEqual(kinds(fuseEpilogues(hopper, early)), ["gemm", "row"]);
  }
});

test("work that stores over an operand of the product stays apart: other blocks may still read it", () => {
  const bias = bufferOf(n);
  const { call, result } = product({ bias: whole(bias) });
  assert.ok(call.work.kind === "gemm");
  const { a, b } = call.work.problem;
  for (const target of [a.slice.buffer, b.slice.buffer, bias]) {
    const calls = [call, rows(result, target).call];
    assert.deepEqual(fuseEpilogues(hopper, calls), calls);
  }
});

test("a result that others read is stored as well", () => {
  const { call, result } = product();
  const [work, later] = [rows(result), rows(result)];
  const calls = fuseEpilogues(hopper, [call, work.call, later.call]);
  assert.deepEqual(kinds(calls), ["gemm-epilogue", "row"]);
  assert.deepEqual(
    accessesOf(calls[0]!).flatMap(({ slice, writes }) => (writes ? [slice.buffer] : [])),
    [result, work.target],
  );
});

test("work that has to wait for something behind the product moves the product there, if that may move", () => {
  const { call, result } = product();
  const work = rows(result);
  const other: Call = { op: "fill", work: { kind: "fill", target: whole(work.target), byte: 0 } };
  assert.deepEqual(kinds(fuseEpilogues(hopper, [call, other, work.call])), ["fill", "gemm-epilogue"]);
  const reader = rows(result);
  const blocked = rows(reader.target, work.target);
  const calls = fuseEpilogues(hopper, [call, reader.call, blocked.call, work.call]);
  assert.deepEqual(kinds(calls), ["gemm-epilogue", "row", "row"]);
  assert.ok(calls[0]!.op === "linear + twice" && calls[2] === work.call);
});

test("what does not lie as the result does, changes an operand in place, or follows another product's kind stays apart", () => {
  const { call, result } = product();
  const apart = (...calls: Call[]): void =>
    assert.deepEqual(fuseEpilogues(hopper, calls), calls, "as they were");
  apart(call, rows(result, result).call);
  apart(call, rows(result, bufferOf(2 * m * n), 2).call);
  apart(call, { ...rows(result).call, isRematerialized: true });
  const accumulating = product({ beta: 1 });
  apart(accumulating.call, rows(accumulating.result).call);
  for (const runtime of [on("8.0", "tf32"), on("9.0", "f32")])
    assert.deepEqual(kinds(fuseEpilogues(runtime, [call, rows(result).call])), ["gemm", "row"]);
});
