/** Row kernels beside each other in one launch: each has the bits that it has alone, whatever stands beside it. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import {
  cudaMissing,
  openCpuKernelRuntime,
  openCudaKernelRuntime,
} from "../../test/support/kernel-runtime.js";
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
/** Of a row in every two, as an index says. */
const picked: RowKernel = {
  ...{ name: "picked", inputs: ["f16", "i32"], outputs: elements("f32"), scalars: [] },
  stages: [store(0, term.load(0, "f32", term.and(term.load(1, "i32"), 1)))],
};
/** Reads back what it has stored, with a number of its own. */
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
/** What is left of a row when its mean is taken off, and the sum of it. */
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
/** Reads at an index behind a store, so that a row's threads wait for each other. */
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
  /** So many elements behind an aligned address its operands begin. */
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

/** Numbers whose sums round, so that another order of additions would show. */
function valuesFor(dtype: Dtype, count: number, seed: number) {
  const numbers = Float64Array.from({ length: count }, (_, index) => Math.sin(index * 1.7 + seed) * 3);
  if (dtype === "f64") return numbers;
  if (dtype === "bf16") return narrowToBf16(Float32Array.from(numbers));
  if (dtype === "f16") return narrowToF16(Float32Array.from(numbers));
  if (dtype === "i32") return Int32Array.from(numbers, (one) => one * 100);
  if (dtype === "u8") return Uint8Array.from(numbers, (one) => Math.abs(one) * 80);
  return Float32Array.from(numbers);
}

function launchOf(runtime: Runtime, problem: Problem): RowLaunch {
  const { kernel, rows, columns, gap, step, offset, broadcast, scalar } = problem;
  // What has no place in a row may be cut anyhow.
  const isOfElements = [cast, words, picked, update].includes(kernel);
  const width = step * columns + gap;
  const stridedAccess = (index: number): readonly number[] => {
    if (index < kernel.inputs.length) return [(broadcast >> index) % 2 === 1 ? 0 : width, step];
    return kernel.outputs[index - kernel.inputs.length]?.per === "row" ? [1, 0] : [width, step];
  };
  const all = [...kernel.inputs, ...kernel.outputs.map(({ dtype }) => dtype)];
  const operands = all.map((dtype, index) =>
    // Picked ones may lie one further, and those across one before.
    uploadAt(runtime, valuesFor(dtype, Math.max(1, rows) * width + 2, index), offset),
  );
  const strides = all.map((_, index) => stridedAccess(index));
  const shape = [rows, columns];
  return {
    ...{ kernel, operands, scalars: kernel.scalars.map(() => Math.fround(scalar)) },
    iteration: isOfElements ? iterateElements(shape, strides) : iterateRows(shape, strides, 1),
  };
}

/** In place, as updates of weights are: what is read first is stored over. */
const inPlace = (launch: RowLaunch): RowLaunch => {
  const { inputs } = launch.kernel;
  const operands = launch.operands.map((one, index) =>
    index === inputs.length ? (launch.operands[0] as Storage) : one,
  );
  return { ...launch, operands };
};

function compare(runtime: Runtime, group: readonly Problem[], prepare = (one: RowLaunch) => one): void {
  const run = (launch: (launches: readonly RowLaunch[]) => void): Uint8Array[][] =>
    runtime.step(() => {
      const launches = group.map((problem) => prepare(launchOf(runtime, problem)));
      launch(launches);
      return launches.map(({ operands }) => operands.map((one) => runtime.read(one)));
    });
  const alone = run((launches) => {
    for (const one of launches) submit(runtime, rowCalls(one));
  });
  const beside = run((launches) => submit(runtime, backendOf(runtime).lowerRowCombo(launches, "rows")));
  for (const [index, { kernel, rows, columns }] of group.entries()) {
    for (const [place, bytes] of alone[index]!.entries())
      sameBytes(beside[index]![place]!, bytes, `${kernel.name} of ${rows} × ${columns}, operand ${place}`);
  }
}

describe("on CUDA", { skip: cudaMissing }, () => {
  const runtime = openCudaKernelRuntime();

  test("any kernels over any rows have the bits beside each other that each has alone", () => {
    fc.assert(
      fc.property(fc.array(problems, { minLength: 1, maxLength: 7 }), (group) => compare(runtime, group)),
      { numRuns: 5 },
    );
  });

  test("so have all of them at once, with rows of a thread, of some lanes, of a warp and of a block", () => {
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

  test("so have rows at steps beside those of elements at steps, whose numbers are as many", () => {
    const apart = { ...plain(cast, 1, 30), step: 2 };
    compare(runtime, [
      apart,
      { ...plain(cast, 3, 30), step: 3, gap: 1 },
      { ...plain(update, 9, 30), gap: 2 },
    ]);
    compare(runtime, [{ ...plain(placed, 300, 20), step: 2, gap: 1 }, apart, plain(centred, 20, 20)]);
  });

  test("so have those that are stored over what they read", () => {
    const group = [plain(update, 5, 64), plain(centred, 40, 36), { ...plain(update, 3, 7), offset: 1 }];
    compare(runtime, [...group, plain(across, 6, 300)], inPlace);
  });

  test("they are one launch, of as many blocks as all of them need; those with no rows have no part in it", () => {
    runtime.step(() => {
      const group = [plain(cast, 1, 4096), plain(cast, 0, 8), plain(centred, 70, 64), plain(total, 3, 2000)];
      const launches = group.map((one) => launchOf(runtime, one));
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

  test("rows that take larger blocks, and more than a launch has arguments for, are rejected before anything is sent", () => {
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

  test("red proof: the numbers tell another order of additions", () => {
    const values = valuesFor("f64", 3072, 0) as Float64Array;
    const downwards = values.reduce((sum, one) => sum + one * 0.5, 0);
    const found = runtime.step(() => {
      const launch = launchOf(runtime, plain(total, 1, 3072));
      submit(
        runtime,
        backendOf(runtime).lowerRowCombo([launch, launchOf(runtime, plain(cast, 3, 5))], "rows"),
      );
      return new Float64Array(runtime.read(launch.operands[1]!).slice().buffer)[0]!;
    });
    assert.ok(Math.abs(found - downwards) < 1e-9);
    assert.notEqual(found, downwards);
  });
});

test("a kernel that needs rows is rejected over elements, as alone", () => {
  const iteration = iterateElements([4], [[1], [1]]);
  const launch = { kernel: { ...placed, inputs: ["i32"] as const }, iteration, operands: [] };
  assert.throws(
    () => submit(openCpuKernelRuntime(), backendOf(openCpuKernelRuntime()).lowerRowCombo([launch], "rows")),
    /"placed" uses positions in rows/,
  );
});

test("the CPU has one launch for each", () => {
  const launch = { kernel: cast, iteration: iterateElements([4], [[1], [1]]) };
  assert.equal(canComboRows(openCpuKernelRuntime(), [launch]), false);
});
