/** Combo launches of row kernels: each kernel has the bits of a launch of its own, in every group. */

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
import type { Dtype, Output, RowKernel, Stage } from "../ir/index.js";
import { iterateElements, iterateRows, narrowToBf16, narrowToF16, term } from "../ir/index.js";
import type { Runtime, Storage } from "../runtime/index.js";
import { backendOf, canComboRows } from "./backend.js";
import { type RowLaunch, rowCalls } from "./kernel-call.js";
import { submit } from "./submit.js";

const load = (input: number) => term.load(input, "f32");
const elements = (...all: readonly Dtype[]): Output[] => all.map((dtype) => ({ dtype, per: "element" }));
const store = (output: number, value: Stage["value"]): Stage => ({ kind: "store", output, value });

const cast: RowKernel = {
  ...{ name: "f32 to bf16", inputs: ["f32"], outputs: elements("bf16"), scalars: [] },
  stages: [store(0, load(0))],
};
const words: RowKernel = {
  ...{ name: "copy", inputs: ["u8"], outputs: elements("u8"), scalars: [] },
  stages: [store(0, term.load(0, "i32"))],
};
/** Reads the current element or the next one, by an index. */
const picked: RowKernel = {
  ...{ name: "picked", inputs: ["f16", "i32"], outputs: elements("f32"), scalars: [] },
  stages: [store(0, term.load(0, "f32", term.and(term.load(1, "i32"), 1)))],
};
/** Reads its stored values, and has a scalar. */
const update: RowKernel = {
  ...{ name: "update", inputs: ["f32", "f32"], outputs: elements("f32", "f64"), scalars: ["f32"] },
  stages: [
    store(0, term.sub(load(0), term.mul(load(1), term.scalar(0, "f32")))),
    store(1, term.convert(term.mul(load(0), load(1)), "f64")),
  ],
};
const placed: RowKernel = {
  ...{ name: "placed", inputs: ["i32"], outputs: elements("i32"), scalars: [] },
  stages: [store(0, term.add(term.load(0, "i32"), term.add(term.position, term.row)))],
};
/** A row minus its mean, and the sum of that. */
const centred: RowKernel = {
  ...{ name: "centred", inputs: ["f32", "f32"], scalars: [] },
  outputs: [...elements("f32"), { dtype: "f32", per: "row" }],
  stages: [
    { kind: "reduce", op: "add", value: load(0) },
    { kind: "reduce", op: "max", value: load(1) },
    store(0, term.sub(load(0), term.mul(term.reduced(0, "f32"), term.reduced(1, "f32")))),
    { kind: "reduce", op: "add", value: term.mul(load(0), load(1)) },
    store(1, term.add(term.reduced(3, "f32"), term.reduced(0, "f32"))),
  ],
};
const total: RowKernel = {
  ...{ name: "total", inputs: ["f64"], outputs: [{ dtype: "f64", per: "row" }], scalars: ["f64"] },
  stages: [
    { kind: "reduce", op: "add", value: term.mul(term.load(0, "f64"), term.scalar(0, "f64")) },
    store(0, term.reduced(0, "f64")),
  ],
};
/** Reads at an index after a store, so that the threads of a row synchronise. */
const across: RowKernel = {
  ...{ name: "across", inputs: ["f32", "f32"], outputs: elements("f32", "f32"), scalars: [] },
  stages: [
    store(0, term.mul(load(0), 3)),
    store(1, term.add(load(0), term.load(1, "f32", term.sub(0, term.min(term.position, 1))))),
  ],
};

const kernels = [cast, words, picked, update, placed, centred, total, across];

interface Problem {
  readonly kernel: RowKernel;
  readonly rows: number;
  readonly columns: number;
  /** By how many elements a row is longer than its columns. */
  readonly gap: number;
  /** From an element to the next. */
  readonly step: number;
  /** The distance of its operands from an aligned address, in elements. */
  readonly offset: number;
  /** Which inputs are one row for all, in bits. */
  readonly broadcast: number;
  readonly scalar: number;
}

const plain = (kernel: RowKernel, rows: number, columns: number): Problem => ({
  ...{ kernel, rows, columns, gap: 0, step: 1, offset: 0, broadcast: 0, scalar: 0.5 },
});

const problems = fc.record<Problem>({
  kernel: fc.constantFrom(...kernels),
  rows: fc.integer({ min: 0, max: 40 }),
  columns: fc.oneof(fc.integer({ min: 1, max: 40 }), fc.constantFrom(128, 256, 1023, 1100, 3072)),
  gap: fc.constantFrom(0, 0, 1, 4),
  step: fc.constantFrom(1, 1, 2),
  offset: fc.constantFrom(0, 0, 1, 2),
  broadcast: fc.nat(3),
  scalar: fc.double({ min: -2, max: 2, noNaN: true }),
});

const valuesFor = keepLongest(makeValues);

/** Numbers whose sums round, so that another order of additions gives other bits. */
function makeValues(dtype: Dtype, count: number, seed: number) {
  const numbers = Float64Array.from({ length: count }, (_, index) => Math.sin(index * 1.7 + seed) * 3);
  if (dtype === "f64") return numbers;
  if (dtype === "bf16") return narrowToBf16(Float32Array.from(numbers));
  if (dtype === "f16") return narrowToF16(Float32Array.from(numbers));
  if (dtype === "i32") return Int32Array.from(numbers, (number) => number * 100);
  if (dtype === "u8") return Uint8Array.from(numbers, (number) => Math.abs(number) * 80);
  return Float32Array.from(numbers);
}

function launchOf(runtime: Runtime, problem: Problem): RowLaunch {
  const { kernel, rows, columns, gap, step, offset, broadcast, scalar } = problem;
  // A kernel without positions can be divided into rows in any way.
  const isOfElements = [cast, words, picked, update].includes(kernel);
  const width = step * columns + gap;
  const stridedAccess = (index: number): readonly number[] => {
    if (index < kernel.inputs.length) return [(broadcast >> index) % 2 === 1 ? 0 : width, step];
    return kernel.outputs[index - kernel.inputs.length]?.per === "row" ? [1, 0] : [width, step];
  };
  const all = [...kernel.inputs, ...kernel.outputs.map(({ dtype }) => dtype)];
  const operands = all.map((dtype, index) =>
    // Picked ones may lie one further, and those across one before.
    uploadAt(runtime, valuesFor(dtype as Dtype, Math.max(1, rows) * width + 2, index), offset),
  );
  const strides = all.map((_, index) => stridedAccess(index));
  const shape = [rows, columns];
  return {
    ...{ kernel, operands, scalars: kernel.scalars.map(() => Math.fround(scalar)) },
    iteration: isOfElements ? iterateElements(shape, strides) : iterateRows(shape, strides, 1),
  };
}

/** In place, like weight updates: inputs are overwritten after they are read. */
const inPlace = (launch: RowLaunch): RowLaunch => {
  const { inputs } = launch.kernel;
  const operands = launch.operands.map((operand, index) =>
    index === inputs.length ? (launch.operands[0] as Storage) : operand,
  );
  return { ...launch, operands };
};

function compare(runtime: Runtime, group: readonly Problem[], prepare = (launch: RowLaunch) => launch): void {
  const run = (launch: (launches: readonly RowLaunch[]) => void): Uint8Array[][] =>
    runtime.step(() => {
      const launches = group.map((problem) => prepare(launchOf(runtime, problem)));
      launch(launches);
      return launches.map(({ operands }) => operands.map((operand) => runtime.read(operand)));
    });
  const alone = run((launches) => {
    for (const launch of launches) submit(runtime, rowCalls(launch));
  });
  const beside = run((launches) => submit(runtime, backendOf(runtime).lowerRowCombo(launches, "rows")));
  for (const [index, { kernel, rows, columns }] of group.entries()) {
    for (const [place, bytes] of alone[index]!.entries())
      sameBytes(beside[index]![place]!, bytes, `${kernel.name} of ${rows} × ${columns}, operand ${place}`);
  }
}

describe("on CUDA", { skip: cudaMissing }, () => {
  const runtime = openCudaKernelRuntime();

  test("random kernels have the same bits in a combo launch as in separate launches", () => {
    fc.assert(
      fc.property(fc.array(problems, { minLength: 1, maxLength: 7 }), (group) => compare(runtime, group)),
      { numRuns: effort({ quick: 2, thorough: 5 }) },
    );
  });

  test("all kernels in one launch have the same bits, with rows of a thread, some lanes, a warp and a block", () => {
    compare(
      runtime,
      kernels.map((kernel, index) => plain(kernel, 70, [3, 8, 193, 256][index % 4]!)),
    );
    compare(
      runtime,
      [1, 5, 100, 1024, 1025, 8192].flatMap((columns) => [
        plain(centred, 3, columns),
        { ...plain(total, 9, columns), offset: 1 },
      ]),
    );
  });

  test("strided rows and strided elements with equally many arguments have the same bits", () => {
    const apart = { ...plain(cast, 1, 30), step: 2 };
    compare(runtime, [
      apart,
      { ...plain(cast, 3, 30), step: 3, gap: 1 },
      { ...plain(update, 9, 30), gap: 2 },
    ]);
    compare(runtime, [{ ...plain(placed, 300, 20), step: 2, gap: 1 }, apart, plain(centred, 20, 20)]);
  });

  test("kernels that run in place have the same bits", () => {
    const group = [plain(update, 5, 64), plain(centred, 40, 36), { ...plain(update, 3, 7), offset: 1 }];
    compare(runtime, [...group, plain(across, 6, 300)], inPlace);
  });

  test("a combo launch has the blocks of all members; empty members are left out", () => {
    runtime.step(() => {
      const group = [plain(cast, 1, 4096), plain(cast, 0, 8), plain(centred, 70, 64), plain(total, 3, 2000)];
      const launches = group.map((item) => launchOf(runtime, item));
      const backend = backendOf(runtime);
      const [piece, ...others] = backend.lowerRowCombo(launches, "several");
      assert.equal(others.length, 0);
      assert.ok(piece?.kind === "launch");
      // 256 threads of four elements; 16 rows of 16 lanes, where a kernel alone has 8; a row of 256 lanes.
      assert.equal(piece.blocks, 4 + 5 + 3);
      assert.equal(piece.op, "several");
      assert.deepEqual(backend.lowerRowCombo([launchOf(runtime, plain(cast, 0, 8))], "rows"), []);
    });
  });

  test("rows that need larger blocks, and too many arguments, are rejected before a launch", () => {
    runtime.step(() => {
      const [long, fit] = [8193, 8192].map((columns) => launchOf(runtime, plain(total, 1, columns)));
      assert.deepEqual([canComboRows(runtime, [long!]), canComboRows(runtime, [fit!])], [false, true]);
      assert.ok(canComboRows(runtime, [launchOf(runtime, plain(update, 2, 9000))]), "of elements alone");
      const many = Array.from({ length: 50 }, () => launchOf(runtime, plain(update, 2, 3)));
      assert.deepEqual([canComboRows(runtime, many), canComboRows(runtime, many.slice(0, 8))], [false, true]);
      for (const group of [[fit!, long!], many])
        assert.throws(() => submit(runtime, backendOf(runtime).lowerRowCombo(group, "rows")), {
          code: "BAD_ARGUMENT",
        });
    });
  });

  test("red proof: another order of additions gives other bits", () => {
    const values = valuesFor("f64", 3072, 0) as Float64Array;
    const downwards = values.reduce((sum, value) => sum + value * 0.5, 0);
    const actual = runtime.step(() => {
      const launch = launchOf(runtime, plain(total, 1, 3072));
      submit(
        runtime,
        backendOf(runtime).lowerRowCombo([launch, launchOf(runtime, plain(cast, 3, 5))], "rows"),
      );
      return new Float64Array(runtime.read(launch.operands[1]!).slice().buffer)[0]!;
    });
    assert.ok(Math.abs(actual - downwards) < 1e-9);
    assert.notEqual(actual, downwards);
  });
});

test("a kernel that needs rows is rejected over elements, as in a launch of its own", () => {
  const iteration = iterateElements([4], [[1], [1]]);
  const launch = { kernel: { ...placed, inputs: ["i32"] as const }, iteration, operands: [] };
  assert.throws(
    () => submit(openCpuKernelRuntime(), backendOf(openCpuKernelRuntime()).lowerRowCombo([launch], "rows")),
    /"placed" uses positions in rows/,
  );
});

test("the CPU rejects combo launches", () => {
  const launch = { kernel: cast, iteration: iterateElements([4], [[1], [1]]) };
  assert.equal(canComboRows(openCpuKernelRuntime(), [launch]), false);
});
