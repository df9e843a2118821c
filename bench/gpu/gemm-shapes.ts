/**
 * The GEMMs of larger training steps: the fastest of cuBLASLt's algorithms, the fastest native kernel, and what autotuning selects.
 *
 *   node dist/bench/gpu/gemm-shapes.js [--precision tf32,bf16] [--only WORDS] [--limit 200]
 *
 * N and T are the layouts of A and B; T means transposed in memory. `--only` selects shapes whose names contain the words.
 */

import { timeCandidates } from "../../src/compile/autotune/gemm-times.js";
import { fastestOf } from "../../src/compile/autotune/gemms.js";
import type { GemmCall } from "../../src/compile/program/program.js";
import { Device } from "../../src/index.js";
import { firstNativeAlgorithm, transposeLaunchOf } from "../../src/kernels/index.js";
import type { Runtime } from "../../src/runtime/index.js";
import { systemClock } from "../../src/units/index.js";
import { readOptions } from "../../test/support/command-line.js";
import { timeCommandsUs } from "./time-commands.js";

const options = readOptions(import.meta.url, {
  precision: { type: "string", default: "bf16,tf32" },
  only: { type: "string", default: "" },
  /** Milliseconds for one GEMM. */
  limit: { type: "string", default: "200" },
});

type Problem = GemmCall["problem"];
type Precision = "bf16" | "tf32";

interface Layer {
  readonly name: string;
  readonly rows: number;
  readonly inputs: number;
  readonly outputs: number;
}

const layers: readonly Layer[] = [
  { name: "cube", rows: 4096, inputs: 4096, outputs: 4096 },
  { name: "wide MLP", rows: 1024, inputs: 4096, outputs: 4096 },
  { name: "first layer", rows: 1024, inputs: 784, outputs: 4096 },
  { name: "GPT-2 up", rows: 8192, inputs: 768, outputs: 3072 },
  { name: "GPT-2 down", rows: 8192, inputs: 3072, outputs: 768 },
  { name: "GPT-2 qkv", rows: 8192, inputs: 768, outputs: 2304 },
  { name: "GPT-2 proj", rows: 8192, inputs: 768, outputs: 768 },
  { name: "characters up", rows: 16_384, inputs: 384, outputs: 1536 },
  { name: "characters down", rows: 16_384, inputs: 1536, outputs: 384 },
  { name: "characters qkv", rows: 16_384, inputs: 384, outputs: 1152 },
  { name: "characters proj", rows: 16_384, inputs: 384, outputs: 384 },
  { name: "GPT-2 head", rows: 8192, inputs: 768, outputs: 50304 },
];

interface Shape {
  readonly m: number;
  readonly n: number;
  readonly k: number;
  readonly isATransposed: boolean;
  readonly isBTransposed: boolean;
}

/** The GEMMs of a layer: y = x · Wᵀ, the gradient of x, that of W; and the two gradients with all operands K-major. */
const gemmsOf: Readonly<Record<string, (layer: Layer) => Shape>> = {
  forward: ({ rows, inputs, outputs }) => shapeOf(rows, outputs, inputs, "NT"),
  "input gradient": ({ rows, inputs, outputs }) => shapeOf(rows, inputs, outputs, "NN"),
  "input gradient, K-major": ({ rows, inputs, outputs }) => shapeOf(rows, inputs, outputs, "NT"),
  "weight gradient": ({ rows, inputs, outputs }) => shapeOf(outputs, inputs, rows, "TN"),
  "weight gradient, one K-major": ({ rows, inputs, outputs }) => shapeOf(outputs, inputs, rows, "TT"),
  "weight gradient, K-major": ({ rows, inputs, outputs }) => shapeOf(outputs, inputs, rows, "NT"),
};

function shapeOf(m: number, n: number, k: number, layout: string): Shape {
  return { m, n, k, isATransposed: layout[0] === "T", isBTransposed: layout[1] === "T" };
}

function problemOf({ m, n, k, isATransposed, isBTransposed }: Shape, precision: Precision): Problem {
  const [dtype, bytes] = precision === "bf16" ? (["bf16", 2] as const) : (["f32", 4] as const);
  let id = 0;
  const slice = (size: number, label: string) => ({
    buffer: { id: id++, bytes: size, label },
    offset: 0,
    size,
  });
  return {
    ...{ dtype, resultDtype: "f32", m, n, k },
    a: { slice: slice(m * k * bytes, "a"), rowStride: isATransposed ? m : k, isTransposed: isATransposed },
    b: { slice: slice(n * k * bytes, "b"), rowStride: isBTransposed ? k : n, isTransposed: isBTransposed },
    c: { slice: slice(m * n * 4, "c"), rowStride: n },
  };
}

/** Microseconds to transpose a matrix of floats. */
function timeTranspose(runtime: Runtime, rows: number, columns: number): number {
  const size = rows * columns * 4;
  const [from, to] = ["from", "to"].map((label) => runtime.arena.allocate(size, label));
  if (!from || !to) throw new Error("two matrices");
  const launch = transposeLaunchOf([{ from, to, rows, columns, rowStride: columns }]);
  const us = timeCommandsUs(runtime, [{ kind: "launch", op: "transpose", ...launch }]);
  for (const storage of [to, from]) runtime.arena.free(storage);
  return us;
}

const text = (value: number, digits = 1): string => (Number.isFinite(value) ? value.toFixed(digits) : "–");
const columns = [
  "precision",
  "GEMM",
  "m×n×k",
  "cuBLASLt µs",
  "its TFLOP/s",
  "native µs",
  "kept",
  "kept/cuBLASLt",
];
const rows: string[][] = [];
for (const precision of options.precision.split(",") as Precision[]) {
  const device = new Device("cuda", { precision, print: () => {} });
  const { runtime } = device;
  for (const layer of layers) {
    for (const [name, gemmOf] of Object.entries(gemmsOf)) {
      if (precision === "bf16" && name.includes("K-major")) continue;
      const title = `${layer.name}, ${name}`;
      if (!title.includes(options.only)) continue;
      const shape = gemmOf(layer);
      const { m, n, k } = shape;
      const limitMs = Number(options.limit);
      const times = timeCandidates(runtime, problemOf(shape, precision), { limitMs, clock: systemClock });
      const best = (isNative: boolean): number =>
        Math.min(...[...times].flatMap(([id, us]) => (id <= firstNativeAlgorithm === isNative ? [us] : [])));
      const kept = fastestOf(runtime, times);
      const library = best(false);
      rows.push([
        ...[precision, title, `${m}×${n}×${k}`, text(library), text((2 * m * n * k) / library / 1e6, 0)],
        ...[text(best(true)), String(kept?.choice ?? "–"), text((kept?.tunedUs ?? Number.NaN) / library, 3)],
      ]);
    }
    if (precision !== "tf32") continue;
    for (const [what, height, width] of [
      ["W", layer.outputs, layer.inputs],
      ["x", layer.rows, layer.inputs],
    ] as const) {
      const us = timeTranspose(runtime, height, width);
      const title = `${layer.name}, transpose of ${what}`;
      const gbs = `${text((8 * height * width) / us / 1e3, 0)} GB/s`;
      if (title.includes(options.only))
        rows.push([precision, title, `${height}×${width}`, "", "", text(us), "", gbs]);
    }
  }
  device.close();
}
const widths = columns.map((name, index) =>
  Math.max(name.length, ...rows.map((row) => (row[index] ?? "").length)),
);
for (const row of [columns, ...rows])
  console.log(row.map((cell, index) => cell.padEnd(widths[index] ?? 0)).join("  "));
