/**
 * The gradient of a norm in a bf16 model, with the column sums of its weight, its bias and the preceding layer's bias, with dropout and
 * without. One launch each, compared with the time of its memory traffic.
 *
 *   node --conditions=holdfast-source dist/bench/gpu/row-sums.js [--sizes 4096x1024,8192x768] [--layouts] [--emulator --small]
 *
 * `--layouts` measures every way to distribute the rows over threads, each beside its estimated time, instead of the selected one.
 */

import type { Device } from "holdfast";
import { type Iteration, iterateRows, type RowKernel, type Stage, term } from "../../src/ir/index.js";
import { maxPartials } from "../../src/kernels/codegen/cuda/column-config.js";
import { type ColumnSumLayout, loopUsOf } from "../../src/kernels/codegen/cuda/column-sum-layout.js";
import { columnSumLayouts, cudaRowConfig } from "../../src/kernels/codegen/cuda/row-config.js";
import { trafficUs } from "../../src/kernels/cost-model.js";
import { encodeState, stateBytes } from "../../src/kernels/random/index.js";
import type { LaunchCommand, Runtime, Storage } from "../../src/runtime/index.js";
import { readOptions } from "../../test/support/command-line.js";
import { commonOptions, count, openGpu } from "./options.js";
import { Results } from "./results.js";
import { median } from "./training.js";

const defaultSizes = "4096x1024,16384x384,8192x768,32768x256,2048x2048,4096x4096,6000x400";
const options = readOptions(import.meta.url, {
  ...commonOptions,
  sizes: { type: "string", default: defaultSizes },
  calls: { type: "string", default: "200" },
  layouts: { type: "boolean", default: false },
  /** A small matrix: a trial on the emulator. */
  small: { type: "boolean", default: false },
});
const calls = count("calls", options.calls);
const sizes = (options.small ? "1024x256" : options.sizes)
  .split(",")
  .map((size) => size.split("x").map((extent) => count("sizes", extent)));

/** More than an L2 cache: launches take turns with their operands, so that each one reads device memory. */
const rotatedBytes = options.small ? 1 : 256 * 2 ** 20;
const dropped = 0.1;

/** dy, gain, x, mean, 1 / σ, the residual's gradient, the stored result in bf16, and the draw. */
const inputs = ["bf16", "f32", "f32", "f32", "f32", "f32", "bf16"] as const;
/** Bytes per element that a launch reads and writes: dy, x, the residual's gradient, and both results. */
const elementBytes = 2 + 4 + 4 + 4 + 2;

function kernelOf(hasDropout: boolean, columns: number): RowKernel {
  const [dy, gain, x, mean, perSpread, residual, rounded] = inputs.map((_, input) => term.load(input, "f32"));
  if (!dy || !gain || !x || !mean || !perSpread || !residual || !rounded) throw new Error("no inputs");
  const scaled = term.mul(dy, gain);
  const normed = term.mul(term.sub(x, mean), perSpread); // (x − mean) / σ
  const average = (stage: number) => term.mul(term.reduced(stage, "f32"), 1 / columns);
  const centred = term.sub(term.sub(scaled, average(0)), term.mul(normed, average(1)));
  const dx = term.add(residual, term.mul(centred, perSpread));
  const isKept = term.lt(term.load(inputs.length, "i32"), Math.round((1 - dropped) * 2 ** 16));
  const masked = term.select(isKept, term.mul(dx, 1 / (1 - dropped)), 0);
  const sums = [term.mul(dy, normed), dy, rounded];
  const stages: Stage[] = [
    { kind: "reduce", op: "add", value: scaled },
    { kind: "reduce", op: "add", value: term.mul(scaled, normed) },
    { kind: "store", output: 0, value: dx },
    { kind: "store", output: 1, value: hasDropout ? masked : dx },
    ...sums.map((value, sum): Stage => ({ kind: "store", output: 2 + sum, value })),
  ];
  return {
    name: hasDropout ? "normDropoutGradient" : "normGradient",
    inputs: [...inputs, ...(hasDropout ? (["draw"] as const) : [])],
    outputs: [
      { dtype: "f32", per: "element" },
      { dtype: "bf16", per: "element" },
      ...sums.map(() => ({ dtype: "f32", per: "column" }) as const),
    ],
    scalars: [],
    stages,
  };
}

function iterationOf({ inputs: { length }, outputs }: RowKernel, rows: number, columns: number): Iteration {
  const [whole, perRow, perColumn] = [
    [columns, 1],
    [1, 0],
    [0, 1],
  ];
  const ofInputs = [whole, perColumn, whole, perRow, perRow, whole, whole, whole].slice(0, length);
  const ofOutputs = outputs.map(({ per }) => (per === "column" ? perColumn : whole));
  return iterateRows([rows, columns], [...ofInputs, ...ofOutputs] as number[][], 1);
}

interface Matrix {
  readonly rows: number;
  readonly columns: number;
}

/** One set of a launch's operands, [R, C] unless noted. */
function operandsOf(runtime: Runtime, kernel: RowKernel, { rows, columns }: Matrix): readonly Storage[] {
  const room = (bytes: number, label: string): Storage => {
    const storage = runtime.arena.allocate(bytes, label);
    runtime.fill(storage, 0);
    return storage;
  };
  const elements = rows * columns;
  const rounded = room(2 * elements, "rounded");
  const partials = (): Storage => room(4 * maxPartials * columns, "partials"); // one row per block
  const state = room(stateBytes, "draw");
  runtime.upload([{ source: encodeState({ seed: 1n, counter: 1n }), target: state }]);
  return [
    room(2 * elements, "dy"),
    room(4 * columns, "gain"), // [C]
    room(4 * elements, "x"),
    room(4 * rows, "mean"), // [R]
    room(4 * rows, "perSpread"), // [R]
    room(4 * elements, "residual"),
    rounded,
    ...(kernel.inputs.includes("draw") ? [state] : []),
    room(4 * elements, "dx"),
    rounded,
    ...[partials(), partials(), partials()],
  ];
}

/** Microseconds of a launch: the median of five runs. */
function measure(
  runtime: Runtime,
  kernel: RowKernel,
  iteration: Iteration,
  sets: readonly (readonly Storage[])[],
  columnSums: ColumnSumLayout,
): number {
  const commands = sets.map((operands): LaunchCommand => {
    const { device } = runtime;
    const settings = { device, usesFastMath: true, keepsColumnOrder: false, columnSums };
    const config = cudaRowConfig(kernel, iteration, operands, settings);
    return {
      ...{ kind: "launch", op: kernel.name, source: config.print(), blocks: config.blocks },
      arguments: [...operands, ...config.sizes],
    };
  });
  const loaded = commands.map((command) => runtime.load([command]));
  const run = (times: number): number => {
    const startedAt = performance.now();
    for (let call = 0; call < times; call++) runtime.submit(loaded[call % loaded.length] ?? []);
    runtime.synchronize();
    return ((performance.now() - startedAt) * 1000) / times;
  };
  run(Math.ceil(calls / 10));
  return median(Array.from({ length: 5 }, () => run(calls)));
}

function describe({
  lanes,
  threads,
  vectors,
  blocks,
  isCached,
  isPrefetched,
  isLoop,
}: ColumnSumLayout): string {
  const loads = isPrefetched ? "next row" : isCached ? "row" : "batches";
  const teams = `${blocks} × ${threads / lanes} × ${lanes}, ${vectors} vectors`;
  return isLoop ? `${teams}, ${loads}` : `${teams}, a row each`;
}

function measureMatrix(device: Device, matrix: Matrix, hasDropout: boolean): readonly string[][] {
  const { runtime } = device;
  const { rows, columns } = matrix;
  const kernel = kernelOf(hasDropout, columns);
  const iteration = iterationOf(kernel, rows, columns);
  const target = { device: runtime.device, keepsOrder: false };
  const layouts = columnSumLayouts(target, kernel, iteration);
  const bytes = elementBytes * rows * columns;
  return device.step(() => {
    const sets = Array.from({ length: Math.ceil(rotatedBytes / bytes) }, () =>
      operandsOf(runtime, kernel, matrix),
    );
    const memoryUs = trafficUs(runtime.device, bytes);
    return (options.layouts ? layouts : layouts.slice(0, 1)).map((layout) => {
      const us = measure(runtime, kernel, iteration, sets, layout);
      return [
        `${rows} × ${columns}${hasDropout ? ", dropout" : ""}`,
        ...[us.toFixed(1), memoryUs.toFixed(1), (us / memoryUs).toFixed(2)],
        ...[layout.isLoop ? loopUsOf(target, kernel, iteration, layout).toFixed(1) : "", describe(layout)],
      ];
    });
  });
}

const results = new Results("row-sums", options);
const table = [["rows × columns", "µs", "traffic µs", "ratio", "estimate µs", "blocks × teams × threads"]];
const { device, close } = openGpu(options, {
  device: { memory: options.emulator ? "512MiB" : "8GiB", precision: "bf16" },
});
for (const [rows = 0, columns = 0] of sizes)
  for (const hasDropout of [false, true]) table.push(...measureMatrix(device, { rows, columns }, hasDropout));
results.table(table);
close();
results.finish();
