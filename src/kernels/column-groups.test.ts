/** Column kernels together, in one launch or two: each has the bits that it has alone, whatever stands beside it. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { effort } from "../../test/support/effort.js";
import {
  cudaMissing,
  openCpuKernelRuntime,
  openCudaKernelRuntime,
} from "../../test/support/kernel-runtime.js";
import { sameBytes } from "../../test/support/same-bytes.js";
import { uploadAt } from "../../test/support/unaligned-memory.js";
import type { ColumnKernel, ReduceOp } from "../ir/index.js";
import { type Dtype, dtypes, narrowToBf16, narrowToF16, term } from "../ir/index.js";
import type { Runtime } from "../runtime/index.js";
import { backendOf, canGroupColumns } from "./backend.js";
import { columnScratchBytes, isSplitReduction } from "./codegen/cuda/combo/column-group.js";
import { type ColumnLaunch, columnCalls } from "./kernel-call.js";
import { submit } from "./submit.js";

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

/** Three values of one row, whose results stand apart, and of runs: as a head's weight gains, and biases of equal layers. */
const head: ColumnKernel = {
  ...{ name: "head", inputs: ["f16", "f32"], outputs: ["f32", "bf16", "f32"], scalars: [], op: "add" },
  values: [0.5, 1, 2].map((one) => term.mul(term.mul(term.load(0, "f32"), term.load(1, "f32")), one)),
  places: { step: 3 },
};
const apart: ColumnKernel = { ...sumOf("f32"), places: { step: 2, runs: { length: 3, between: 11 } } };

/** Reads what lies beside the present element, as far as that is inside its row. */
const beside: ColumnKernel = {
  ...{ name: "beside", inputs: ["f32"], outputs: ["f32"], scalars: [], op: "add" },
  values: [term.sub(term.load(0, "f32"), term.load(0, "f32", term.sub(0, term.min(term.position, 1))))],
};

const kernels: readonly ColumnKernel[] = [
  sumOf("f32"),
  sumOf("bf16"),
  sumOf("f16"),
  sumOf("f64", "mul"),
  sumOf("i32"),
  sumOf("u8", "max"),
  pulls,
  scaled,
  head,
  apart,
  beside,
];

interface Problem {
  readonly kernel: ColumnKernel;
  readonly rows: number;
  readonly columns: number;
  /** By how many elements a row is longer than its columns. */
  readonly gap: number;
  /** So many elements behind an aligned address its operands begin. */
  readonly offset: number;
  readonly scalar: number;
}

/** Aligned, and with nothing between the rows. */
const plain = (kernel: ColumnKernel, rows: number, columns: number): Problem => ({
  ...{ kernel, rows, columns, gap: 0, offset: 0, scalar: 0 },
});

const problems = fc.record<Problem>({
  kernel: fc.constantFrom(...kernels),
  rows: fc.oneof(fc.integer({ min: 0, max: 70 }), fc.constantFrom(1023, 1024, 1025, 2100, 3072)),
  columns: fc.oneof(fc.integer({ min: 0, max: 40 }), fc.constantFrom(64, 100)),
  gap: fc.constantFrom(0, 0, 1, 2, 3, 4, 8),
  offset: fc.constantFrom(0, 0, 1, 2, 4),
  scalar: fc.double({ min: -2, max: 2, noNaN: true }),
});

type Elements = ArrayBufferView & { readonly BYTES_PER_ELEMENT: number };

/** Numbers whose sums round, so that another order of additions would show. */
function valuesFor(dtype: Dtype, count: number, seed: number): Elements {
  const numbers = Float64Array.from({ length: count }, (_, index) => Math.sin(index * 1.7 + seed) * 3);
  if (dtype === "f64") return numbers.map((one) => 1 + one * 1e-3);
  if (dtype === "bf16") return narrowToBf16(Float32Array.from(numbers));
  if (dtype === "f16") return narrowToF16(Float32Array.from(numbers));
  if (dtype === "i32") return Int32Array.from(numbers, (one) => one * 1e9);
  if (dtype === "u8") return Uint8Array.from(numbers, (one) => Math.abs(one) * 80);
  return Float32Array.from(numbers);
}

/** How many elements an output has, those between its results included. */
function lengthOf({ places }: ColumnKernel, columns: number): number {
  const { step = 1, runs } = places ?? {};
  const last = Math.max(0, columns - 1);
  return 1 + (runs ? Math.floor(last / runs.length) * runs.between + (runs.length - 1) * step : last * step);
}

function launchOf(runtime: Runtime, { kernel, rows, columns, gap, offset, scalar }: Problem): ColumnLaunch {
  const isWide = (input: number): boolean => input < 2;
  const strides = kernel.inputs.map((_, input) =>
    isWide(input)
      ? ({ row: columns + gap, column: "unit" } as const)
      : ({ row: 1 + gap, column: "none" } as const),
  );
  const inputs = kernel.inputs.map((dtype, input) => {
    const count = rows * (isWide(input) ? columns + gap : 1 + gap);
    return uploadAt(runtime, valuesFor(dtype, Math.max(1, count), input), offset);
  });
  const outputs = kernel.outputs.map((dtype) =>
    uploadAt(runtime, valuesFor(dtype, lengthOf(kernel, columns), 9), offset),
  );
  return {
    ...{ kernel, rows, columns, strides, operands: [...inputs, ...outputs] },
    scalars: kernel.scalars.map(() => scalar),
  };
}

const resultsOf = (runtime: Runtime, { kernel, operands }: ColumnLaunch): Uint8Array[] =>
  operands.slice(kernel.inputs.length).map((one) => runtime.read(one));

function launchCombo(runtime: Runtime, launches: readonly ColumnLaunch[]): void {
  const bytes = columnScratchBytes(launches);
  // What memory held before must not matter.
  const scratch = bytes > 0 ? uploadAt(runtime, new Uint8Array(bytes).fill(0xff), 0) : undefined;
  submit(runtime, backendOf(runtime).lowerColumnGroup(launches, { scratch }));
}

/** Those of many rows are begun first, and joined with the others. */
function launchPdl(runtime: Runtime, launches: readonly ColumnLaunch[]): void {
  const early = launches.filter((one) => one.columns > 0 && isSplitReduction(one));
  if (early.length === 0) {
    launchCombo(runtime, launches);
    return;
  }
  const filled = (bytes: number) => uploadAt(runtime, new Uint8Array(bytes).fill(0xff), 0);
  const begun = { members: early, scratch: filled(columnScratchBytes(early)) };
  submit(runtime, backendOf(runtime).lowerPartials(begun, "columns"));
  // Another launch may be in between.
  filled(64);
  submit(
    runtime,
    backendOf(runtime).lowerColumnGroup(
      launches.filter((one) => !early.includes(one)),
      { begun },
    ),
  );
}

function compare(runtime: Runtime, group: readonly Problem[]): void {
  const run = (launch: (launches: readonly ColumnLaunch[]) => void): Uint8Array[][] =>
    runtime.step(() => {
      const launches = group.map((problem) => launchOf(runtime, problem));
      launch(launches);
      return launches.map((one) => resultsOf(runtime, one));
    });
  const alone = run((launches) => {
    for (const one of launches) submit(runtime, columnCalls(one));
  });
  const together = run((launches) => launchCombo(runtime, launches));
  const early = run((launches) => launchPdl(runtime, launches));
  for (const [index, { kernel, rows, columns }] of group.entries()) {
    for (const [place, bytes] of alone[index]!.entries()) {
      const what = `${kernel.name} of ${rows} × ${columns}, value ${place}`;
      sameBytes(together[index]![place]!, bytes, what);
      sameBytes(early[index]![place]!, bytes, `${what}, begun early`);
    }
  }
}

describe("on CUDA", { skip: cudaMissing }, () => {
  const runtime = openCudaKernelRuntime();

  test("any kernels over any rows and columns have the bits together that each has alone", () => {
    fc.assert(
      fc.property(fc.array(problems, { minLength: 1, maxLength: 8 }), (group) => compare(runtime, group)),
      { numRuns: effort({ quick: 3, thorough: 6 }) },
    );
  });

  test("gradients of a model's biases and norms have them, with rows of every count of partial results", () => {
    const [sum] = kernels;
    compare(runtime, [
      plain(sum!, 3072, 3),
      plain(pulls, 3072, 32),
      plain(sum!, 3072, 32),
      plain(sum!, 3072, 130),
      plain(pulls, 3072, 32),
      plain(sum!, 256, 384),
    ]);
  });

  test("so have rows about those that partial results come up with, and columns about those that threads read at once", () => {
    const [sums, halves] = [sumOf("f32"), sumOf("bf16")];
    compare(runtime, [
      ...[1023, 1024, 1025, 3072, 3073, 5000].map((rows) => plain(sums, rows, 8)),
      ...[1, 3, 250, 256, 257, 1024].map((columns) => plain(sums, 1040, columns)),
    ]);
    compare(runtime, [
      ...[1024, 3073, 5000].map((rows) => plain(pulls, rows, 20)),
      ...[1, 8, 250, 256, 257].map((columns) => plain(halves, 1040, columns)),
      ...[3, 256].map((columns) => plain(head, 1100, columns)),
      plain(sumOf("f16"), 3073, 256),
    ]);
  });

  test("so have rows that begin at odd addresses, or whose steps are odd, and results that stand apart", () => {
    const of = (kernel: ColumnKernel, gap: number, offset: number): Problem => ({
      ...plain(kernel, 1060, 24),
      gap,
      offset,
    });
    compare(
      runtime,
      [0, 1, 2, 4].flatMap((gap) =>
        [0, 1, 2].map((offset) => of(gap < 2 ? sumOf("bf16") : head, gap, offset)),
      ),
    );
    compare(
      runtime,
      [apart, beside, scaled, sumOf("u8", "max")].flatMap((kernel) => [of(kernel, 0, 0), of(kernel, 1, 1)]),
    );
  });

  test("without the scratch memory that they need nothing is sent", () => {
    runtime.step(() => {
      const launches = [plain(sumOf("f32"), 64, 8), plain(pulls, 1024, 8)].map((one) =>
        launchOf(runtime, one),
      );
      const needed = columnScratchBytes(launches);
      assert.equal(needed, 32 * 8 * 4 * 2, "of the second, two values");
      for (const scratch of [undefined, runtime.arena.allocate(needed - 1, "less")]) {
        assert.throws(
          () => submit(runtime, backendOf(runtime).lowerColumnGroup(launches, { scratch })),
          /need 2048 bytes of scratch memory for partials/,
        );
      }
      const [few, many] = launches;
      const less = runtime.arena.allocate(needed - 1, "less");
      assert.throws(
        () =>
          submit(runtime, backendOf(runtime).lowerPartials({ members: [many!], scratch: less }, "columns")),
        /need 2048 bytes/,
      );
      const scratch = runtime.arena.allocate(needed, "enough");
      assert.throws(
        () => submit(runtime, backendOf(runtime).lowerPartials({ members: [few!], scratch }, "columns")),
        /64 rows.*in one phase/,
      );
      assert.equal(columnScratchBytes(launches.slice(0, 1)), 0);
      submit(runtime, backendOf(runtime).lowerColumnGroup(launches.slice(0, 1), {}));
    });
  });

  test("red proof: the numbers tell another order of additions", () => {
    const values = valuesFor("f32", 3072, 0) as Float32Array;
    const downwards = values.reduce((sum, one) => Math.fround(sum + one), 0);
    const launch = plain(kernels[0]!, 3072, 1);
    const [found] = runtime.step(() => {
      const own = launchOf(runtime, launch);
      launchCombo(runtime, [own]);
      return resultsOf(runtime, own);
    });
    const [together] = new Float32Array(found!.slice().buffer);
    assert.ok(Math.abs(together! - downwards) < 1e-2);
    assert.notEqual(together, downwards);
  });

  test("more than a launch has arguments for are rejected before anything is sent", () => {
    const many = Array.from({ length: 60 }, () => pulls);
    assert.equal(canGroupColumns(runtime, many), false);
    assert.equal(canGroupColumns(runtime, many.slice(0, 12)), true);
    const four = { ...sumOf("f32"), outputs: Array<Dtype>(4).fill("f32") };
    const ofFour = Array.from({ length: 40 }, () => four);
    assert.equal(canGroupColumns(runtime, ofFour), false, "in the second launch");
    assert.equal(canGroupColumns(runtime, ofFour.slice(0, 25)), true);
    runtime.step(() => {
      const own = launchOf(runtime, plain(pulls, 3, 4));
      const launches = many.map(() => own);
      assert.throws(() => submit(runtime, backendOf(runtime).lowerColumnGroup(launches, {})), {
        code: "BAD_ARGUMENT",
      });
    });
  });
});

test("the CPU has one launch for each", () => {
  assert.equal(canGroupColumns(openCpuKernelRuntime(), [pulls]), false);
});
