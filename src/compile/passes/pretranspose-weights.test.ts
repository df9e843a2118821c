/** Weights are turned round for the products that gain by it, once each, and for no others. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { onCalls } from "../../../test/support/rewritten.js";
import type { KernelSource } from "../../driver/index.js";
import { iterateElements, type RowKernel } from "../../ir/index.js";
import type { Runtime, Storage } from "../../runtime/index.js";
import { accessesOf, type Buffer, type BufferSlice, type Call, type GemmCall } from "../program/program.js";
import { pretransposeWeights as pretransposeWeightsIn } from "./pretranspose-weights.js";

const pretransposeWeights = onCalls(pretransposeWeightsIn);

const on = (computeCapability: string, precision: string, workspaceBytes = 0): Runtime =>
  ({
    device: { kind: "cuda", computeCapability, parallelism: 132 },
    settings: { precision },
    kernel: ({ name, parameters }: KernelSource) => ({ name, parameters, workspaceBytes }),
  }) as unknown as Runtime;
const hopper = on("9.0", "tf32");

let buffers = 0;
const bufferOf = (elements: number, isPersistent = false): Buffer => {
  buffers++;
  const bytes = 4 * elements;
  const storage = { span: { address: buffers * 2 ** 24, size: bytes } } as unknown as Storage;
  return { id: buffers, bytes, label: `b${buffers}`, ...(isPersistent && { storage }) };
};
const whole = (buffer: Buffer): BufferSlice => ({ buffer, offset: 0, size: buffer.bytes });

const [m, n, k] = [2048, 64, 128];

function product(right = bufferOf(k * n, true), more: Partial<GemmCall["problem"]> = {}): Call {
  const problem: GemmCall["problem"] = {
    ...{ dtype: "f32", m, n, k },
    a: { slice: whole(bufferOf(m * k)), rowStride: k },
    b: { slice: whole(right), rowStride: n },
    c: { slice: whole(bufferOf(m * n)), rowStride: n },
    ...more,
  };
  return { op: "linear", work: { kind: "gemm", problem } };
}

const kernel: RowKernel = {
  ...{ name: "same", inputs: ["f32"], outputs: [{ dtype: "f32", per: "element" }], scalars: [] },
  stages: [{ kind: "store", output: 0, value: { kind: "load", input: 0, type: "f32" } }],
};

function write(buffer: Buffer): Call {
  const iteration = iterateElements([4], [[1], [1]]);
  const operands = [whole(bufferOf(4)), { buffer, offset: 0, size: 16 }];
  return { op: "write", work: { kind: "row", kernel, iteration, operands, scalars: [] } };
}

const problemsIn = (calls: readonly Call[]) =>
  calls.flatMap(({ work }) => (work.kind === "gemm" ? [work.problem] : []));

test("a weight that many rows are multiplied by is turned before, and read along its terms", () => {
  const weight = bufferOf(k * n, true);
  const before = Array.from({ length: 5 }, () => write(bufferOf(4)));
  const calls = pretransposeWeights(hopper, [...before, product(weight)]);
  // Not just before: what stands between may run beside it.
  assert.deepEqual(
    calls.map(({ op }) => op),
    ["write", "write", "transposed weights", "write", "write", "write", "linear"],
  );
  const [{ b }] = problemsIn(calls) as [GemmCall["problem"]];
  assert.deepEqual([b.isTransposed, b.rowStride, b.slice.size], [true, k, 4 * n * k]);
  assert.equal(b.slice.buffer.storage, undefined);
  const [read, written] = accessesOf(calls[2]!);
  assert.deepEqual([read?.slice, read?.writes], [whole(weight), false]);
  assert.deepEqual([written?.slice, written?.reads], [b.slice, false]);
});

test("a library has the scratch memory that it wants of the turned product, be it more or none", () => {
  const scratch = whole(bufferOf(64));
  const [none] = problemsIn(pretransposeWeights(hopper, [product(undefined, { scratch })]));
  assert.equal(none?.scratch, undefined);
  const [some] = problemsIn(pretransposeWeights(on("9.0", "tf32", 131), [product(undefined, { scratch })]));
  assert.equal(some?.scratch?.size, 131);
  assert.notEqual(some?.scratch?.buffer, scratch.buffer);
});

test("a weight of two products is turned once, and all weights in one launch", () => {
  const weight = bufferOf(k * n, true);
  const calls = pretransposeWeights(hopper, [product(weight), product(), product(weight)]);
  assert.equal(calls.length, 4);
  const [one, other, again] = problemsIn(calls).map(({ b }) => b.slice);
  assert.deepEqual(again, one);
  assert.notDeepEqual(other, one);
  const { work } = calls[0]!;
  assert.ok(work.kind === "launch");
  assert.equal(work.kernel.name, "transpose of 2");
});

test("of a batch every matrix is turned, and one that all share just once", () => {
  const each = { slice: whole(bufferOf(3 * k * n, true)), rowStride: n, batchStride: k * n };
  const batch = { batch: 3, c: { slice: whole(bufferOf(3 * m * n)), rowStride: n, batchStride: m * n } };
  const calls = pretransposeWeights(hopper, [product(undefined, { ...batch, b: each })]);
  const [{ b }] = problemsIn(calls) as [GemmCall["problem"]];
  assert.deepEqual([b.batchStride, b.slice.size], [n * k, 3 * 4 * n * k]);
  const { work } = calls[0]!;
  assert.ok(work.kind === "launch");
  assert.deepEqual(
    work.arguments.flatMap((one) => (typeof one === "number" ? [] : [one.offset])),
    [0, 1, 2].flatMap((index) => [index * 4 * k * n, index * 4 * k * n]),
  );
  const shared = { slice: whole(bufferOf(k * n, true)), rowStride: n, batchStride: 0 };
  const [other] = problemsIn(pretransposeWeights(hopper, [product(undefined, { ...batch, b: shared })]));
  assert.deepEqual([other?.b.batchStride, other?.b.slice.size], [0, 4 * n * k]);
});

test("what the step has made or changed itself is not turned, nor what few rows are multiplied by, nor what lies along its terms", () => {
  const changed = bufferOf(k * n, true);
  for (const calls of [
    [product(bufferOf(k * n))],
    [write(changed), product(changed)],
    [product(undefined, { m: 512 })],
    [product(undefined, { b: { slice: whole(bufferOf(k * n, true)), rowStride: k, isTransposed: true } })],
    [product(undefined, { a: { slice: whole(bufferOf(m * k)), rowStride: m, isTransposed: true } })],
  ])
    assert.equal(pretransposeWeights(hopper, calls), calls);
  const later = pretransposeWeights(hopper, [product(changed), write(changed)]);
  assert.equal(later.length, 3, "changed only afterwards");
});

test("a large weight is turned only for so many rows that they gain more than that costs", () => {
  const wide = (rows: number): Call => {
    const b = { slice: whole(bufferOf(4096 * 4096, true)), rowStride: 4096 };
    return product(undefined, { m: rows, n: 4096, k: 4096, b });
  };
  assert.equal(pretransposeWeights(hopper, [wide(1024)]).length, 1);
  assert.equal(pretransposeWeights(hopper, [wide(16_384)]).length, 2);
});

test("only TF32 on Hopper has weights turned", () => {
  const calls = [product()];
  for (const runtime of [on("9.0", "f32"), on("9.0", "bf16"), on("8.0", "tf32")])
    assert.equal(pretransposeWeights(runtime, calls), calls);
  assert.equal(
    pretransposeWeights(hopper, [product(undefined, { dtype: "bf16", resultDtype: "f32" })]).length,
    1,
  );
});
