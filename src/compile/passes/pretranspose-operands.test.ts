/** An operand of a large TF32 GEMM is transposed just before it, if that costs less than it saves. */

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

for (const [operand, more] of [
  ["b", {}],
  ["a", { m: 2048 }],
] as const) {
  test(`of a large weight gradient, the smaller operand is transposed just before it, here ${operand}`, () => {
    const before = weightGradient(more);
    const calls = pretransposeOperands(hopper, [before]);
    assert.deepEqual(
      calls.map(({ op, phase }) => [op, phase]),
      [
        ["transposed operand", "backward"],
        ["weightGradient", "backward"],
      ],
    );
    const [original, after] = [problemOf(before), problemOf(calls[1])];
    const other = operand === "a" ? "b" : "a";
    assert.deepEqual(after[other], original[other]);
    assert.deepEqual([after[operand].isTransposed, after[operand].rowStride], [operand === "b", 1024]);
    const accesses = accessesOf(calls[0]!).map(({ slice, writes }) => [slice, writes]);
    assert.deepEqual(accesses, [
      [original[operand].slice, false],
      [after[operand].slice, true],
    ]);
  });
}

test("padded rows are read with their stride", () => {
  const b = { slice: sliceOf((size + 8) * 1024), rowStride: size + 8 };
  const { work } = pretransposeOperands(hopper, [weightGradient({ b })])[0]!;
  assert.ok(work.kind === "launch");
  assert.deepEqual(work.arguments.slice(2, 5), [1024, size, size + 8]);
});

test("GEMMs that gain less than the copies cost, and those that gain nothing, keep their operands", () => {
  const kMajorA = { slice: sliceOf(size * 1024), rowStride: 1024 };
  const rejected: readonly (readonly [Runtime, Call])[] = [
    [hopper, weightGradient({ m: 768, n: 768, k: 8192 })],
    [hopper, weightGradient({ m: 10 })],
    [hopper, weightGradient({ m: 256, n: 256, k: 512 })],
    [hopper, weightGradient({ k: 1023 })],
    [hopper, weightGradient({ a: kMajorA })],
    [hopper, weightGradient({ b: { ...kMajorA, isTransposed: true } })],
    [hopper, weightGradient({ batch: 2 })],
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
