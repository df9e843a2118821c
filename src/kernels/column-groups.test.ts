/** Groups of column kernels in one launch or two: each kernel has the bits of a launch of its own, in every group. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { effort } from "../../test/support/effort.js";
import {
  cudaMissing,
  openCpuKernelRuntime,
  openCudaKernelRuntime,
} from "../../test/support/kernel-runtime.js";
import { keepLongest } from "../../test/support/longest-values.js";
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

/** The gradients of a norm's weight and bias: two values, and two inputs with one column. */
const normGradients: ColumnKernel = {
  name: "norm gradients",
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

/** With a scalar, positions and row indices. */
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

/** Strided outputs, and outputs in runs: like a head's weight gradient, and the biases of equal layers. */
const head: ColumnKernel = {
  ...{ name: "head", inputs: ["f16", "f32"], outputs: ["f32", "bf16", "f32"], scalars: [], op: "add" },
  values: [0.5, 1, 2].map((factor) => term.mul(term.mul(term.load(0, "f32"), term.load(1, "f32")), factor)),
  outputLayout: { stride: 3 },
};
const strided: ColumnKernel = {
  ...sumOf("f32"),
  outputLayout: { stride: 2, runs: { length: 3, runStride: 11 } },
};

/** Subtracts the previous element of the row. */
const difference: ColumnKernel = {
  ...{ name: "difference", inputs: ["f32"], outputs: ["f32"], scalars: [], op: "add" },
  values: [term.sub(term.load(0, "f32"), term.load(0, "f32", term.sub(0, term.min(term.position, 1))))],
};

const kernels: readonly ColumnKernel[] = [
  sumOf("f32"),
  sumOf("bf16"),
  sumOf("f16"),
  sumOf("f64", "mul"),
  sumOf("i32"),
  sumOf("u8", "max"),
  normGradients,
  scaled,
  head,
  strided,
  difference,
];

interface Problem {
  readonly kernel: ColumnKernel;
  readonly rows: number;
  readonly columns: number;
  /** By how many elements a row is longer than its columns. */
  readonly gap: number;
  /** The distance of its operands from an aligned address, in elements. */
  readonly offset: number;
  readonly scalar: number;
}

/** Aligned, with contiguous rows. */
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

const valuesFor = keepLongest(makeValues);

/** Numbers whose sums round, so that another order of additions gives other bits. */
function makeValues(dtype: Dtype, count: number, seed: number) {
  const numbers = Float64Array.from({ length: count }, (_, index) => Math.sin(index * 1.7 + seed) * 3);
  if (dtype === "f64") return numbers.map((number) => 1 + number * 1e-3);
  if (dtype === "bf16") return narrowToBf16(Float32Array.from(numbers));
  if (dtype === "f16") return narrowToF16(Float32Array.from(numbers));
  if (dtype === "i32") return Int32Array.from(numbers, (number) => number * 1e9);
  if (dtype === "u8") return Uint8Array.from(numbers, (number) => Math.abs(number) * 80);
  return Float32Array.from(numbers);
}

/** The number of elements of an output, including those between its results. */
function lengthOf({ outputLayout }: ColumnKernel, columns: number): number {
  const { stride: step = 1, runs } = outputLayout ?? {};
  const last = Math.max(0, columns - 1);
  return (
    1 + (runs ? Math.floor(last / runs.length) * runs.runStride + (runs.length - 1) * step : last * step)
  );
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
  operands.slice(kernel.inputs.length).map((item) => runtime.read(item));

function launchCombo(runtime: Runtime, launches: readonly ColumnLaunch[]): void {
  const bytes = columnScratchBytes(launches);
  // The old contents of memory must not matter.
  const scratch = bytes > 0 ? uploadAt(runtime, new Uint8Array(bytes).fill(0xff), 0) : undefined;
  submit(runtime, backendOf(runtime).lowerColumnGroup(launches, { scratch }));
}

/** Kernels with many rows run their first phase earlier; the group combines their partials. */
function launchPdl(runtime: Runtime, launches: readonly ColumnLaunch[]): void {
  const early = launches.filter((launch) => launch.columns > 0 && isSplitReduction(launch));
  if (early.length === 0) {
    launchCombo(runtime, launches);
    return;
  }
  const filled = (bytes: number) => uploadAt(runtime, new Uint8Array(bytes).fill(0xff), 0);
  const earlier = { members: early, scratch: filled(columnScratchBytes(early)) };
  submit(runtime, backendOf(runtime).lowerPartials(earlier, "columns"));
  // Another launch may be in between.
  filled(64);
  submit(
    runtime,
    backendOf(runtime).lowerColumnGroup(
      launches.filter((launch) => !early.includes(launch)),
      { earlier: earlier },
    ),
  );
}

function compare(runtime: Runtime, group: readonly Problem[]): void {
  const run = (launch: (launches: readonly ColumnLaunch[]) => void): Uint8Array[][] =>
    runtime.step(() => {
      const launches = group.map((problem) => launchOf(runtime, problem));
      launch(launches);
      return launches.map((launch) => resultsOf(runtime, launch));
    });
  const separate = run((launches) => {
    for (const launch of launches) submit(runtime, columnCalls(launch));
  });
  const grouped = run((launches) => launchCombo(runtime, launches));
  const early = run((launches) => launchPdl(runtime, launches));
  for (const [index, { kernel, rows, columns }] of group.entries()) {
    for (const [value, bytes] of separate[index]!.entries()) {
      const what = `${kernel.name} of ${rows} × ${columns}, value ${value}`;
      sameBytes(grouped[index]![value]!, bytes, what);
      sameBytes(early[index]![value]!, bytes, `${what}, first phase earlier`);
    }
  }
}

describe("on CUDA", { skip: cudaMissing }, () => {
  const runtime = openCudaKernelRuntime();

  test("random kernels have the same bits in a group as in separate launches", () => {
    fc.assert(
      fc.property(fc.array(problems, { minLength: 1, maxLength: 8 }), (group) => compare(runtime, group)),
      { numRuns: effort({ quick: 1, thorough: 6 }) },
    );
  });

  test("bias and norm gradients have the same bits in a group, with every number of partials", () => {
    const [sum] = kernels;
    compare(runtime, [
      plain(sum!, 3072, 3),
      plain(normGradients, 3072, 32),
      plain(sum!, 3072, 32),
      plain(sum!, 3072, 130),
      plain(normGradients, 3072, 32),
      plain(sum!, 256, 384),
    ]);
  });

  test("numbers of rows around those of partials, and of columns around vector widths, have the same bits", () => {
    const [sums, halves] = [sumOf("f32"), sumOf("bf16")];
    compare(runtime, [
      ...effort({
        quick: [1023, 1024, 1025, 3073],
        thorough: [1023, 1024, 1025, 3072, 3073, 5000],
      }).map((rows) => plain(sums, rows, 8)),
      ...effort({ quick: [1, 250, 256, 257], thorough: [1, 3, 250, 256, 257, 1024] }).map((columns) =>
        plain(sums, 1040, columns),
      ),
    ]);
    compare(runtime, [
      ...effort({ quick: [1024, 3073], thorough: [1024, 3073, 5000] }).map((rows) =>
        plain(normGradients, rows, 20),
      ),
      ...effort({ quick: [8, 257], thorough: [1, 8, 250, 256, 257] }).map((columns) =>
        plain(halves, 1040, columns),
      ),
      ...effort({ quick: [3], thorough: [3, 256] }).map((columns) => plain(head, 1100, columns)),
      plain(sumOf("f16"), 3073, effort({ quick: 8, thorough: 256 })),
    ]);
  });

  test("many rows of few columns, which 64 to 256 blocks share, have the same bits", () => {
    compare(runtime, [
      plain(sumOf("f32"), 16_400, 3),
      ...effort({
        quick: [],
        thorough: [plain(normGradients, 33_000, 24), plain(sumOf("bf16"), 33_000, 160)],
      }),
      plain(sumOf("bf16"), 65_600, 2),
      ...effort({
        quick: [],
        thorough: [plain(normGradients, 65_600, 33), plain(sumOf("f32"), 65_537, 128)],
      }),
    ]);
  });

  test("unaligned rows, odd strides and strided outputs have the same bits", () => {
    const of = (kernel: ColumnKernel, gap: number, offset: number): Problem => ({
      ...plain(kernel, 1060, 24),
      gap,
      offset,
    });
    compare(
      runtime,
      [0, 1, 2, 4].flatMap((gap, index) =>
        [0, 1, 2]
          .filter((offset) => effort({ quick: (index + offset) % 2 === 1, thorough: true }))
          .map((offset) => of(gap < 2 ? sumOf("bf16") : head, gap, offset)),
      ),
    );
    compare(
      runtime,
      [strided, difference, scaled, sumOf("u8", "max")].flatMap((kernel) => [
        ...effort({ quick: [], thorough: [of(kernel, 0, 0)] }),
        of(kernel, 1, 1),
      ]),
    );
  });

  test("a launch without enough scratch memory is rejected", () => {
    runtime.step(() => {
      const launches = [plain(sumOf("f32"), 64, 8), plain(normGradients, 1024, 8)].map((problem) =>
        launchOf(runtime, problem),
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

  test("red proof: another order of additions gives other bits", () => {
    const values = valuesFor("f32", 3072, 0) as Float32Array;
    const downwards = values.reduce((sum, value) => Math.fround(sum + value), 0);
    const launch = plain(kernels[0]!, 3072, 1);
    const [actual] = runtime.step(() => {
      const copy = launchOf(runtime, launch);
      launchCombo(runtime, [copy]);
      return resultsOf(runtime, copy);
    });
    const [reduced] = new Float32Array(actual!.slice().buffer);
    assert.ok(Math.abs(reduced! - downwards) < 1e-2);
    assert.notEqual(reduced, downwards);
  });

  test("too many arguments are rejected before a launch", () => {
    const many = Array.from({ length: 60 }, () => normGradients);
    assert.equal(canGroupColumns(runtime, many), false);
    assert.equal(canGroupColumns(runtime, many.slice(0, 12)), true);
    const four = { ...sumOf("f32"), outputs: Array<Dtype>(4).fill("f32") };
    const ofFour = Array.from({ length: 40 }, () => four);
    assert.equal(canGroupColumns(runtime, ofFour), false, "in the second launch");
    assert.equal(canGroupColumns(runtime, ofFour.slice(0, 25)), true);
    runtime.step(() => {
      const launch = launchOf(runtime, plain(normGradients, 3, 4));
      const launches = many.map(() => launch);
      assert.throws(() => submit(runtime, backendOf(runtime).lowerColumnGroup(launches, {})), {
        code: "BAD_ARGUMENT",
      });
    });
  });
});

test("the CPU rejects groups", () => {
  assert.equal(canGroupColumns(openCpuKernelRuntime(), [normGradients]), false);
});
