/** Launch configs of column kernels on a GPU: every thread has rows, the bits depend only on the rows, and loads are in flight together. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { isThorough } from "../../../../test/support/effort.js";
import { cudaMissing, openCudaKernelRuntime, put } from "../../../../test/support/kernel-runtime.js";
import { compileWithNvcc, noCompiler, ptxWithNvcc } from "../../../../test/support/nvcc.js";
import { sameBytes } from "../../../../test/support/same-bytes.js";
import type { ColumnKernel, Dtype } from "../../../ir/index.js";
import { term } from "../../../ir/index.js";
import type { LaunchConfig } from "../../launch-config.js";
import { cudaColumnConfig } from "./column-config.js";
import { cudaKernel } from "./cuda-function.js";

/** The number of SMs of an H200. */
const parallelism = 132;

const x = term.load(0, "f32");
const sumOf = (dtype: Dtype, type: "f32" | "f64" = "f32"): ColumnKernel => ({
  name: "sum",
  inputs: [dtype],
  outputs: [dtype],
  scalars: [],
  op: "add",
  values: [term.load(0, type)],
});
/** The gradients of a layer norm's weight and bias. */
const normGradients: ColumnKernel = {
  name: "norm gradients",
  inputs: ["f32", "f32", "f32", "f32"],
  outputs: ["f32", "f32"],
  scalars: [],
  op: "add",
  values: [term.mul(x, term.mul(term.sub(term.load(1, "f32"), term.load(2, "f32")), term.load(3, "f32"))), x],
};

function configOf(
  kernel: ColumnKernel,
  rows: number,
  columns: number,
  processors = parallelism,
): LaunchConfig {
  const strides = kernel.inputs.map((_, input) =>
    input < 2 ? ({ row: columns, column: "unit" } as const) : ({ row: 1, column: "none" } as const),
  );
  return cudaColumnConfig(kernel, { rows, columns, strides }, processors);
}

test("few columns are spread over up to half of the SMs, a block takes a sector of many columns, and a thread each of very many with few rows", () => {
  const cases: readonly [
    kernel: ColumnKernel,
    rows: number,
    columns: number,
    blocks: number,
    threads: number,
  ][] = [
    [sumOf("f32"), 3072, 256, 64, 1024],
    [sumOf("f32"), 3072, 1024, 128, 1024],
    [sumOf("f32"), 3072, 3, 3, 1024],
    [sumOf("f32"), 24_613, 1, 1, 1024],
    [sumOf("f32"), 100_000, 8, 8, 1024],
    [sumOf("f32"), 64, 256, 64, 128],
    [sumOf("f32"), 64, 100_000, 12_500, 256],
    [sumOf("f32"), 32, 100_000, 391, 256],
    [sumOf("f32"), 33, 100_000, 12_500, 256],
    [sumOf("f32"), 8, 30_000, 3750, 256],
    [sumOf("bf16"), 3072, 4096, 512, 1024],
    [sumOf("f64", "f64"), 3072, 4096, 1024, 1024],
    [normGradients, 3072, 256, 64, 1024],
  ];
  for (const [kernel, rows, columns, blocks, threads] of cases) {
    const config = configOf(kernel, rows, columns);
    assert.equal(config.blocks, blocks, `blocks of ${rows} × ${columns}`);
    assert.equal(config.print().cuda?.threads, threads, `threads of ${rows} × ${columns}`);
  }
});

describe("on CUDA", { skip: cudaMissing }, () => {
  const runtime = openCudaKernelRuntime();
  const run = (rows: number, columns: number, processors: number): { key: string; actual: Uint8Array[] } => {
    const config = configOf(normGradients, rows, columns, processors);
    const inputs = normGradients.inputs.map((_, input) =>
      Float32Array.from({ length: rows * (input < 2 ? columns : 1) }, (_value, index) =>
        Math.sin(index * (input + 1)),
      ),
    );
    const actual = runtime.step(() => {
      const outputs = normGradients.outputs.map(() => runtime.arena.allocate(4 * columns, "sums"));
      const operands = [...inputs.map((values) => put(runtime, values, "input")), ...outputs];
      runtime.launch({
        op: normGradients.name,
        kernel: runtime.kernel(config.print()),
        blocks: config.blocks,
        arguments: [...operands, ...config.sizes],
      });
      return outputs.map((output) => runtime.read(output));
    });
    return { key: config.key, actual };
  };

  test("the bits do not depend on the number of SMs", () => {
    for (const [rows, columns] of [
      [3, 19],
      [900, 19],
      [1024, 9],
      [3072, 9],
      [9999, 5],
    ] as const) {
      // On each of them a block takes fewer columns, and a column has more threads.
      const enough = [8, 4, 2].map((perBlock) => 4 * Math.ceil(columns / perBlock));
      const [first, ...others] = [1, ...enough].map((processors) => run(rows, columns, processors));
      assert.equal(new Set([first!, ...others].map(({ key }) => key)).size, 4);
      for (const { key, actual } of others) {
        for (const [index, value] of actual.entries())
          sameBytes(value, first!.actual[index]!, `${key}, value ${index}`);
      }
    }
  });

  test("a thread that reduces a whole column has the bits of several threads", () => {
    for (const rows of [1, 5, 32]) {
      const [inThread, inWarp] = [1, parallelism].map((processors) => run(rows, 300, processors));
      assert.notEqual(inThread!.key, inWarp!.key);
      for (const [index, value] of inThread!.actual.entries())
        sameBytes(value, inWarp!.actual[index]!, `${rows} rows, value ${index}`);
    }
  });
});

/** The maximum number of global loads between two branches or labels. */
function maxLoadsInCombo(ptx: string): number {
  let [maxLoads, loads] = [0, 0];
  for (const line of ptx.split("\n")) {
    if (/\bbra\b|^\$L/.test(line)) loads = 0;
    else if (/\bld\.global/.test(line)) maxLoads = Math.max(maxLoads, ++loads);
  }
  return maxLoads;
}

if (isThorough) {
  describe("under nvcc", { skip: noCompiler() }, () => {
    test("a thread has 16 loads in flight, in full iterations and in the last one", () => {
      for (const [rows, columns] of [
        [3072, 256],
        [24_613, 1],
        [1000, 256],
      ] as const) {
        const ptx = ptxWithNvcc(configOf(sumOf("f32"), rows, columns).print(), "sm_90");
        assert.equal(maxLoadsInCombo(ptx), 16, `${rows} × ${columns}`);
        assert.equal(ptx.match(/\bld\.global/g)?.length, 32, `${rows} × ${columns}`);
      }
    });

    test("several values of several inputs stay in registers", () => {
      const kernels = [64, 256, 1024].map((columns) => configOf(normGradients, 3072, columns).print());
      for (const { stackBytes, spillBytes } of compileWithNvcc(kernels, "sm_80"))
        assert.equal(stackBytes + spillBytes, 0);
    });

    test("red proof: a loop that is unrolled by a pragma alone has a branch after every load", () => {
      const kernel = cudaKernel({
        name: "tested loop",
        parameters: { x: "in", to: "out", rows: "u32" },
        elements: "float",
        threads: 128,
        body: `  float sum = 0.0f;
  #pragma unroll 8
  for (unsigned row = threadIdx.x; row < rows; row += 128u) sum += x[row];
  to[threadIdx.x] = sum;`,
      });
      assert.equal(maxLoadsInCombo(ptxWithNvcc(kernel, "sm_90")), 1);
    });
  });
}
