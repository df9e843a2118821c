/**
 * Float32 GEMMs on Hopper: the fastest DMMA tile and six bf16 products (bf16x6), their times and errors.
 *
 *   node dist/bench/gpu/f32-gemms.js [--only WORDS]
 *
 * An error is the root mean square over some elements of |C − exact| / Σ |a · b|, in units of 2⁻²⁴: for normal operands, then for positive ones.
 */

import { Device } from "../../src/index.js";
import { selectBf16x6 } from "../../src/kernels/gemm/bf16x6/configs.js";
import { bf16x6ConfigOf, lowerBf16x6Gemms } from "../../src/kernels/gemm/bf16x6/launch.js";
import type { GemmProblem } from "../../src/kernels/gemm/desc.js";
import { listDmmaConfigs } from "../../src/kernels/gemm/dmma/configs.js";
import { lowerDmmaGemms } from "../../src/kernels/gemm/dmma/launch.js";
import { submit } from "../../src/kernels/submit.js";
import type { LaunchCommand, Storage } from "../../src/runtime/index.js";
import { readOptions } from "../../test/support/command-line.js";
import { timeCommandsUs } from "./time-commands.js";

const options = readOptions(import.meta.url, { only: { type: "string", default: "" } });

/** Name, layouts of A and B (T: transposed in memory), m, n, k. */
const shapes: readonly (readonly [string, string, number, number, number])[] = [
  ["cube", "NN", 4096, 4096, 4096],
  ["MLP forward", "NT", 1024, 4096, 4096],
  ["MLP input gradient", "NN", 1024, 4096, 4096],
  ["MLP weight gradient", "TN", 4096, 4096, 1024],
  ["characters up", "NT", 16384, 1536, 384],
  ["characters proj", "NT", 16384, 384, 384],
  ["characters down", "NN", 16384, 384, 1536],
  ["characters proj weights", "TN", 384, 384, 16384],
  ["characters up weights", "TN", 1536, 384, 16384],
  ["CrossAsset a", "NN", 3072, 1024, 256],
  ["CrossAsset b", "NN", 3072, 256, 1024],
  ["CrossAsset c", "NN", 3072, 256, 256],
  ["CrossAsset d", "TN", 1024, 256, 3072],
  ["CrossAsset e", "TN", 256, 256, 3072],
  ["small", "NT", 512, 512, 512],
  ["narrow", "NT", 8192, 64, 512],
  ["GPT-2 head", "NT", 2048, 50304, 768],
];

const device = new Device("cuda", { precision: "f32", print: () => {} });
const { runtime } = device;

const timeLaunch = (command: LaunchCommand): number => timeCommandsUs(runtime, [command]);

/** Normal numbers, or their magnitudes. */
function draw(length: number, isPositive: boolean): Float32Array {
  return Float32Array.from({ length }, () => {
    const normal = Math.sqrt(-2 * Math.log(1 - Math.random())) * Math.cos(2 * Math.PI * Math.random());
    return isPositive ? Math.abs(normal) : normal;
  });
}

const rows: string[][] = [
  [
    "GEMM",
    "m×n×k",
    "DMMA µs",
    "TFLOP/s",
    "bf16x6 µs",
    "TFLOP/s",
    "by splits of K",
    "selected",
    "DMMA errors",
    "bf16x6 errors",
  ],
];
for (const [name, layout, m, n, k] of shapes) {
  if (!name.includes(options.only)) continue;
  const [isATransposed, isBTransposed] = [layout[0] === "T", layout[1] === "T"];
  const storages: readonly (Storage | undefined)[] = [m * k, n * k, m * n].map((size, index) =>
    runtime.arena.allocate(4 * size, `matrix ${index}`),
  );
  const [a, b, c] = storages;
  if (!a || !b || !c) throw new Error("three matrices");
  const problem: GemmProblem = {
    ...{ dtype: "f32", m, n, k },
    a: { storage: a, rowStride: isATransposed ? m : k, isTransposed: isATransposed },
    b: { storage: b, rowStride: isBTransposed ? k : n, isTransposed: isBTransposed },
    c: { storage: c, rowStride: n },
  };
  const dmma = listDmmaConfigs(runtime.device, "f32", [problem]).map((config) =>
    lowerDmmaGemms([problem], config, "dmma"),
  );
  const { config } = selectBf16x6(runtime.device, "f32", problem)!;
  const candidates = ([1, 2, 4, 8] as const).map((splitsK) =>
    lowerBf16x6Gemms([problem], { ...config, splitsK }, "bf16x6"),
  );
  const errors = { dmma: [] as number[], bf16x6: [] as number[] };
  for (const isPositive of [false, true]) {
    const [left, right] = [draw(m * k, isPositive), draw(n * k, isPositive)];
    runtime.upload([
      { source: left, target: a },
      { source: right, target: b },
    ]);
    for (const kind of ["dmma", "bf16x6"] as const) {
      const command = kind === "dmma" ? dmma[0] : lowerBf16x6Gemms([problem], config, "bf16x6");
      if (!command) continue;
      submit(runtime, [command]);
      const actual = new Float32Array(runtime.read(c).slice().buffer);
      let squares = 0;
      for (let sample = 0; sample < 400; sample++) {
        const [row, column] = [(sample * 7919) % m, (sample * 104_729) % n];
        let [exact, size] = [0, 0];
        for (let term = 0; term < k; term++) {
          const product =
            left[isATransposed ? term * m + row : row * k + term]! *
            right[isBTransposed ? column * k + term : term * n + column]!;
          exact += product;
          size += Math.abs(product);
        }
        squares += (Math.abs(actual[row * n + column]! - exact) / (size * 2 ** -24)) ** 2;
      }
      errors[kind].push(Math.sqrt(squares / 400));
    }
  }
  const dmmaUs = Math.min(...dmma.map(timeLaunch));
  const times = candidates.map(timeLaunch);
  const best = times[[1, 2, 4, 8].indexOf(config.splitsK)]!;
  const rate = (us: number): string => ((2 * m * n * k) / us / 1e6).toFixed(1);
  const text = (list: readonly number[]): string => list.map((error) => error.toFixed(4)).join(" ");
  rows.push([
    ...[`${name} ${layout}`, `${m}×${n}×${k}`, dmmaUs.toFixed(1), rate(dmmaUs), best.toFixed(1), rate(best)],
    times.map((us) => us.toFixed(1)).join(" "),
    `${bf16x6ConfigOf({ device: runtime.device, settings: runtime.settings }, problem) ? "bf16x6" : "DMMA"} /${config.splitsK}`,
    ...[text(errors.dmma), text(errors.bf16x6)],
  ]);
  for (const storage of [c, b, a]) runtime.arena.free(storage);
}
const widths = rows[0]!.map((_, column) => Math.max(...rows.map((row) => row[column]!.length)));
for (const row of rows) console.log(row.map((cell, column) => cell.padStart(widths[column]!)).join("  "));
device.close();
