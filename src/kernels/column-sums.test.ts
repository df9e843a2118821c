/**
 * Column sums in row kernels. In float32 the sum of their partials has the bits of a column kernel over all rows. In other precisions it
 * is as near to the exact sum.
 */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { withAlteredKernels } from "../../test/support/altered-kernels.js";
import { effort, isThorough } from "../../test/support/effort.js";
import { openEmulator } from "../../test/support/emulator.js";
import {
  cudaMissing,
  openCpuKernelRuntime,
  openCudaKernelRuntime,
} from "../../test/support/kernel-runtime.js";
import { compileWithNvcc, noCompiler } from "../../test/support/nvcc.js";
import { sameBytes } from "../../test/support/same-bytes.js";
import { testDevice } from "../../test/support/test-device.js";
import { uploadAt } from "../../test/support/unaligned-memory.js";
import type { DeviceInfo, KernelSource } from "../driver/index.js";
import type { ColumnKernel, Output, RowKernel, Stage } from "../ir/index.js";
import { type Iteration, iterateRows, term } from "../ir/index.js";
import type { Runtime, Storage } from "../runtime/index.js";
import { type ColumnSumLayout, columnSumTarget } from "./codegen/cuda/column-sum-layout.js";
import { canBeMember, columnSumLayout, cudaRowConfig } from "./codegen/cuda/row-config.js";
import { columnCalls, rowCalls } from "./kernel-call.js";
import { submit } from "./submit.js";

const onlyOnEmulator = testDevice === "cuda" && "the layout depends on the GPU: the emulator's is known";

const load = (input: number) => term.load(input, "f32");
const tilt = term.mul(load(0), term.sub(load(1), load(2)));
const sumsOf = (repeats: number) => Array.from({ length: repeats }, () => [tilt, load(0), load(4)]).flat();
const results = ["f32", "bf16"].map((dtype) => ({ dtype, per: "element" }) as Output);

/**
 * Inputs: g, x, a row's mean, gain, and the stored bf16 output. Two outputs, then three column sums, `repeats` times. The first output
 * depends on the whole row, unless the kernel is elementwise.
 */
const gradient = (repeats: number, isElementwise = false): RowKernel => ({
  name: "gradient",
  inputs: ["f32", "f32", "f32", "f32", "bf16"],
  outputs: [...results, ...sumsOf(repeats).map((): Output => ({ dtype: "f32", per: "column" }))],
  scalars: [],
  stages: [
    ...(isElementwise
      ? [{ kind: "store", output: 0, value: term.sub(load(0), load(2)) } as const]
      : ([
          { kind: "reduce", op: "add", value: term.mul(load(0), load(3)) },
          { kind: "store", output: 0, value: term.sub(load(0), term.reduced(0, "f32")) },
        ] as const)),
    { kind: "store", output: 1, value: term.mul(load(0), load(3)) },
    ...sumsOf(repeats).map((value, index): Stage => ({ kind: "store", output: 2 + index, value })),
  ],
});
const [summing, plain] = [gradient(1), gradient(0)];
interface Kernels {
  readonly summing: RowKernel;
  readonly plain: RowKernel;
}
const rowKernels: Kernels = { summing, plain };
const elementKernels: Kernels = { summing: gradient(1, true), plain: gradient(0, true) };
/** So many sums leave no registers for the inputs. */
const uncachedKernels: Kernels = { summing: gradient(3), plain };

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

/** The values of `valuesOf`, one after the other: so many that no row of a test equals the next one. */
const waves = [0, 1, 2, 3].map((seed) =>
  new Float32Array(65_521).map((_, index) => Math.sin(index * 1.7 + seed) * 3),
);

function valuesOf(count: number, seed: number): Float32Array {
  const wave = waves[seed]!;
  const values = new Float32Array(count);
  for (let start = 0; start < count; start += wave.length)
    values.set(wave.subarray(0, Math.min(wave.length, count - start)), start);
  return values;
}

/** A function that computes outputs and column sums in both ways on a runtime. */
function waysOn(runtime: Runtime) {
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
  return (rows: number, columns: number, offset = 0, { summing, plain } = rowKernels) => {
    const target = columnSumTarget(runtime);
    const layout = columnSumLayout(target, summing, iterationOf(summing, rows, columns));
    assert.ok(layout, `${rows} × ${columns}`);
    const { blocks } = layout;
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
      const left = summing.outputs.slice(2).map(() => room(4 * blocks * columns));
      const actual = run(summing, left);
      const added = left.flatMap((item) => columnsOf(sumOf("f32"), blocks, columns, [item]));
      const expected = run(plain, []);
      const separate = [
        ...columnsOf(tilts, rows, columns, [g, x, mean]),
        ...columnsOf(sumOf("bf16"), rows, columns, [expected[1]!]),
      ];
      const read = (storages: readonly Storage[]) => storages.map((storage) => runtime.read(storage));
      return {
        layout,
        actual: read([...actual, ...added]),
        expected: read([...expected, ...left.map((_, sum) => separate[sum % separate.length]!)]),
        left: read(left),
      };
    });
  };
}

const floatsOf = (bytes: Uint8Array): Float32Array => new Float32Array(bytes.slice().buffer);

describe("on CUDA", { skip: cudaMissing }, () => {
  const runtime = openCudaKernelRuntime();
  const bothWays = waysOn(runtime);

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
      const { actual, expected, layout } =
        rows === several[0] && columns === several[1] ? severalWays() : bothWays(rows, columns, offset);
      assert.equal(layout.isLoop, false);
      for (const [index, bytes] of expected.entries())
        sameBytes(actual[index]!, bytes, `${rows} × ${columns}, result ${index}`);
    }
  });

  /** Rows of a warp with two vectors per thread, and of a block whose registers cannot hold the inputs; then in chunks, with tails, and of inputs in registers. */
  const loops: readonly (readonly [rows: number, columns: number, offset: number, kernels: Kernels])[] = [
    [4100, 136, 0, rowKernels],
    [1030, 1028, 0, uncachedKernels],
  ];
  const moreLoops: typeof loops = [
    [4100, 136, 0, elementKernels],
    [4097, 65, 1, rowKernels],
    [8192, 72, 0, rowKernels],
    [1024, 1020, 2, rowKernels],
    [2050, 1029, 1, rowKernels],
    [1030, 1028, 0, rowKernels],
    [1024, 4096, 0, rowKernels],
    [4097, 65, 1, elementKernels],
    [5000, 131, 0, elementKernels],
    [1024, 1025, 0, elementKernels],
  ];

  test("teams that loop over rows give the same bits in float32", () => {
    for (const [rows, columns, offset, kernels] of effort({
      quick: loops,
      thorough: [...loops, ...moreLoops],
    })) {
      const { actual, expected, layout } = bothWays(rows, columns, offset, kernels);
      assert.deepEqual(
        [layout.isLoop, layout.isCached],
        [true, kernels !== uncachedKernels && columns < 3076],
      );
      for (const [index, bytes] of expected.entries())
        sameBytes(actual[index]!, bytes, `${rows} × ${columns}, result ${index}`);
    }
  });

  test("in another precision the device decides how many teams loop over rows", () => {
    const tf32 = openCudaKernelRuntime({ precision: "tf32" });
    const { actual, expected, layout } = waysOn(tf32)(4100, 136);
    const { parallelism } = tf32.device;
    assert.deepEqual([layout.isLoop, layout.blocks], [true, parallelism]);
    for (const index of [0, 1]) sameBytes(actual[index]!, expected[index]!, `result ${index}`);
    const largest = 4100 * 10;
    let differing = 0;
    for (const index of [2, 3, 4]) {
      const wanted = floatsOf(expected[index]!);
      for (const [column, sum] of floatsOf(actual[index]!).entries()) {
        assert.ok(Math.abs(sum - wanted[column]!) < 1e-6 * largest, `sum ${index}, column ${column}`);
        if (sum !== wanted[column]) differing++;
      }
    }
    // Red proof: the comparison of bits in float32 tells orders apart.
    assert.ok(differing > 136 / 4, `${differing} sums differ`);
  });

  /** Rows and sums have other orders of additions: the results are those of float32 to within rounding. */
  function requireNear(runtime: Runtime, { rows, columns, offset = 0, kernels }: FreeCase): ColumnSumLayout {
    const { actual, expected, layout } = waysOn(runtime)(rows, columns, offset, kernels);
    const what = `${rows} × ${columns}`;
    sameBytes(actual[1]!, expected[1]!, `${what}, a result that depends on no row`);
    for (const [index, bytes] of expected.entries()) {
      if (index === 1) continue;
      const wanted = floatsOf(bytes);
      // The terms of a sum have magnitudes of up to ten.
      const limit = 1e-6 * 10 * (index === 0 ? columns : rows);
      const values = floatsOf(actual[index]!);
      const place = values.findIndex((value, at) => !(Math.abs(value - wanted[at]!) <= limit));
      assert.equal(place, -1, `${what}, result ${index}: ${values[place]} instead of ${wanted[place]}`);
    }
    return layout;
  }

  interface FreeCase {
    readonly rows: number;
    readonly columns: number;
    readonly offset?: number;
    readonly kernels?: Kernels;
  }

  const wide = { rows: 1100, columns: 1024 } as const;

  /** Teams of two to four warps: whole vectors; then a shorter last one of unaligned rows, more sums and longer rows. */
  const teams: readonly FreeCase[] = [wide];
  const moreTeams: readonly FreeCase[] = [
    { rows: 1030, columns: 1029, offset: 1 },
    { rows: 1024, columns: 1400, kernels: uncachedKernels },
    { rows: 1031, columns: 1020, offset: 2 },
    { rows: 1025, columns: 2048 },
    { rows: 1024, columns: 4096 },
  ];

  test("in another precision several warps share a row", () => {
    const tf32 = openCudaKernelRuntime({ precision: "tf32" });
    for (const one of effort({ quick: teams, thorough: [...teams, ...moreTeams] })) {
      const { lanes, isLoop } = requireNear(tf32, one);
      assert.deepEqual([lanes > 32, isLoop], [true, true]);
    }
  });

  test("teams without a row, and teams with one, add nothing else", { skip: onlyOnEmulator }, () => {
    // So many multiprocessors have more teams than there are rows.
    openEmulator().set("multiprocessors", 300);
    const tf32 = openCudaKernelRuntime({ precision: "tf32" });
    openEmulator().reset();
    const { blocks, threads, lanes } = requireNear(tf32, wide);
    assert.ok((blocks * threads) / lanes > wide.rows, `${blocks} blocks of ${threads / lanes} teams`);
  });

  for (const [what, from, to] of [
    [
      "warps do not wait for the others of their team",
      "namedBarrierSync(1u + threadIdx.x / 128u, 128u);",
      "",
    ],
    ["the next row's values replace those of the present one", "[parity]", "[0]"],
    ["the next row is loaded over the present one", "nextRow = row + ", "nextRow = row + 0u * "],
    ["teams take the same rows", "blockIdx.x + 16u * (threadIdx.x / 128u)", "blockIdx.x"],
  ] as const) {
    test(`red proof: ${what}`, { skip: onlyOnEmulator }, () => {
      withAlteredKernels({ from, to, precision: "tf32" }, (altered) =>
        assert.throws(() => requireNear(altered, wide), { code: "ERR_ASSERTION" }),
      );
    });
  }

  test("red proof: another order of additions gives other bits", () => {
    const [, columns] = several;
    const { expected, left, layout } = severalWays();
    const parts = floatsOf(left[0]!);
    let differing = 0;
    for (const [column, sum] of floatsOf(expected[2]!).entries()) {
      let downwards = 0;
      for (let row = 0; row < layout.blocks; row++)
        downwards = Math.fround(downwards + parts[row * columns + column]!);
      assert.ok(Math.abs(downwards - sum) < 1e-2, `column ${column}`);
      if (downwards !== sum) differing++;
    }
    assert.ok(differing > columns / 4);
  });

  test("rows whose columns cannot be summed in a row kernel are rejected", () => {
    runtime.step(() => {
      const operands = [...summing.inputs, ...summing.outputs].map(() =>
        runtime.arena.allocate(4 * 1023 * 128, "operand"),
      );
      const iteration = iterationOf(summing, 1023, 128);
      assert.throws(
        () => submit(runtime, rowCalls({ kernel: summing, iteration, operands })),
        /column sums of 1023 rows of 128 elements.*columnSumLayout/,
      );
    });
  });
});

test("a loop over rows accumulates a column sum that is stored before other stages, too", () => {
  const stages: RowKernel["stages"] = [
    { kind: "store", output: 1, value: load(0) },
    { kind: "reduce", op: "add", value: load(0) },
    { kind: "store", output: 0, value: term.reduced(1, "f32") },
  ];
  const outputs: RowKernel["outputs"] = [
    { dtype: "f32", per: "row" },
    { dtype: "f32", per: "column" },
  ];
  const kernel: RowKernel = { name: "sums", inputs: ["f32"], outputs, scalars: [], stages };
  const strides = [
    [256, 1],
    [1, 0],
    [0, 1],
  ];
  const operands = strides.map(
    (_, index) => ({ span: { address: (1 + index) << 24, size: 1 << 23 } }) as unknown as Storage,
  );
  const { cuda } = cudaRowConfig(kernel, iterateRows([8192, 256], strides, 1), operands).print();
  const [, loop = ""] = cuda?.code.split(/for \(.*; row < rows;/) ?? [];
  const [accumulated, stored] = [loop.indexOf("colsum0[v].element[k] ="), loop.indexOf("&sharedRows")];
  assert.ok(accumulated > 0 && accumulated < stored, loop);
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

    const device = { computeCapability: "9.0", parallelism: 132 } as DeviceInfo;
    const compile = (sources: readonly KernelSource[], blocksPerSm: readonly number[]): void => {
      for (const architecture of ["sm_80", "sm_90"]) {
        for (const [index, { registers, stackBytes }] of compileWithNvcc(sources, architecture).entries()) {
          const { threads } = sources[index]!.cuda!;
          const used = Math.ceil(registers / 8) * 8 * threads * blocksPerSm[index]!;
          assert.ok(used <= 65_536, `${registers} registers of ${threads} threads`);
          assert.equal(stackBytes, 0, `${architecture}, ${threads} threads`);
        }
      }
    };

    test("a block has registers for all of its threads, and stored values are forwarded from registers", () => {
      const prefetchable = summing.inputs.map((_, input) => input === 1);
      const sources = [1024, 3072, 4096].map((rows) =>
        cudaRowConfig(summing, iterationOf(summing, rows, 256), operands, { prefetchable, device }).print(),
      );
      assert.deepEqual(
        sources.map(({ cuda }) => cuda?.threads),
        [256, 768, 1024],
      );
      compile(sources, [1, 1, 1]);
      // Vector loads are used for g, x and the gain, and not for half floats.
      assert.equal(sources[0]!.cuda!.code.match(/loadVec<4>\(/g)?.length, 3);
    });

    test("a loop over rows has registers for its accumulators", () => {
      const cases = ([384, 768, 1024, 1600, 4096] as const).flatMap((columns) =>
        [rowKernels, elementKernels].flatMap(({ summing: kernel }) =>
          [true, false].map((keepsOrder) => {
            const iteration = iterationOf(kernel, 16384, columns);
            const options = { device, keepsColumnOrder: keepsOrder };
            const source = cudaRowConfig(kernel, iteration, operands, options).print();
            return { source, layout: columnSumLayout({ device, keepsOrder }, kernel, iteration)! };
          }),
        ),
      );
      compile(
        cases.map(({ source }) => source),
        cases.map(({ layout }) => layout.blocksPerSm),
      );
      // The stored half floats are not loaded again.
      assert.ok(cases.every(({ source }) => !/in4 \+/.test(source.cuda!.code)));
    });
  });
}
