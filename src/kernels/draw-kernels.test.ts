/** Row kernels that draw: each element gets the number of its index, for any layout. Only a GPU has them. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { withAlteredKernels } from "../../test/support/altered-kernels.js";
import { expectedNumbers } from "../../test/support/expected-numbers.js";
import {
  cudaMissing,
  openCpuKernelRuntime,
  openCudaKernelRuntime,
  put,
} from "../../test/support/kernel-runtime.js";
import { rejects } from "../../test/support/rejects.js";
import { sameBytes } from "../../test/support/same-bytes.js";
import { iterateElements, iterateRows, type Output, type RowKernel, type Stage, term } from "../ir/index.js";
import type { Runtime } from "../runtime/index.js";
import { rowCalls } from "./kernel-call.js";
import { encodeState } from "./random/index.js";
import { submit } from "./submit.js";

const state = { seed: 0x0123456789abcdefn, counter: 0x100000003n };
const drawn = term.load(0, "i32");

/** Stores the numbers of its draw. A row of them has a sum, so that threads share it. */
const kernels = {
  elements: kernelOf([{ per: "element" }], [{ kind: "store", output: 0, value: drawn }]),
  rows: kernelOf(
    [{ per: "element" }, { per: "row" }],
    [
      { kind: "store", output: 0, value: drawn },
      { kind: "reduce", op: "add", value: drawn },
      { kind: "store", output: 1, value: term.reduced(1, "i32") },
    ],
  ),
} as const;

function kernelOf(outputs: readonly Pick<Output, "per">[], stages: readonly Stage[]): RowKernel {
  return {
    ...{ name: "numbers", inputs: ["draw"], scalars: [], stages },
    outputs: outputs.map(({ per }) => ({ dtype: "i32", per })),
  };
}

interface Case {
  readonly shape: readonly number[];
  /** Of the draw, in numbers. */
  readonly strides: readonly number[];
}

/** Runs a kernel over a shape, and compares every number. */
function check(runtime: Runtime, kind: keyof typeof kernels, { shape, strides }: Case): void {
  const contiguous = shape.map((_, axis) =>
    shape.slice(axis + 1).reduce((product, size) => product * size, 1),
  );
  const elements = shape.reduce((product, size) => product * size, 1);
  const [columns = 1] = shape.slice(-1);
  const indices = Array.from({ length: elements }, (_, element) =>
    shape.reduce(
      (index, size, axis) => index + (Math.floor(element / contiguous[axis]!) % size) * strides[axis]!,
      0,
    ),
  );
  const numbers = expectedNumbers(state, Math.max(...indices) + 1);
  const expected = Int32Array.from(indices, (index) => numbers[index]!);
  const draw = put(runtime, encodeState(state), "draw");
  const out = put(runtime, new Int32Array(elements).fill(-1), "numbers");
  const sums = put(runtime, new Int32Array(elements / columns).fill(-1), "sums");
  const kernel = kernels[kind];
  const perRow = shape.map((_, axis) => (axis < shape.length - 1 ? contiguous[axis]! / columns : 0));
  const launch =
    kind === "rows"
      ? { operands: [draw, out, sums], iteration: iterateRows(shape, [strides, contiguous, perRow], 1) }
      : { operands: [draw, out], iteration: iterateElements(shape, [strides, contiguous]) };
  submit(runtime, rowCalls({ kernel, ...launch }));
  const what = `${kind} of [${shape}] with strides [${strides}]`;
  sameBytes(new Int32Array(runtime.read(out).buffer), expected, what);
  if (kind === "elements") return;
  const totals = new Int32Array(elements / columns);
  for (const [element, number] of expected.entries()) totals[Math.floor(element / columns)]! += number;
  sameBytes(new Int32Array(runtime.read(sums).buffer), totals, `the sums of ${what}`);
}

type NamedCase = readonly [keyof typeof kernels, Case];

const vectors: NamedCase = ["elements", { shape: [2052], strides: [1] }];
const gaps: NamedCase = ["elements", { shape: [9, 20], strides: [24, 1] }];
const pairs: NamedCase = ["rows", { shape: [5, 256], strides: [256, 1] }];
const unaligned: NamedCase = ["rows", { shape: [6, 37], strides: [37, 1] }];

const cases: Readonly<Record<string, readonly NamedCase[]>> = {
  "whole vectors, and a shorter last one": [vectors, ["elements", { shape: [1031], strides: [1] }]],
  "rows with gaps between them": [gaps],
  "another order of the elements": [["elements", { shape: [12, 7], strides: [1, 12] }]],
  "rows that a thread keeps in registers": [["rows", { shape: [5, 72], strides: [72, 1] }]],
  "rows whose neighbouring lanes share calls": [
    pairs,
    ["rows", { shape: [3, 136], strides: [136, 1] }],
    ["rows", { shape: [3, 132], strides: [136, 1] }],
    ["rows", { shape: [5, 640], strides: [640, 1] }],
  ],
  "long rows that begin in the middle of a call": [["rows", { shape: [3, 260], strides: [260, 1] }]],
  "rows that begin anywhere in a call": [unaligned],
  "rows of whole vectors that begin within one": [["rows", { shape: [6, 12], strides: [13, 1] }]],
  "rows of one number": [["rows", { shape: [11, 6], strides: [3, 0] }]],
  "rows that no register holds": [["rows", { shape: [2, 17_000], strides: [17_000, 1] }]],
};

describe("a kernel that draws", { skip: cudaMissing }, () => {
  const runtime = openCudaKernelRuntime();
  for (const [what, all] of Object.entries(cases))
    test(`has the numbers of each element's index: ${what}`, () => {
      for (const [kind, one] of all) check(runtime, kind, one);
    });

  for (const [what, from, to, [kind, one]] of [
    ["halves of words are swapped", "word & 0xffffu : word >> 16", "word >> 16 : word & 0xffffu", vectors],
    ["the second half of a call is its first", "index & 4 ? words.z : words.x", "words.x", vectors],
    [
      "both lanes of a pair make the same call",
      "isSecond ? index1 : index0",
      "index1 < 0 ? index1 : index0",
      pairs,
    ],
    ["a lane sends the half that it needs", "isSecond ? words.x : words.z", "words.x", pairs],
    ["a vector has the numbers of one call", "index >> 3 != call", "call < 0", unaligned],
    ["rows have no gaps", "(long long)index0 * stride0_0", "(long long)index0 * 20 + 0 * stride0_0", gaps],
  ] as const) {
    test(`red proof: ${what}`, () => {
      withAlteredKernels({ from, to }, (altered) =>
        assert.throws(() => check(altered, kind, one), { code: "ERR_ASSERTION" }),
      );
    });
  }
});

describe("kernels that draw are rejected", () => {
  test("by the CPU, which draws a mask instead", () => {
    const runtime = openCpuKernelRuntime();
    rejects(
      "UNSUPPORTED",
      () => check(runtime, "elements", { shape: [4], strides: [1] }),
      /Store the random numbers in memory first/,
    );
  });

  test("if they read a number at an index", () => {
    const at = kernelOf(
      [{ per: "element" }],
      [{ kind: "store", output: 0, value: term.load(0, "i32", term.position) }],
    );
    const runtime = openCpuKernelRuntime();
    const draw = put(runtime, encodeState(state), "draw");
    const out = put(runtime, new Int32Array(4), "numbers");
    const launch = {
      kernel: at,
      operands: [draw, out],
      iteration: iterateRows(
        [1, 4],
        [
          [4, 1],
          [4, 1],
        ],
        1,
      ),
    };
    rejects("BAD_ARGUMENT", () => submit(runtime, rowCalls(launch)), /a draw, at an index/);
  });
});
