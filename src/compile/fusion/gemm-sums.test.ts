/** Which GEMMs and additions become one sum of products, and which stay. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { onCalls } from "../../../test/support/rewritten.js";
import { bufferOf, contiguous, elementwise, type View } from "../../../test/support/row-calls.js";
import { term } from "../../ir/index.js";
import type { Runtime } from "../../runtime/index.js";
import { accessesOf, type Call, type GemmCall, type GemmSumCall } from "../program/program.js";
import { type FusedSum, fuseGemmSums } from "./gemm-sums.js";

const hopper = {
  device: { kind: "cuda", computeCapability: "9.0", parallelism: 132 },
  settings: { precision: "bf16" },
} as unknown as Runtime;

const fuseIf = (isFaster: (candidate: FusedSum) => boolean) => (calls: readonly Call[]) =>
  onCalls(fuseGemmSums)(hopper, calls, () => isFaster);
const fuse = fuseIf(() => true);

const [m, n] = [4096, 512];
type Problem = GemmCall["problem"];

const half = (label: string, shape: readonly number[], options = {}): View =>
  bufferOf(shape, { dtype: "bf16", label, ...options });

/** A product of this K, to a result. */
function product(k: number, c: View, more: Partial<Problem> = {}): Call {
  const [a, b] = [half("a", [m, k]), half("b", [n, k])];
  const problem: Problem = {
    ...{ dtype: "bf16", m, n, k },
    a: { slice: a.slice, rowStride: k },
    b: { slice: b.slice, rowStride: k, isTransposed: true },
    c: { slice: c.slice, rowStride: n },
    ...more,
  };
  return { op: "linear", work: { kind: "gemm", problem } };
}

const result = (label = "c"): View => half(label, [m, n]);
const addition = (one: View, other: View, to: View): Call => elementwise("add", term.add, [one, other], to);
/** Reads a matrix in an order that no product has. */
const reader = (of: View): Call =>
  elementwise("read", (x) => x, [{ ...of, shape: [n, m], strides: [1, n] }], {
    ...result("other"),
    shape: [n, m],
    strides: contiguous([n, m]),
  });

const opsOf = (calls: readonly Call[]): string[] => calls.map(({ op, work }) => `${op}: ${work.kind}`);
const operandOf = ({ work }: Call, name: "a" | "b"): View["slice"] => (work as GemmCall).problem[name].slice;

function sumOf(call: Call | undefined): GemmSumCall {
  assert.equal(call?.work.kind, "gemm-sum");
  return call!.work as GemmSumCall;
}

test("a GEMM that adds to a smaller one is one sum: the larger K comes first, with the bias", () => {
  const c = result();
  const bias = half("bias", [n]);
  const calls = [
    product(16, c, { bias: bias.slice, scratch: half("scratch", [8]).slice, algorithm: 3 }),
    product(896, c, { beta: 1 }),
  ];
  const [only, ...others] = fuse(calls);
  assert.deepEqual(others, []);
  const { problem, addends } = sumOf(only);
  assert.deepEqual(
    [problem.k, problem.beta, problem.bias, problem.scratch, problem.algorithm],
    [896, 0, bias.slice, undefined, undefined],
  );
  assert.deepEqual(addends, [
    {
      k: 16,
      a: { slice: operandOf(calls[0]!, "a"), rowStride: 16 },
      b: { slice: operandOf(calls[0]!, "b"), rowStride: 16, isTransposed: true },
    },
  ]);
  const accesses = accessesOf(only!);
  assert.deepEqual(
    accesses.filter(({ writes }) => writes).map(({ slice, reads }) => [slice, reads]),
    [[c.slice, false]],
  );
  assert.equal(accesses.length, 6);
});

test("sums of sums are one sum, also through additions in place and to another array", () => {
  const [c, d, e, total] = [result("c"), result("d"), result("e"), result("total")];
  const calls = [
    product(16, c),
    product(128, c, { beta: 1 }),
    product(16, d),
    product(64, d, { beta: 1 }),
    addition(c, d, c),
    product(256, e),
    addition(c, e, total),
    reader(total),
  ];
  const fused = fuse(calls);
  assert.deepEqual(opsOf(fused), ["linear + add: gemm-sum", "read: row"]);
  const { problem, addends } = sumOf(fused[0]);
  assert.deepEqual([problem.k, ...addends.map(({ k }) => k)], [256, 128, 64, 16, 16]);
  assert.deepEqual(problem.c, { slice: total.slice, rowStride: n });
});

test("what is not faster stays; the selection is asked about the longest sum, with its GEMMs and additions", () => {
  const [c, d] = [result("c"), result("d")];
  const calls = [product(16, c), product(128, c, { beta: 1 }), product(256, d), addition(c, d, c)];
  const asked: FusedSum[] = [];
  const kept = fuseIf((candidate) => {
    asked.push(candidate);
    return false;
  })(calls);
  assert.deepEqual(kept, calls);
  assert.deepEqual(
    asked.map(({ gemms, additions }) => [gemms.length, additions]),
    [[3, [calls[3]]]],
  );
});

describe("nothing changes", () => {
  const unchanged = (calls: readonly Call[]): void => assert.deepEqual(opsOf(fuse(calls)), opsOf(calls));
  const [c, d, total] = [result("c"), result("d"), result("total")];

  test("if another call reads a product", () => {
    unchanged([product(16, c), reader(c), product(128, c, { beta: 1 })]);
    unchanged([product(64, c), product(128, d), addition(c, d, total), reader(c)]);
  });
  test("if an operand of a product is overwritten before the sum", () => {
    const first = product(16, c);
    const overwrite: Call = { op: "fill", work: { kind: "fill", target: operandOf(first, "a"), byte: 0 } };
    unchanged([first, overwrite, product(128, c, { beta: 1 })]);
  });
  test("if the sum would overwrite an operand of a product", () => {
    const first = product(n, c);
    unchanged([first, product(128, d), addition(c, d, { ...total, slice: operandOf(first, "a") })]);
  });
  test("if both products have a bias", () => {
    const bias = { bias: half("bias", [n]).slice };
    unchanged([product(64, c, bias), product(128, d, bias), addition(c, d, total)]);
  });
  test("if a product is in persistent memory, where its value remains", () => {
    const kept = half("kept", [m, n], { address: 4096 });
    unchanged([product(64, kept), product(128, d), addition(kept, d, total)]);
  });
  test("if the results are f32, a product is scaled, or one side of an addition is no product", () => {
    const wide = bufferOf([m, n]);
    unchanged([
      product(16, wide, { resultDtype: "f32" }),
      product(128, wide, { resultDtype: "f32", beta: 1 }),
    ]);
    unchanged([product(16, c, { alpha: 2 }), product(128, c, { beta: 1 })]);
    unchanged([product(64, c), addition(c, half("x", [m, n]), total)]);
    unchanged([product(64, c), addition(c, c, total)]);
  });
  test("if a kernel does something else with the two results", () => {
    unchanged([product(64, c), product(128, d), elementwise("mul", term.mul, [c, d], total)]);
  });
});
