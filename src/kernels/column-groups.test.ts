/** Column kernels in one launch: each has the bits that it has alone, whatever stands beside it. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import {
  cudaMissing,
  openCpuKernelRuntime,
  openCudaKernelRuntime,
} from "../../test/support/kernel-runtime.js";
import { putAt } from "../../test/support/put-at.js";
import { sameBytes } from "../../test/support/same-bytes.js";
import type { Runtime } from "../runtime/index.js";
import { type Dtype, dtypes } from "./dtypes.js";
import { narrowToBf16 } from "./half.js";
import type { ColumnKernel, ReduceOp } from "./ir.js";
import { type ColumnLaunch, columnsTogether, launchColumns, launchColumnsTogether } from "./launch.js";
import { term } from "./term.js";

const sumOf = (dtype: Dtype, op: ReduceOp = "add"): ColumnKernel => ({
  name: `${op} of ${dtype}`,
  inputs: [dtype],
  outputs: [dtype],
  scalars: [],
  op,
  values: [term.load(0, dtypes[dtype].compute)],
});

/** What a norm's weight and bias gain: two values, and two inputs of one column. */
const pulls: ColumnKernel = {
  name: "pulls",
  inputs: ["f32", "f32", "f32", "f32"],
  outputs: ["f32", "f32"],
  scalars: [],
  op: "add",
  values: [
    term.mul(
      term.load(0, "f32"),
      term.mul(term.sub(term.load(1, "f32"), term.load(2, "f32")), term.load(3, "f32")),
    ),
    term.load(0, "f32"),
  ],
};

/** With a number of its own, and its places. */
const scaled: ColumnKernel = {
  name: "scaled",
  inputs: ["f64"],
  outputs: ["f64"],
  scalars: ["f64"],
  op: "add",
  values: [
    term.add(
      term.mul(term.load(0, "f64"), term.scalar(0, "f64")),
      term.convert(term.add(term.row, term.position), "f64"),
    ),
  ],
};

const kernels: readonly ColumnKernel[] = [
  sumOf("f32"),
  sumOf("bf16"),
  sumOf("f64", "mul"),
  sumOf("i32"),
  sumOf("u8", "max"),
  pulls,
  scaled,
];

interface Problem {
  readonly kernel: ColumnKernel;
  readonly rows: number;
  readonly columns: number;
  /** By how many elements a row is longer than its columns. */
  readonly gap: number;
  readonly scalar: number;
}

const problems = fc.record<Problem>({
  kernel: fc.constantFrom(...kernels),
  rows: fc.oneof(fc.integer({ min: 0, max: 70 }), fc.constantFrom(1023, 1024, 1025, 2100, 3072)),
  columns: fc.oneof(fc.integer({ min: 0, max: 40 }), fc.constantFrom(64, 100)),
  gap: fc.integer({ min: 0, max: 3 }),
  scalar: fc.double({ min: -2, max: 2, noNaN: true }),
});

type Elements = ArrayBufferView & { readonly BYTES_PER_ELEMENT: number };

/** Numbers whose sums round, so that another order of additions would show. */
function valuesFor(dtype: Dtype, count: number, seed: number): Elements {
  const numbers = Float64Array.from({ length: count }, (_, index) => Math.sin(index * 1.7 + seed) * 3);
  if (dtype === "f64") return numbers.map((one) => 1 + one * 1e-3);
  if (dtype === "bf16") return narrowToBf16(Float32Array.from(numbers));
  if (dtype === "i32") return Int32Array.from(numbers, (one) => one * 1e9);
  if (dtype === "u8") return Uint8Array.from(numbers, (one) => Math.abs(one) * 80);
  return Float32Array.from(numbers);
}

function launchOf(runtime: Runtime, { kernel, rows, columns, gap, scalar }: Problem): ColumnLaunch {
  const isWide = (input: number): boolean => input < 2;
  const strides = kernel.inputs.map((_, input) =>
    isWide(input)
      ? ({ row: columns + gap, column: "unit" } as const)
      : ({ row: 1 + gap, column: "none" } as const),
  );
  const inputs = kernel.inputs.map((dtype, input) => {
    const count = rows * (isWide(input) ? columns + gap : 1 + gap);
    return putAt(runtime, valuesFor(dtype, Math.max(1, count), input), 1);
  });
  const outputs = kernel.outputs.map((dtype) => putAt(runtime, valuesFor(dtype, Math.max(1, columns), 9), 1));
  return {
    ...{ kernel, rows, columns, strides, operands: [...inputs, ...outputs] },
    scalars: kernel.scalars.map(() => scalar),
  };
}

const resultsOf = (runtime: Runtime, { kernel, operands }: ColumnLaunch): Uint8Array[] =>
  operands.slice(kernel.inputs.length).map((one) => runtime.read(one));

function compare(runtime: Runtime, group: readonly Problem[]): void {
  const run = (launch: (launches: readonly ColumnLaunch[]) => void): Uint8Array[][] =>
    runtime.step(() => {
      const launches = group.map((problem) => launchOf(runtime, problem));
      launch(launches);
      return launches.map((one) => resultsOf(runtime, one));
    });
  const alone = run((launches) => {
    for (const one of launches) launchColumns(runtime, one);
  });
  const together = run((launches) => launchColumnsTogether(runtime, launches));
  for (const [index, { kernel, rows, columns }] of group.entries()) {
    for (const [place, bytes] of alone[index]!.entries())
      sameBytes(together[index]![place]!, bytes, `${kernel.name} of ${rows} × ${columns}, value ${place}`);
  }
}

describe("on CUDA", { skip: cudaMissing }, () => {
  const runtime = openCudaKernelRuntime();

  test("any kernels over any rows and columns have the bits together that each has alone", () => {
    fc.assert(
      fc.property(fc.array(problems, { minLength: 1, maxLength: 8 }), (group) => compare(runtime, group)),
      { numRuns: 8 },
    );
  });

  test("gradients of a model's biases and norms have them, with rows of every count of partial results", () => {
    const [sum] = kernels;
    const of = (kernel: ColumnKernel, rows: number, columns: number): Problem => ({
      ...{ kernel, rows, columns, gap: 0, scalar: 0 },
    });
    compare(runtime, [
      of(sum!, 3072, 3),
      of(pulls, 3072, 32),
      of(sum!, 3072, 32),
      of(sum!, 3072, 130),
      of(pulls, 3072, 32),
      of(sum!, 256, 384),
    ]);
  });

  test("red proof: the numbers tell another order of additions", () => {
    const values = valuesFor("f32", 3072, 0) as Float32Array;
    const downwards = values.reduce((sum, one) => Math.fround(sum + one), 0);
    const launch = { kernel: kernels[0]!, rows: 3072, columns: 1, gap: 0, scalar: 0 };
    const [found] = runtime.step(() => {
      const own = launchOf(runtime, launch);
      launchColumnsTogether(runtime, [own]);
      return resultsOf(runtime, own);
    });
    const [together] = new Float32Array(found!.slice().buffer);
    assert.ok(Math.abs(together! - downwards) < 1e-2);
    assert.notEqual(together, downwards);
  });

  test("more than a launch has arguments for are refused before anything is sent", () => {
    const many = Array.from({ length: 60 }, () => pulls);
    assert.equal(columnsTogether(runtime, many), false);
    assert.equal(columnsTogether(runtime, many.slice(0, 12)), true);
    runtime.step(() => {
      const own = launchOf(runtime, { kernel: pulls, rows: 3, columns: 4, gap: 0, scalar: 0 });
      const launches = many.map(() => own);
      assert.throws(() => launchColumnsTogether(runtime, launches), { code: "BAD_ARGUMENT" });
    });
  });
});

test("the CPU has one launch for each", () => {
  assert.equal(columnsTogether(openCpuKernelRuntime(), [pulls]), false);
});
