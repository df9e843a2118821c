/** Registers and times of loops over rows: nvcc confirms the registers, for gradients of norms with dropout and several column sums. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { effort } from "../../../../test/support/effort.js";
import { compileWithNvcc, noCompiler } from "../../../../test/support/nvcc.js";
import type { DeviceInfo } from "../../../driver/index.js";
import { iterateRows, type RowKernel, type Stage, term } from "../../../ir/index.js";
import type { Storage } from "../../../runtime/index.js";
import { columnSumLayouts, cudaRowConfig } from "./row-config.js";
import {
  type RowLoop,
  type RowLoopWork,
  registerBytesOf,
  rowLoopUs,
  rowLoopWorkOf,
} from "./row-loop-time.js";

const inputs = ["bf16", "f32", "f32", "f32", "f32", "f32", "bf16", "draw"] as const;

/** Of dy, gain, x, mean, 1 / σ, a residual's gradient, the second output, and a draw. */
function gradientOf(columns: number): RowKernel {
  const load = (input: number) => term.load(input, "f32");
  const scaled = term.mul(load(0), load(1));
  const normed = term.mul(term.sub(load(2), load(3)), load(4));
  const average = (stage: number) => term.mul(term.reduced(stage, "f32"), 1 / columns);
  const centred = term.sub(term.sub(scaled, average(0)), term.mul(normed, average(1)));
  const dx = term.add(load(5), term.mul(centred, load(4)));
  const isKept = term.lt(term.load(7, "i32"), 58_982);
  const sums = [term.mul(load(0), normed), load(0), load(6)];
  return {
    ...{ name: "gradient", inputs, scalars: [] },
    outputs: [
      { dtype: "f32", per: "element" },
      { dtype: "bf16", per: "element" },
      ...sums.map(() => ({ dtype: "f32", per: "column" }) as const),
    ],
    stages: [
      { kind: "reduce", op: "add", value: scaled },
      { kind: "reduce", op: "add", value: term.mul(scaled, normed) },
      { kind: "store", output: 0, value: dx },
      { kind: "store", output: 1, value: term.select(isKept, term.mul(dx, 1 / 0.9), 0) },
      ...sums.map((value, sum): Stage => ({ kind: "store", output: 2 + sum, value })),
    ],
  };
}

function iterationOf(rows: number, columns: number) {
  const [whole, perRow, perColumn] = [
    [columns, 1],
    [1, 0],
    [0, 1],
  ];
  const ofInputs = [whole, perColumn, whole, perRow, perRow, whole, whole, whole];
  const ofOutputs = [whole, whole, perColumn, perColumn, perColumn];
  return iterateRows([rows, columns], [...ofInputs, ...ofOutputs] as number[][], 1);
}

const workOf = (rows: number, columns: number): RowLoopWork =>
  rowLoopWorkOf(gradientOf(columns), iterationOf(rows, columns));

test("an output that a sum reads again takes no registers, and inputs that are the same in each row are not loaded again", () => {
  const { elementBytes, loadedBytes, sums, reductions, draws } = workOf(4096, 1024);
  assert.deepEqual({ sums, reductions, draws }, { sums: 3, reductions: 2, draws: 1 });
  // dy, x and the residual; with the gain, and half of a register for a number.
  assert.deepEqual([loadedBytes, elementBytes], [2 + 4 + 4, 2 + 4 + 4 + 4 + 2]);
});

test("a loop that loads the next row early waits for the longer of its loads and its instructions, not for both", () => {
  const work = workOf(4096, 1024);
  const loop: RowLoop = { lanes: 128, vectors: 2, isCached: true };
  const shares = { teamsPerSm: 4, rowsPerTeam: 8 };
  const [waiting, early] = [loop, { ...loop, isPrefetched: true }].map((one) => rowLoopUs(work, one, shares));
  assert.equal(Math.round(waiting! - early!), shares.rowsPerTeam);
  assert.ok(registerBytesOf(work, { ...loop, isPrefetched: true }) > registerBytesOf(work, loop));
});

describe("under nvcc", { skip: noCompiler() }, () => {
  const storageAt = (place: number): Storage =>
    ({ span: { address: (1 + place) << 24, size: 1 << 20 } }) as unknown as Storage;
  const stored = storageAt(20);
  const operands = [
    ...inputs.map((_, place) => (place === 6 ? stored : storageAt(place))),
    ...[storageAt(21), stored, storageAt(22), storageAt(23), storageAt(24)],
  ];
  const sizes = effort({
    quick: [[4096, 1024]],
    thorough: [
      [4096, 1024],
      [16384, 384],
      [8192, 768],
      [32768, 256],
      [2048, 2048],
      [4096, 4096],
      [6000, 400],
      [8192, 640],
      [8192, 1280],
      [4096, 1600],
      [8192, 3072],
    ],
  } as const);

  for (const keepsOrder of [true, false])
    test(`the fastest layouts have registers for their threads${keepsOrder ? " in a fixed order" : ""}`, () => {
      const device = { computeCapability: "9.0", parallelism: 132 } as DeviceInfo;
      const kernels = sizes.flatMap(([rows, columns]) => {
        const [kernel, iteration] = [gradientOf(columns), iterationOf(rows, columns)];
        const [columnSums] = columnSumLayouts({ device, keepsOrder }, kernel, iteration);
        assert.ok(columnSums, `${rows} × ${columns}`);
        const options = { device, usesFastMath: !keepsOrder, keepsColumnOrder: keepsOrder, columnSums };
        return cudaRowConfig(kernel, iteration, operands, options).print();
      });
      for (const [index, { stackBytes }] of compileWithNvcc(kernels, "sm_90").entries())
        assert.equal(stackBytes, 0, `${sizes[index]} with ${kernels[index]?.cuda?.threads} threads`);
    });

  test("red proof: nvcc spills if a block has more warps than a scheduler has registers for", () => {
    const [rows, columns] = [4096, 1024];
    const [kernel, iteration] = [gradientOf(columns), iterationOf(rows, columns)];
    const device = { computeCapability: "9.0", parallelism: 132 } as DeviceInfo;
    const [layout] = columnSumLayouts({ device, keepsOrder: false }, kernel, iteration);
    assert.ok(layout);
    const columnSums = { ...layout, rounds: 2 * layout.rounds, threads: 2 * layout.threads };
    const options = { device, keepsColumnOrder: false, columnSums };
    const [cost] = compileWithNvcc([cudaRowConfig(kernel, iteration, operands, options).print()], "sm_90");
    assert.ok(cost && cost.spillBytes > 0);
  });
});
