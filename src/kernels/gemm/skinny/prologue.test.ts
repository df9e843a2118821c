/** Skinny GEMMs whose A a row kernel computes in their launch. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { Runtime } from "holdfast/internals";
import { withAlteredKernels } from "../../../../test/support/altered-kernels.js";
import { encodeFloats } from "../../../../test/support/encoded-values.js";
import { cudaMissing, openCudaKernelRuntime, put } from "../../../../test/support/kernel-runtime.js";
import { iterateRows, type RowKernel, term } from "../../../ir/index.js";
import type { Storage } from "../../../runtime/index.js";
import { submit } from "../../submit.js";
import { lowerSkinnyGemms, skinnyPrologueCandidates } from "./launch.js";
import type { Prologue } from "./prologue.js";

const bf16 = { dtype: "bf16", per: "element" } as const;
const sum = term.load(2, "f32");

/** The sum of two rows, which is stored and read again; and the sum times its largest element, which is A. */
const scaledSum: RowKernel = {
  ...{ name: "scaledSum", inputs: ["bf16", "bf16", "bf16"], outputs: [bf16, bf16], scalars: [] },
  stages: [
    { kind: "store", output: 0, value: term.add(term.load(0, "f32"), term.load(1, "f32")) },
    { kind: "reduce", op: "max", value: sum },
    { kind: "store", output: 1, value: term.mul(sum, term.reduced(1, "f32")) },
  ],
};

/** Small integers, whose products and sums are exact. */
const small = (index: number): number => ((index * 7 + Math.floor(index / 11)) % 3) - 1;
const values = (count: number, first: number): number[] =>
  Array.from({ length: count }, (_, index) => small(first + index));

interface Sizes {
  readonly k: number;
  /** The columns of each GEMM. */
  readonly n: readonly number[];
}

/** Computes the GEMMs with every config, on one SM, so that a CTA has several tiles. */
function check(runtime: Runtime, { k, n: columns }: Sizes): number {
  const halves = (numbers: readonly number[], label: string): Storage =>
    put(runtime, encodeFloats(numbers, "bf16"), label);
  const [x, y] = [values(k, 0), values(k, 5)];
  const added = x.map((value, index) => value + y[index]!);
  const activations = added.map((value) => value * Math.max(...added));
  let configs = 0;
  const same = (storage: Storage, expected: readonly number[], name: string): void =>
    assert.deepEqual(
      runtime.read(storage),
      new Uint8Array(encodeFloats(expected, "bf16").buffer),
      `${name} should be ${expected.slice(0, 4)}…`,
    );
  runtime.step(() => {
    for (let config = 0; ; config++) {
      const stored = halves(new Array(k).fill(9), "sum");
      const gemms = columns.map((n, gemm) => {
        const weights = values(n * k, 3 * gemm);
        const c = halves(new Array(n).fill(9), "c");
        const product = Array.from({ length: n }, (_, row) =>
          activations.reduce((total, value, e) => total + value * weights[row * k + e]!, 0),
        );
        const b = { storage: halves(weights, "b"), rowStride: k, isTransposed: true };
        const problem = {
          ...({ dtype: "bf16", m: 1, n, k, a: { storage: b.storage, rowStride: k }, b } as const),
          c: { storage: c, rowStride: n },
          prefetchesB: config % 2 === 0,
        };
        return { problem, c, product };
      });
      const problems = gemms.map(({ problem }) => problem);
      const prologue: Prologue = {
        ...{ kernel: scaledSum, iteration: iterateRows([1, k], new Array(5).fill([k, 1]), 1), scalars: [] },
        operands: [halves(x, "x"), halves(y, "y"), stored, stored, undefined],
        output: 1,
      };
      const found = skinnyPrologueCandidates(runtime, problems, prologue)[config];
      if (!found) break;
      configs++;
      const device = { ...runtime.device, parallelism: 1 };
      submit(runtime, [lowerSkinnyGemms({ device }, problems, found, "gemm", prologue)]);
      same(stored, added, "the sum");
      for (const { c, product } of gemms) same(c, product, "C");
    }
  });
  return configs;
}

/** K is part of a warp's last step. */
const odd: Sizes = { k: 104, n: [21] };

describe("a skinny GEMM with a prologue", { skip: cudaMissing }, () => {
  const runtime = cudaMissing ? undefined! : openCudaKernelRuntime({ precision: "bf16" });

  test("computes A, stores the row kernel's other output, and multiplies", () => {
    assert.ok(check(runtime, odd) > 1);
    assert.ok(check(runtime, { k: 1160, n: [330, 16, 8] }) > 1);
  });

  for (const { fault, from, to } of [
    { fault: "no CTA stores the other output", from: "blockIdx.x == 0u", to: "false" },
    {
      fault: "A does not end with zeros",
      from: "activations + vector * 16) = make_uint4(0, 0, 0, 0)",
      to: "activations + vector * 16) = make_uint4(~0u, ~0u, ~0u, ~0u)",
    },
  ]) {
    test(`red proof: it is found if ${fault}`, () => {
      withAlteredKernels({ from, to, precision: "bf16" }, (altered) =>
        assert.throws(() => check(altered, odd), /should be/),
      );
    });
  }
});
