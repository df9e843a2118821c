/** Operands of large TF32 GEMMs are transposed just before them, if that costs less than it saves. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { onCalls } from "../../../test/support/rewritten.js";
import type { KernelSource } from "../../driver/index.js";
import type { Runtime } from "../../runtime/index.js";
import { accessesOf, type Buffer, type BufferSlice, type Call, type GemmCall } from "../program/program.js";
import { pretransposeOperands as pretransposeOperandsIn } from "./pretranspose-operands.js";

const pretransposeOperands = onCalls(pretransposeOperandsIn);

const on = (computeCapability: string, precision: string): Runtime =>
  ({
    device: { kind: "cuda", computeCapability, parallelism: 132 },
    settings: { precision },
    kernel: ({ name, parameters }: KernelSource) => ({ name, parameters, workspaceBytes: 0 }),
  }) as unknown as Runtime;
const hopper = on("9.0", "tf32");

let buffers = 0;
const sliceOf = (elements: number): BufferSlice => {
  buffers++;
  const buffer: Buffer = { id: buffers, bytes: 4 * elements, label: `b${buffers}` };
  return { buffer, offset: 0, size: buffer.bytes };
};

const size = 4096;

/** A weight gradient: both operands are MN-major. */
function weightGradient({ m = size, n = size, k = 1024, ...more }: Partial<GemmCall["problem"]> = {}): Call {
  const problem: GemmCall["problem"] = {
    ...{ dtype: "f32", m, n, k },
    a: { slice: sliceOf(m * k), rowStride: m, isTransposed: true },
    b: { slice: sliceOf(n * k), rowStride: n },
    c: { slice: sliceOf(m * n), rowStride: n },
    ...more,
  };
  return { op: "weightGradient", phase: "backward", work: { kind: "gemm", problem } };
}

function problemOf(call: Call | undefined): GemmCall["problem"] {
  assert.ok(call?.work.kind === "gemm");
  return call.work.problem;
}

test("both operands of a large weight gradient are transposed, in one launch just before it", () => {
  const before = weightGradient();
  const { a, b } = problemOf(before);
  const calls = pretransposeOperands(hopper, [before]);
  assert.deepEqual(
    calls.map(({ op, phase }) => [op, phase]),
    [
      ["transposed operands", "backward"],
      ["weightGradient", "backward"],
    ],
  );
  const after = problemOf(calls[1]);
  assert.deepEqual([after.a.isTransposed, after.a.rowStride], [undefined, 1024]);
  assert.deepEqual([after.b.isTransposed, after.b.rowStride], [true, 1024]);
  const accesses = accessesOf(calls[0]!);
  assert.deepEqual(
    accesses.filter(({ reads }) => reads).map(({ slice }) => slice),
    [a.slice, b.slice],
  );
  assert.deepEqual(
    accesses.filter(({ writes }) => writes).map(({ slice }) => slice),
    [after.a.slice, after.b.slice],
  );
});

test("an operand that is K-major stays as it is, and padded rows are read with their stride", () => {
  const b = { slice: sliceOf(size * 1024), rowStride: 1024, isTransposed: true };
  const a = { slice: sliceOf((size + 8) * 1024), rowStride: size + 8, isTransposed: true };
  const calls = pretransposeOperands(hopper, [weightGradient({ a, b })]);
  assert.deepEqual(problemOf(calls[1]).b, b);
  const { work } = calls[0]!;
  assert.ok(work.kind === "launch");
  assert.deepEqual(work.arguments.slice(2, 5), [1024, size, size + 8]);
});

test("GEMMs that gain less than the copies cost, and those that gain nothing, keep their operands", () => {
  const kMajorA = { slice: sliceOf(size * 1024), rowStride: 1024 };
  const rejected: readonly (readonly [Runtime, Call])[] = [
    [hopper, weightGradient({ n: 256 })],
    [hopper, weightGradient({ m: 256, n: 256, k: 512 })],
    [hopper, weightGradient({ k: 1023 })],
    [hopper, weightGradient({ a: kMajorA })],
    [hopper, weightGradient({ dtype: "bf16", resultDtype: "f32" })],
    [on("9.0", "bf16"), weightGradient()],
    [on("9.0", "f32"), weightGradient()],
    [on("8.0", "tf32"), weightGradient()],
  ];
  for (const [runtime, call] of rejected) {
    const calls = [call];
    assert.equal(pretransposeOperands(runtime, calls), calls);
  }
});
