/** Independent GEMMs of one shape become one batched GEMM if their operands have a common stride; others stay as they are. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { onCalls } from "../../../test/support/rewritten.js";
import type { Kernel } from "../../driver/index.js";
import type { Runtime } from "../../runtime/index.js";
import { accessesOf, type Buffer, type BufferSlice, type Call, type GemmCall } from "../program/program.js";
import { batchGemms } from "./batch-gemms.js";

/** What the emulated cuBLASLt asks for. */
let workspaceBytes = 0;

/** All that the pass asks of a runtime. */
const hopper = {
  device: { kind: "cuda", computeCapability: "9.0", parallelism: 132 },
  settings: { precision: "tf32" },
  kernel: () => ({ workspaceBytes }),
} as unknown as Runtime;

let buffers = 0;
const bufferOf = (floats: number): Buffer => ({ id: buffers++, bytes: 4 * floats, label: `b${buffers}` });
const whole = (buffer: Buffer): BufferSlice => ({ buffer, offset: 0, size: buffer.bytes });
const sliceOf = (buffer: Buffer, float: number, floats: number): BufferSlice => ({
  buffer,
  offset: 4 * float,
  size: 4 * floats,
});

interface Sizes {
  readonly m: number;
  readonly n: number;
  readonly k: number;
}
const sizes: Sizes = { m: 64, n: 32, k: 16 };

/** a · b into a new buffer. */
function multiply(
  a: BufferSlice,
  b: BufferSlice,
  { m, n, k }: Sizes = sizes,
  more: Partial<GemmCall["problem"]> = {},
): Call & { readonly result: Buffer } {
  const result = bufferOf(m * n);
  const problem: GemmCall["problem"] = {
    ...{ dtype: "f32", m, n, k },
    a: { slice: a, rowStride: k },
    b: { slice: b, rowStride: n },
    c: { slice: whole(result), rowStride: n },
    ...more,
  };
  return { op: "linear", work: { kind: "gemm", problem }, result };
}

const copyOf = (source: Buffer): Call => ({
  op: "copy",
  work: { kind: "copy", source: whole(source), target: whole(bufferOf(source.bytes / 4)) },
});

/** A kernel that writes buffers and reads nothing. */
const writing = (...written: readonly Buffer[]): Call => ({
  op: "write",
  work: {
    kind: "launch",
    kernel: { name: "write", parameters: written.map(() => "out") } as unknown as Kernel,
    blocks: 1,
    arguments: written.map(whole),
  },
});

const problemsOf = (calls: readonly Call[]): GemmCall["problem"][] =>
  calls.flatMap(({ work }) => (work.kind === "gemm" ? [work.problem] : []));
const batchesOf = (calls: readonly Call[]): number[] => problemsOf(calls).map(({ batch = 1 }) => batch);
const batch = (calls: readonly Call[], isTuned = true): readonly Call[] =>
  onCalls(batchGemms)(hopper, calls, isTuned);

const input = bufferOf(64 * 16);
/** Three weights of 16 × 32 with 32 floats between two of them. */
const weights = bufferOf(3 * 544);
const weightAt = (index: number): BufferSlice => sliceOf(weights, index * 544, 512);

test("projections of one input are one batched GEMM, and their readers find the results in its buffer", () => {
  const projections = [0, 1, 2].map((index) => multiply(whole(input), weightAt(index)));
  const calls = batch([...projections, ...projections.map(({ result }) => copyOf(result))]);
  const [problem] = problemsOf(calls);
  assert.deepEqual(batchesOf(calls), [3]);
  assert.deepEqual(
    [problem?.a.batchStride, problem?.b.batchStride, problem?.c.batchStride],
    [0, 544, 64 * 32],
  );
  const read = calls.slice(1).map((call) => accessesOf(call).find(({ reads }) => reads)?.slice);
  assert.deepEqual(
    read.map((slice) => [slice?.buffer, slice?.offset, slice?.size]),
    [0, 1, 2].map((index) => [problem?.c.slice.buffer, index * 64 * 32 * 4, 64 * 32 * 4]),
  );
});

test("members that come in descending order of their weights have a positive stride", () => {
  const calls = batch([2, 1, 0].map((index) => multiply(whole(input), weightAt(index))));
  assert.deepEqual(batchesOf(calls), [3]);
  assert.deepEqual(problemsOf(calls)[0]?.b.slice, { buffer: weights, offset: 0, size: 4 * (2 * 544 + 512) });
});

test("inputs that one call writes become slices of one buffer, in the order of the weights; those of several calls do not", () => {
  const inputs = [0, 1, 2].map(() => bufferOf(64 * 16));
  const gemms = [1, 0, 2].map((index) => multiply(whole(inputs[index]!), weightAt(index)));
  const calls = batch([writing(...inputs), ...gemms]);
  const [problem] = problemsOf(calls);
  assert.deepEqual(batchesOf(calls), [3]);
  assert.equal(problem?.a.batchStride, 64 * 16);
  assert.equal(problem?.a.slice.size, 3 * 64 * 16 * 4);
  assert.deepEqual(
    accessesOf(calls[0]!).flatMap(({ slice, writes }) => (writes ? [slice.offset] : [])),
    [0, 1, 2].map((index) => index * 64 * 16 * 4),
  );
  assert.deepEqual(batchesOf(batch([...inputs.map((input) => writing(input)), ...gemms])), [1, 1, 1]);
});

test("weight gradients of one input are one batched GEMM", () => {
  const gradients = [0, 1].map(() => bufferOf(64 * 32));
  const calls = batch([
    writing(...gradients),
    ...gradients.map((gradient) =>
      multiply(
        whole(input),
        whole(gradient),
        { m: 16, n: 32, k: 64 },
        {
          a: { slice: whole(input), rowStride: 16, isTransposed: true },
        },
      ),
    ),
  ]);
  assert.deepEqual(batchesOf(calls), [2]);
});

test("a bias joins with the stride of the biases", () => {
  const calls = batch(
    [0, 1].map((index) =>
      multiply(whole(input), weightAt(index), sizes, { bias: sliceOf(weights, index * 544 + 512, 32) }),
    ),
  );
  assert.deepEqual(
    problemsOf(calls).map(({ biasBatchStride }) => biasBatchStride),
    [544],
  );
});

test("GEMMs stay single if they differ in shape, have no common stride, depend on each other or fill the device", () => {
  const first = multiply(whole(input), weightAt(0));
  const cases: Readonly<Record<string, readonly Call[]>> = {
    "another shape": [first, multiply(whole(input), sliceOf(weights, 544, 256), { m: 64, n: 16, k: 16 })],
    "no stride": [first, multiply(whole(input), sliceOf(bufferOf(1024), 4, 512))],
    dependent: [first, multiply(sliceOf(first.result, 0, 64 * 16), weightAt(1))],
    large: [0, 1].map((index) => multiply(whole(input), weightAt(index), { m: 4096, n: 4096, k: 16 })),
    "added to C": [0, 1].map((index) => multiply(whole(input), weightAt(index), sizes, { beta: 1 })),
  };
  for (const [name, calls] of Object.entries(cases))
    assert.deepEqual(
      batchesOf(batch(calls)),
      calls.map(() => 1),
      name,
    );
});

test("two batches share their inputs: those that were moved for the first have the stride for the second", () => {
  const gradients = [0, 1, 2].map(() => bufferOf(64 * 32));
  const inputGradients = gradients.map((gradient, index) =>
    multiply(
      whole(gradient),
      weightAt(index),
      { m: 64, n: 16, k: 32 },
      {
        b: { slice: weightAt(index), rowStride: 32, isTransposed: true },
      },
    ),
  );
  const weightGradients = gradients.map((gradient) =>
    multiply(
      whole(gradient),
      whole(input),
      { m: 32, n: 16, k: 64 },
      {
        a: { slice: whole(gradient), rowStride: 32, isTransposed: true },
      },
    ),
  );
  const calls = batch([writing(...gradients), ...inputGradients, ...weightGradients]);
  assert.deepEqual(batchesOf(calls), [3, 3]);
});

test("members that write to descending addresses are put in order, if their inputs move", () => {
  const [gradients, weightGradients] = [[0, 1, 2].map(() => bufferOf(64 * 32)), bufferOf(3 * 544)];
  const calls = batch([
    writing(...gradients),
    ...[2, 1, 0].map((index) =>
      multiply(
        whole(gradients[index]!),
        whole(input),
        { m: 32, n: 16, k: 64 },
        {
          a: { slice: whole(gradients[index]!), rowStride: 32, isTransposed: true },
          c: { slice: sliceOf(weightGradients, index * 544, 512), rowStride: 16 },
        },
      ),
    ),
  ]);
  assert.deepEqual(batchesOf(calls), [3]);
  assert.equal(problemsOf(calls)[0]?.c.batchStride, 544);
});

test("a batch has the scratch memory that it needs as a whole", () => {
  const members = [0, 1].map((index) =>
    multiply(whole(input), weightAt(index), sizes, { scratch: whole(bufferOf(100)) }),
  );
  workspaceBytes = 4096;
  assert.deepEqual(
    problemsOf(batch(members)).map((problem) => problem.scratch?.size),
    [4096],
  );
  workspaceBytes = 0;
  assert.deepEqual(
    problemsOf(batch(members)).map((problem) => problem.scratch),
    [undefined],
  );
});

test("a buffer is part of one batch only", () => {
  const shared = [bufferOf(64 * 16), bufferOf(64 * 16)];
  const others = [bufferOf(64 * 16), bufferOf(64 * 16)];
  const more = bufferOf(3 * 544);
  const calls = batch([
    writing(...shared, ...others),
    ...shared.map((buffer, index) => multiply(whole(buffer), weightAt(index))),
    // Another shape, so a batch of its own, which would pair one of the buffers above with another one.
    ...[shared[0]!, others[0]!].map((buffer, index) =>
      multiply(whole(buffer), sliceOf(more, index * 544, 256), { m: 64, n: 16, k: 16 }),
    ),
  ]);
  assert.deepEqual(batchesOf(calls), [2, 1, 1]);
});

test("where GEMMs must round as in eager code, none is batched", () => {
  const projections = [0, 1, 2].map((index) => multiply(whole(input), weightAt(index)));
  assert.deepEqual(batchesOf(batch(projections, false)), [1, 1, 1]);
});
