/** Which row kernels compute column sums, how they distribute their rows, and what that costs. */

import assert from "node:assert/strict";
import { test } from "node:test";
import type { DeviceInfo } from "../../../driver/index.js";
import {
  type Dtype,
  type Iteration,
  iterateRows,
  type RowKernel,
  type Stage,
  term,
} from "../../../ir/index.js";
import { registersPerSm } from "../../cost-model.js";
import { type ColumnSumLayout, type ColumnSumTarget, columnSumSlowdown } from "./column-sum-layout.js";
import { columnSumLayout } from "./row-config.js";

const on = (computeCapability: string, parallelism = 132, keepsOrder = true): ColumnSumTarget => ({
  device: { computeCapability, parallelism } as DeviceInfo,
  keepsOrder,
});
const hopper = on("9.0");
const inAnyOrder = on("9.0", 132, false);

interface Shape {
  readonly inputs?: readonly Dtype[];
  readonly sums?: number;
  readonly isElementwise?: boolean;
}

/** A kernel like the gradient of a norm: it reads its inputs, reduces the row, and stores a value per element. */
function kernelOf({
  inputs = ["f32", "f32", "f32"],
  sums = 2,
  isElementwise = false,
}: Shape = {}): RowKernel {
  const total = inputs.map((_, input) => term.load(input, "f32")).reduce((sum, load) => term.add(sum, load));
  const reduction: Stage = { kind: "reduce", op: "add", value: total };
  const value = isElementwise ? total : term.sub(total, term.reduced(0, "f32"));
  return {
    ...{ name: "gradient", inputs, scalars: [] },
    outputs: [
      { dtype: "f32", per: "element" },
      ...Array.from({ length: sums }, () => ({ dtype: "f32", per: "column" }) as const),
    ],
    stages: [
      ...(isElementwise ? [] : [reduction]),
      { kind: "store", output: 0, value },
      ...Array.from({ length: sums }, (_, sum): Stage => ({ kind: "store", output: 1 + sum, value: total })),
    ],
  };
}

function iterationOf({ inputs, outputs }: RowKernel, rows: number, columns: number): Iteration {
  const strides = [...inputs, ...outputs].map((_, operand) =>
    operand <= inputs.length ? [columns, 1] : [0, 1],
  );
  return iterateRows([rows, columns], strides, 1);
}

function layoutOf(
  rows: number,
  columns: number,
  shape: Shape = {},
  target = hopper,
): ColumnSumLayout | undefined {
  const kernel = kernelOf(shape);
  return columnSumLayout(target, kernel, iterationOf(kernel, rows, columns));
}

test("a block has a warp for each of its rows, if these are few and short; else its teams loop over rows", () => {
  const isLoop = (rows: number, columns: number): boolean | undefined => layoutOf(rows, columns)?.isLoop;
  assert.deepEqual(
    [isLoop(1023, 256), isLoop(1024, 256), isLoop(4096, 256), isLoop(4097, 256)],
    [undefined, false, false, true],
  );
  // Fewer lanes than a warp would have several rows.
  assert.deepEqual([isLoop(3072, 64), isLoop(3072, 65), isLoop(3072, 512)], [undefined, false, false]);
  // Longer rows leave no registers for 32 warps.
  assert.deepEqual([isLoop(3072, 640), isLoop(3072, 768), isLoop(4096, 384)], [false, true, true]);
  assert.deepEqual([isLoop(8192, 1024), isLoop(8192, 1028), isLoop(8192, 8196)], [true, true, undefined]);
  const isElementLoop = (rows: number): boolean | undefined =>
    layoutOf(rows, 256, { isElementwise: true })?.isLoop;
  assert.deepEqual([isElementLoop(4096), isElementLoop(4097)], [false, true]);
});

test("no kernel with indexed loads, or with sums of other dtypes, computes column sums", () => {
  const kernel = kernelOf();
  const indexed: RowKernel = {
    ...kernel,
    stages: [...kernel.stages, { kind: "store", output: 1, value: term.load(0, "f32", term.position) }],
  };
  const wide = { ...kernel, outputs: kernel.outputs.map((output) => ({ ...output, dtype: "f64" as const })) };
  for (const other of [indexed, wide])
    assert.equal(columnSumLayout(hopper, other, iterationOf(other, 3072, 256)), undefined);
});

test("rows that do not fit into shared memory are summed in registers", () => {
  const shared = (capability: string, rows: number): boolean | undefined =>
    layoutOf(rows, 512, { sums: 3 }, on(capability))?.isLoop;
  assert.deepEqual([shared("9.0", 1024), shared("9.0", 3072)], [false, false]);
  assert.deepEqual([shared("7.5", 1024), shared("7.5", 3072)], [false, true]);
});

test("with a fixed order every team has a row of 1024; without it the device decides how many there are", () => {
  for (const parallelism of [48, 108, 132, 170]) {
    for (const [rows, columns, isElementwise] of [
      [8192, 768, false],
      [16384, 384, false],
      [8192, 1600, false],
      [8192, 3072, false],
      [8192, 3072, true],
    ] as const) {
      const fixed = layoutOf(rows, columns, { isElementwise }, on("9.0", parallelism))!;
      const teams = (fixed.blocks * fixed.threads) / fixed.lanes;
      assert.deepEqual([fixed.isLoop, teams], [true, 1024], `${rows} × ${columns}`);
      const free = layoutOf(rows, columns, { isElementwise }, on("9.0", parallelism, false))!;
      const blocks = isElementwise ? 128 : parallelism;
      assert.deepEqual([free.isLoop, free.blocks, free.blocksPerSm > 1], [true, blocks, isElementwise]);
    }
  }
});

test("blocks are as large as registers allow, and chunks cover a row once", () => {
  const half: readonly Dtype[] = ["bf16", "f32", "f32", "f32"];
  for (const columns of [128, 384, 768, 1024, 1600, 3072, 8192]) {
    for (const sums of [1, 2, 3]) {
      const shape = { inputs: half, sums };
      const layout = layoutOf(16384, columns, shape, inAnyOrder);
      if (!layout) continue;
      const { threads, lanes, blocksPerSm, vectors, isCached, isPrefetched, width, chunks } = layout;
      const loaded = (isCached ? 14 : 0) + (isPrefetched ? 14 : 0);
      const bytes = 4 * vectors * (4 * sums + loaded) + 160;
      // Each scheduler has a quarter of the registers, for whole warps.
      const allocated = 128 * Math.ceil(threads / 128);
      assert.ok((allocated * blocksPerSm * bytes) / 4 <= registersPerSm, `${columns} columns, ${sums} sums`);
      assert.ok(lanes === 32 || threads / lanes <= 15, "a team of several warps has a barrier of its own");
      assert.deepEqual([chunks, width >= columns], [1, true]);
      const elements = layoutOf(16384, columns, { ...shape, isElementwise: true }, inAnyOrder)!;
      assert.equal(elements.chunks, Math.ceil(columns / elements.width));
    }
  }
});

test("if the order is free, several warps share a row whose columns leave a warp no registers to load the next row", () => {
  const teamOf = (columns: number, sums: number): number =>
    layoutOf(8192, columns, { inputs: ["bf16", "f32", "f32"], sums }, inAnyOrder)!.lanes;
  assert.deepEqual([teamOf(256, 3), teamOf(384, 1), teamOf(768, 9) > 32], [32, 32, true]);
  for (const sums of [2, 3, 5]) {
    const lanes = [1024, 2048, 4096].map((columns) => teamOf(columns, sums));
    assert.ok(lanes[0]! > 32 && lanes[1]! >= lanes[0]! && lanes[2]! >= lanes[1]!, `${lanes}`);
  }
  // No lane is idle for long.
  for (let columns = 68; columns <= 4096; columns += 68) {
    const { lanes, width } = layoutOf(8192, columns, {}, inAnyOrder)!;
    assert.ok(lanes === 32 || columns >= 0.75 * width, `${columns} columns in a team of ${lanes}`);
  }
});

test("a block has as few teams as process their rows in the fewest rounds", () => {
  for (const rows of [1024, 4096, 8192, 10_000, 16_384]) {
    const { threads, lanes, blocks } = layoutOf(rows, 1024, {}, inAnyOrder)!;
    const roundsOf = (teams: number): number => Math.ceil(rows / (blocks * teams));
    const teams = threads / lanes;
    assert.ok(teams === 1 || roundsOf(teams - 1) > roundsOf(teams), `${teams} teams for ${rows} rows`);
  }
});

test("a loop whose threads keep no rows in registers waits for every batch of loads", () => {
  const slowdown = (sums: number): number => {
    const kernel = kernelOf({ sums });
    const iteration = iterationOf(kernel, 8192, 1024);
    const layout = columnSumLayout(hopper, kernel, iteration)!;
    assert.equal(layout.isCached, sums < 4, `${sums} sums`);
    return columnSumSlowdown(hopper, kernel, iteration, layout);
  };
  assert.ok(slowdown(4) > 2 * slowdown(1), `${slowdown(4)} and ${slowdown(1)}`);
});

test("traffic is slower if too few loads are in flight: short rows in a fixed order", () => {
  const slowdownOf = (columns: number, target: ColumnSumTarget): number => {
    const kernel = kernelOf();
    const iteration = iterationOf(kernel, 16384, columns);
    return columnSumSlowdown(target, kernel, iteration, columnSumLayout(target, kernel, iteration)!);
  };
  assert.deepEqual([slowdownOf(768, hopper), slowdownOf(768, inAnyOrder)], [1, 1]);
  assert.ok(slowdownOf(72, hopper) > 2 * slowdownOf(72, inAnyOrder));
  // Two waves of blocks on a smaller device have half as many loads in flight as one.
  assert.deepEqual([slowdownOf(768, on("9.0", 128)), slowdownOf(768, on("9.0", 127)) > 1.2], [1, true]);
  const kernel = kernelOf();
  const few = iterationOf(kernel, 3072, 256);
  assert.equal(columnSumSlowdown(hopper, kernel, few, columnSumLayout(hopper, kernel, few)!), 1);
});
