/** Products made together: those that don't wait for each other, go together and leave a GPU idle; no others. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { onCalls } from "../../../test/support/rewritten.js";
import type { Runtime } from "../../runtime/index.js";
import { accessesOf, type Buffer, type BufferSlice, type Call, type GemmCall } from "../program/program.js";
import { groupGemms as groupGemmsIn } from "./group-gemms.js";

const groupGemms = onCalls(groupGemmsIn);

/** All that the pass asks of a runtime. */
const on = (parallelism: number, computeCapability = "9.0", precision = "f32"): Runtime =>
  ({
    device: { kind: "cuda", computeCapability, parallelism },
    settings: { precision },
  }) as unknown as Runtime;

const hopper = on(132);

let buffers = 0;
const bufferOf = (floats: number): Buffer => ({ id: buffers++, bytes: 4 * floats, label: `b${buffers}` });
const whole = (buffer: Buffer): BufferSlice => ({ buffer, offset: 0, size: buffer.bytes });

/** leftᵀ · right over all rows: a weight gradient. */
function overRows(
  left: Buffer,
  right: Buffer,
  m: number,
  n: number,
  k = 3072,
): Call & { readonly result: Buffer } {
  const result = bufferOf(m * n);
  const problem: GemmCall["problem"] = {
    ...{ dtype: "f32", m, n, k },
    a: { slice: whole(left), rowStride: m, isTransposed: true },
    b: { slice: whole(right), rowStride: n },
    c: { slice: whole(result), rowStride: n },
  };
  return { op: "weightGradient", work: { kind: "gemm", problem }, result };
}

const copyOf = (source: Buffer): Call & { readonly result: Buffer } => {
  const result = bufferOf(source.bytes / 4);
  return { op: "copy", work: { kind: "copy", source: whole(source), target: whole(result) }, result };
};

const sizesOf = (calls: readonly Call[]): number[] =>
  calls.map(({ work }) => (work.kind === "grouped-gemm" ? work.problems.length : 1));

const [wide, narrow] = [bufferOf(3072 * 1024), bufferOf(3072 * 256)];

test("weight gradients of two layers are one launch, behind all that they wait for", () => {
  const made = copyOf(narrow);
  const products = [
    overRows(wide, narrow, 1024, 256),
    overRows(narrow, wide, 256, 1024),
    overRows(wide, made.result, 1024, 256),
    overRows(made.result, wide, 256, 1024),
  ];
  const calls = groupGemms(hopper, [...products.slice(0, 2), made, ...products.slice(2)]);
  assert.deepEqual(sizesOf(calls), [1, 4]);
  assert.equal(calls[0], made);
  assert.deepEqual(
    accessesOf(calls[1]!).flatMap(({ slice, writes }) => (writes ? [slice.buffer] : [])),
    products.map(({ result }) => result),
  );
});

test("a product that reads another's result stays behind it, and one whose operand is written in between before that", () => {
  const first = overRows(wide, narrow, 1024, 256);
  const needing = overRows(narrow, first.result, 256, 256, 1024);
  assert.deepEqual(sizesOf(groupGemms(hopper, [first, needing])), [1, 1]);
  // A square one: of the same form as the first, so that one launch could make both.
  const square = overRows(bufferOf(256 * 256), bufferOf(256 * 256), 256, 256, 256);
  const chained = overRows(square.result, square.result, 256, 256, 256);
  assert.deepEqual(sizesOf(groupGemms(hopper, [square, chained])), [1, 1]);
  const overwriting: Call = { op: "fill", work: { kind: "fill", target: whole(narrow), byte: 0 } };
  const second = overRows(wide, narrow, 1024, 256);
  assert.deepEqual(sizesOf(groupGemms(hopper, [first, overwriting, second])), [1, 1, 1]);
});

test("what follows on a product waits with it until it is needed", () => {
  const [first, second] = [overRows(wide, narrow, 1024, 256), overRows(narrow, wide, 256, 1024)];
  const [following, between] = [copyOf(first.result), copyOf(narrow)];
  const third = overRows(between.result, wide, 256, 1024);
  const last = copyOf(following.result);
  const calls = groupGemms(hopper, [first, following, second, between, third, last]);
  assert.deepEqual(sizesOf(calls), [1, 3, 1, 1]);
  assert.deepEqual([calls[0], ...calls.slice(2)], [between, following, last]);
});

test("products that fill the device need no company, and those that can't go together get none", () => {
  const large = () => overRows(bufferOf(64 * 8192), bufferOf(64 * 8192), 8192, 8192, 64);
  assert.deepEqual(sizesOf(groupGemms(hopper, [large(), large()])), [1, 1]);
  const [first, shorter] = [overRows(wide, narrow, 1024, 256), overRows(wide, narrow, 1024, 256, 2048)];
  assert.deepEqual(sizesOf(groupGemms(hopper, [first, shorter])), [1, 1]);
});

test("no more than eight become one, and a group that has enough to do takes no more", () => {
  const small = () => overRows(narrow, narrow, 256, 256);
  assert.deepEqual(sizesOf(groupGemms(hopper, Array.from({ length: 11 }, small))), [8, 3]);
  const middle = () => overRows(wide, wide, 1024, 1024);
  assert.deepEqual(sizesOf(groupGemms(hopper, [middle(), middle(), middle()])), [2, 1]);
});

test("in float32 a group that has enough to do takes more until its last wave is nearly full", () => {
  // Tiles of 64 × 64: 144, 144, 36 and 108 of a layer, for 132 multiprocessors.
  const shapes = [
    [1536, 384],
    [384, 1536],
    [384, 384],
    [384, 1152],
  ] as const;
  const layer = () => shapes.map(([m, n]) => overRows(bufferOf(64 * m), bufferOf(64 * n), m, n, 64));
  const calls = [...layer(), ...layer(), ...layer()];
  // 756 tiles are 5.73 waves, the next 396 are 3.
  assert.deepEqual(sizesOf(groupGemms(hopper, calls)), [7, 3, 2]);
});

test("where products are a library's, nothing changes", () => {
  const calls = [overRows(wide, narrow, 1024, 256, 512), overRows(wide, narrow, 1024, 256, 512)];
  for (const runtime of [on(132, "8.0"), on(132, "9.0", "tf32")])
    assert.deepEqual(groupGemms(runtime, calls), calls);
});

test("weight gradients of TF32 and of half floats go together too, without the library's scratch memory and algorithm", () => {
  const group = [1, 2].map(() => {
    const call = overRows(wide, narrow, 1024, 256);
    assert.ok(call.work.kind === "gemm");
    const scratch = whole(bufferOf(1024));
    return { ...call, work: { ...call.work, problem: { ...call.work.problem, scratch, algorithm: 3 } } };
  });
  const halves = group.map((call) => ({
    ...call,
    work: { ...call.work, problem: { ...call.work.problem, dtype: "bf16", resultDtype: "f32" } as const },
  }));
  for (const [runtime, calls] of [
    [on(132, "9.0", "tf32"), group],
    [on(132, "9.0", "bf16"), halves],
  ] as const) {
    assert.deepEqual(groupGemms(runtime, calls, false), calls, "eager code's bits are asked for");
    const [made, ...others] = groupGemms(runtime, calls);
    assert.deepEqual(others, []);
    assert.ok(made?.work.kind === "grouped-gemm");
    for (const problem of made.work.problems) {
      assert.equal(problem.scratch, undefined);
      assert.equal(problem.algorithm, undefined);
    }
  }
});
