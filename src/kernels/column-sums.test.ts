/** Column sums in row kernels: the sum of their partials has the bits of a column kernel over all rows. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { effort, isThorough } from "../../test/support/effort.js";
import {
  cudaMissing,
  openCpuKernelRuntime,
  openCudaKernelRuntime,
} from "../../test/support/kernel-runtime.js";
import { compileWithNvcc, noCompiler } from "../../test/support/nvcc.js";
import { sameBytes } from "../../test/support/same-bytes.js";
import { uploadAt } from "../../test/support/unaligned-memory.js";
import type { DeviceInfo } from "../driver/index.js";
import type { ColumnKernel, Output, RowKernel, Stage } from "../ir/index.js";
import { type Iteration, iterateRows, term } from "../ir/index.js";
import type { Runtime, Storage } from "../runtime/index.js";
import { columnPartialCount } from "./codegen/cuda/column-partials.js";
import { canBeMember, canSumColumns, cudaRowConfig } from "./codegen/cuda/row-config.js";
import { columnCalls, rowCalls } from "./kernel-call.js";
import { submit } from "./submit.js";

const load = (input: number) => term.load(input, "f32");
const tilt = term.mul(load(0), term.sub(load(1), load(2)));
const results = ["f32", "bf16"].map((dtype) => ({ dtype, per: "element" }) as Output);

/** Inputs: g, x, a row's mean, gain, and the stored bf16 output. Two outputs and, if requested, three column sums. */
const gradient = (isColsum: boolean): RowKernel => ({
  name: "gradient",
  inputs: ["f32", "f32", "f32", "f32", "bf16"],
  outputs: [...results, ...(isColsum ? [1, 2, 3] : []).map((): Output => ({ dtype: "f32", per: "column" }))],
  scalars: [],
  stages: [
    { kind: "reduce", op: "add", value: term.mul(load(0), load(3)) },
    { kind: "store", output: 0, value: term.sub(load(0), term.reduced(0, "f32")) },
    { kind: "store", output: 1, value: term.mul(load(0), load(3)) },
    ...(isColsum ? [tilt, load(0), load(4)] : []).map(
      (value, index): Stage => ({ kind: "store", output: 2 + index, value }),
    ),
  ],
});
const [summing, plain] = [gradient(true), gradient(false)];

/** The same column sums as column kernels. */
const tilts: ColumnKernel = {
  ...{ name: "tilts", inputs: ["f32", "f32", "f32"], outputs: ["f32", "f32"], scalars: [], op: "add" },
  values: [tilt, load(0)],
};
const sumOf = (dtype: "f32" | "bf16"): ColumnKernel => ({
  ...{ name: "sum", inputs: [dtype], outputs: ["f32"], scalars: [], op: "add", values: [load(0)] },
});

function iterationOf(kernel: RowKernel, rows: number, columns: number, gap = 0): Iteration {
  const [moving, still] = [
    [columns + gap, 1],
    [1, 0],
  ];
  const sums = kernel.outputs.slice(2).map(() => [0, 1]);
  return iterateRows(
    [rows, columns],
    [moving, moving, still, [0, 1], [columns, 1], [columns, 1], [columns, 1], ...sums],
    1,
  );
}

const valuesOf = (count: number, seed: number): Float32Array =>
  Float32Array.from({ length: count }, (_, index) => Math.sin(index * 1.7 + seed) * 3);

describe("on CUDA", { skip: cudaMissing }, () => {
  const runtime = openCudaKernelRuntime();
  const room = (bytes: number): Storage => uploadAt(runtime, new Uint8Array(bytes).fill(0xff), 0);
  const columnsOf = (kernel: ColumnKernel, rows: number, columns: number, inputs: readonly Storage[]) => {
    const outputs = kernel.outputs.map(() => room(4 * columns));
    const strides = kernel.inputs.map((_, input) =>
      input < 2 ? ({ row: columns, column: "unit" } as const) : ({ row: 1, column: "none" } as const),
    );
    submit(runtime, columnCalls({ kernel, rows, columns, strides, operands: [...inputs, ...outputs] }));
    return outputs;
  };

  /** The kernel's outputs, and its column sums reduced; then the same by kernels that have one thing to do each. */
  function bothWays(rows: number, columns: number, offset = 0) {
    return runtime.step(() => {
      const sizes = [rows * columns, rows * columns, rows, columns];
      const inputs = sizes.map((size, seed) => uploadAt(runtime, valuesOf(size, seed), offset));
      const [g, x, mean] = inputs as [Storage, Storage, Storage];
      const run = (kernel: RowKernel, sums: readonly Storage[]): Storage[] => {
        const [stored, halves] = [room(4 * rows * columns), room(2 * rows * columns)];
        const operands = [...inputs, halves, stored, halves, ...sums];
        submit(runtime, rowCalls({ kernel, iteration: iterationOf(kernel, rows, columns), operands }));
        return [stored, halves];
      };
      const left = [1, 2, 3].map(() => room(4 * columnPartialCount * columns));
      const actual = run(summing, left);
      const added = left.flatMap((item) => columnsOf(sumOf("f32"), columnPartialCount, columns, [item]));
      const expected = run(plain, []);
      const separate = [
        ...columnsOf(tilts, rows, columns, [g, x, mean]),
        ...columnsOf(sumOf("bf16"), rows, columns, [expected[1]!]),
      ];
      const read = (storages: readonly Storage[]) => storages.map((storage) => runtime.read(storage));
      return {
        actual: read([...actual, ...added]),
        expected: read([...expected, ...separate]),
        left: read(left),
      };
    });
  }

  /** A size at which most partial sums cover three rows. */
  const several = [2100, 68] as const;
  let known: ReturnType<typeof bothWays> | undefined;
  function severalWays(): ReturnType<typeof bothWays> {
    known ??= bothWays(...several);
    return known;
  }

  test("every number of rows per partial, and every number of vectors per row, gives the same bits", () => {
    const sizes: readonly (readonly [rows: number, columns: number, offset: number])[] = [
      [1024, 136, 0],
      [1025, 65, 1],
      [...several, 0],
      [3073, 72, 2],
    ];
    const more: typeof sizes = [
      [1024, 256, 0],
      [1025, 68, 0],
      [2048, 65, 1],
      [2100, 128, 0],
      [4096, 72, 2],
      [1500, 131, 0],
      [2100, 128, 1],
      [3072, 256, 0],
      [3073, 72, 0],
      [4096, 100, 2],
    ];
    for (const [rows, columns, offset] of effort({ quick: sizes, thorough: [...sizes, ...more] })) {
      const { actual, expected } =
        rows === several[0] && columns === several[1] ? severalWays() : bothWays(rows, columns, offset);
      for (const [index, bytes] of expected.entries())
        sameBytes(actual[index]!, bytes, `${rows} × ${columns}, result ${index}`);
    }
  });

  test("red proof: another order of additions gives other bits", () => {
    const [, columns] = several;
    const { expected, left } = severalWays();
    const floatsOf = (bytes: Uint8Array): Float32Array => new Float32Array(bytes.slice().buffer);
    const parts = floatsOf(left[0]!);
    let differing = 0;
    for (const [column, sum] of floatsOf(expected[2]!).entries()) {
      let downwards = 0;
      for (let row = 0; row < columnPartialCount; row++)
        downwards = Math.fround(downwards + parts[row * columns + column]!);
      assert.ok(Math.abs(downwards - sum) < 1e-2, `column ${column}`);
      if (downwards !== sum) differing++;
    }
    assert.ok(differing > columns / 4);
  });

  test("rows whose columns cannot be summed in a row kernel are rejected", () => {
    runtime.step(() => {
      const operands = [...summing.inputs, ...summing.outputs].map(() => room(4 * 1023 * 128));
      const iteration = iterationOf(summing, 1023, 128);
      assert.throws(
        () => submit(runtime, rowCalls({ kernel: summing, iteration, operands })),
        /column sums of 1023 rows of 128 elements.*canSumColumns/,
      );
    });
  });
});

const cuda = (computeCapability: string): DeviceInfo =>
  ({ kind: "cuda", computeCapability }) as unknown as DeviceInfo;
const hopper = cuda("9.0");

test("a row kernel sums columns if a row takes a warp, and a block has a warp for each of its rows", () => {
  const can = (rows: number, columns: number, kernel = summing): boolean =>
    canSumColumns(hopper, kernel, iterationOf(kernel, rows, columns));
  assert.deepEqual(
    [can(1023, 256), can(1024, 256), can(4096, 256), can(4097, 256)],
    [false, true, true, false],
  );
  assert.deepEqual(
    [can(3072, 64), can(3072, 65), can(3072, 512), can(3072, 1028)],
    [false, true, true, false],
  );
  // Longer rows leave no registers for 32 warps.
  assert.deepEqual([can(3072, 384), can(4096, 384)], [true, false]);
  assert.equal(can(3072, 1024), false);
  const indexed: RowKernel = {
    ...summing,
    stages: [...summing.stages, { kind: "store", output: 2, value: term.load(0, "f32", term.position) }],
  };
  assert.equal(can(3072, 256, indexed), false);
  const wide = {
    ...summing,
    outputs: summing.outputs.map((output) => ({ ...output, dtype: "f64" as const })),
  };
  assert.equal(can(3072, 256, wide), false, "sums are of f32");
});

test("a row kernel sums columns if its rows fit into shared memory", () => {
  const [few, many] = [iterationOf(summing, 1024, 256), iterationOf(summing, 3072, 256)];
  assert.ok(canSumColumns(cuda("7.5"), summing, few));
  assert.ok(!canSumColumns(cuda("7.5"), summing, many), "72 KiB, of which a device of unknown size has 48");
  for (const device of [cuda("8.0"), cuda("8.9"), hopper]) assert.ok(canSumColumns(device, summing, many));
  assert.ok(!canSumColumns({ kind: "cpu" } as DeviceInfo, summing, few));
});

test("a kernel with column sums is not a member of a combo kernel", () => {
  assert.deepEqual(
    [plain, summing].map((kernel) => canBeMember(kernel, iterationOf(kernel, 1024, 256))),
    [true, false],
  );
});

test("only a GPU supports column sums in row kernels", () => {
  const runtime: Runtime = openCpuKernelRuntime();
  runtime.step(() => {
    const operands = [...summing.inputs, ...summing.outputs].map(() =>
      runtime.arena.allocate(4 * 1024 * 128, "operand"),
    );
    assert.throws(
      () =>
        submit(runtime, rowCalls({ kernel: summing, iteration: iterationOf(summing, 1024, 128), operands })),
      { code: "UNSUPPORTED" },
    );
  });
});

if (isThorough) {
  describe("under nvcc", { skip: noCompiler() }, () => {
    /** A storage with an address: configs need nothing else. */
    const storageAt = (address: number): Storage =>
      ({ span: { address, size: 1 << 20 } }) as unknown as Storage;
    const operands = [1, 2, 3, 4, 6, 5, 6, 7, 8, 9].map((index) => storageAt(index << 24));

    test("a block has registers for all of its threads, and stored values are forwarded from registers", () => {
      const sources = [1024, 3072, 4096].map((rows) => {
        const early = summing.inputs.map((_, input) => input === 1);
        return cudaRowConfig(summing, iterationOf(summing, rows, 256), operands, {
          prefetchable: early,
        }).print();
      });
      for (const architecture of ["sm_80", "sm_90"]) {
        for (const [index, { registers, stackBytes }] of compileWithNvcc(sources, architecture).entries()) {
          const threads = sources[index]!.cuda!.threads;
          assert.equal(threads, [256, 768, 1024][index]);
          assert.ok(registers * threads <= 65_536, `${registers} registers of ${threads} threads`);
          assert.equal(stackBytes, 0, `${architecture}, ${threads} threads`);
        }
      }
      // Vector loads are used for g, x and the gain, and not for half floats.
      assert.equal(sources[0]!.cuda!.code.match(/loadVec<4>\(/g)?.length, 3);
    });
  });
}
