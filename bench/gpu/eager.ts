/**
 * `npm run bench:gpu -- --only eager`: CrossAsset's training step, eager, in float32, TF32 and bf16. First
 * the time of a step alone. Separate runs then count launches, copies and waits, and measure where the host's
 * time goes and how busy the GPU is. `--peer FILE` also runs PyTorch's script (`--peer-modes eager,graph`).
 */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { setTimeout as pause } from "node:timers/promises";
import { formatBytes } from "holdfast";
import type { GemmPrecision } from "../../src/driver/index.js";
import { readOptions } from "../../test/support/command-line.js";
import { type Counts, countCalls, noCounts } from "./counted-driver.js";
import { type CommonOptions, commonOptions, count, type Gpu, openGpu } from "./options.js";
import { type PeerRun, runPeer } from "./peers.js";
import { Results } from "./results.js";
import { makeRows, median, type Rows, Training } from "./training.js";

const options = readOptions(import.meta.url, {
  ...commonOptions,
  batch: { type: "string", default: "256" },
  rows: { type: "string", default: "65536" },
  groups: { type: "string", default: "12" },
  steps: { type: "string", default: "50" },
  precisions: { type: "string", default: "f32,tf32,bf16" },
  peer: { type: "string", default: "" },
  "peer-modes": { type: "string", default: "eager" },
});
const [batch, rowCount] = [count("batch", options.batch), count("rows", options.rows)];
const [groups, stepsOfGroup] = [count("groups", options.groups), count("steps", options.steps)];
/** V8 optimises hot code, and has settled after some hundreds of steps. */
const warmUp = options["emulator"] ? 1 : 500;
/** The target for the TF32 step. */
const targetMs = 2;

interface Timing {
  readonly stepMs: number;
  readonly bestMs: number;
  readonly worstMs: number;
  /** The share of time in which the GPU was busy, from the driver; undefined if unknown. */
  readonly busyShare: number | undefined;
  readonly budgetBytes: number;
  readonly arenaBytes: number;
}

async function time(gpu: Gpu, rows: Rows): Promise<Timing> {
  const training = new Training(gpu.device, rows, { batch });
  training.steps(warmUp);
  const times = Array.from({ length: groups }, () => {
    const startedAt = performance.now();
    training.steps(stepsOfGroup);
    return (performance.now() - startedAt) / stepsOfGroup;
  });
  const { runtime } = gpu.device;
  return {
    stepMs: median(times),
    bestMs: Math.min(...times),
    worstMs: Math.max(...times),
    busyShare: await sampleBusy(() => training.steps(Math.ceil(2500 / median(times)))),
    budgetBytes: runtime.budget.used,
    arenaBytes: runtime.arena.figures.highWater,
  };
}

/** The median utilisation that nvidia-smi samples while a function blocks this thread. */
async function sampleBusy(run: () => void): Promise<number | undefined> {
  if (options["emulator"]) return undefined;
  const query = ["--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "-lms", "100"];
  const sampler = spawn("nvidia-smi", query, { stdio: ["ignore", "pipe", "ignore"] });
  const isGone = once(sampler, "close").catch(() => undefined);
  let text = "";
  sampler.stdout.setEncoding("utf8").on("data", (chunk: string) => {
    text += chunk;
  });
  await pause(300);
  text = "";
  run();
  sampler.kill();
  await isGone;
  const samples = text.trim().split("\n").map(Number).filter(Number.isFinite);
  // A sample's figure covers the time before it.
  const settled = samples.slice(Math.floor(samples.length / 2));
  return settled.length === 0 ? undefined : median(settled) / 100;
}

interface Split extends Counts {
  /** From the same run, with the clock read twice in every call. */
  readonly stepMs: number;
}

function countOneStep(precision: GemmPrecision): Split {
  const counted: { calls?: ReturnType<typeof countCalls> } = {};
  const gpu = openGpu(options, {
    device: { precision },
    wrap: (driver) => {
      counted.calls = countCalls(driver);
      return counted.calls.driver;
    },
  });
  try {
    // A whole number of epochs; otherwise the upload of an order would count in some steps and not in others.
    const training = new Training(gpu.device, makeRows(10 * batch, "random"), { batch });
    training.steps(10);
    counted.calls?.reset();
    const startedAt = performance.now();
    training.steps(10);
    const stepMs = (performance.now() - startedAt) / 10;
    const counts = counted.calls?.counts ?? noCounts();
    const perStep = Object.entries(counts).map(([name, value]) => [name, value / 10]);
    return { ...(Object.fromEntries(perStep) as Counts), stepMs };
  } finally {
    gpu.close();
  }
}

const number = (value: number, digits = 0): string => value.toFixed(digits);

function printTimes(results: Results, timings: ReadonlyMap<string, Timing>, peers: readonly PeerRun[]): void {
  results.line(`a step of ${batch} rows, ${groups} groups of ${stepsOfGroup} steps after ${warmUp}; ms`);
  results.table([
    ["", "median", "best", "worst", "samples/s", "GPU busy", "budget", "arena"],
    ...[...timings].map(([precision, timing]) => [
      `Holdfast eager ${precision}`,
      number(timing.stepMs, 3),
      number(timing.bestMs, 3),
      number(timing.worstMs, 3),
      number((batch / timing.stepMs) * 1000),
      timing.busyShare === undefined ? "–" : `${number(100 * timing.busyShare)} %`,
      formatBytes(timing.budgetBytes),
      formatBytes(timing.arenaBytes),
    ]),
    ...peers.map(({ name, precision, stepMs }) => {
      const ours = timings.get(precision)?.stepMs;
      const ratio = ours === undefined ? "" : `${number(stepMs / ours, 2)} × ours`;
      return [`${name} ${precision}`, number(stepMs, 3), "", "", number((batch / stepMs) * 1000), ratio];
    }),
  ]);
}

function printCounts(results: Results, splits: ReadonlyMap<string, Split>): void {
  const rowOf = (title: string, cell: (split: Split) => string): string[] => [
    title,
    ...[...splits.values()].map(cell),
  ];
  results.line(
    "a step in the counted run (the order of the rows is uploaded once an epoch, here every 10 steps)",
  );
  results.table([
    ["", ...splits.keys()],
    rowOf("launches of native kernels", (split) => number(split.launches, 1)),
    rowOf("GEMMs of the library", (split) => number(split.gemms, 1)),
    rowOf("fills", (split) => number(split.fills, 1)),
    rowOf("copies on the device", (split) => number(split.copiesOnDevice, 1)),
    rowOf("copies up", (split) => `${number(split.copiesUp, 1)} (${number(split.bytesUp)} B)`),
    rowOf("copies down", (split) => `${number(split.copiesDown, 1)} (${number(split.bytesDown)} B)`),
    rowOf("waits of the host", (split) => number(split.waits, 1)),
    rowOf("kernels loaded", (split) => number(split.loads + split.algorithms, 1)),
    rowOf("step ms", (split) => number(split.stepMs, 3)),
    rowOf("  waiting for the device", (split) => number(split.waitMs, 3)),
    rowOf("  launching", (split) => number(split.launchMs, 3)),
    rowOf("  other driver calls", (split) =>
      number(split.copyMs + split.loadMs + split.algorithmMs + split.otherMs, 3),
    ),
    rowOf("  JavaScript", (split) => number(jsMsOf(split), 3)),
  ]);
}

function jsMsOf({ stepMs, waitMs, launchMs, copyMs, loadMs, algorithmMs, otherMs }: Split): number {
  return stepMs - waitMs - launchMs - copyMs - loadMs - algorithmMs - otherMs;
}

async function main(common: CommonOptions): Promise<void> {
  const results = new Results("eager", common);
  const timings = new Map<string, Timing>();
  const splits = new Map<string, Split>();
  const rows = makeRows(rowCount, "random");
  for (const precision of options.precisions.split(",") as GemmPrecision[]) {
    await results.attempt(`timing in ${precision}`, async () => {
      const gpu = openGpu(common, { device: { precision } });
      try {
        const timing = await time(gpu, rows);
        timings.set(precision, timing);
        results.line(`${precision}: ${number(timing.stepMs, 3)} ms a step`);
      } finally {
        gpu.close();
      }
    });
    await results.attempt(`counts in ${precision}`, () => {
      splits.set(precision, countOneStep(precision));
    });
  }
  const modes = options["peer-modes"].split(",");
  const peer = options.peer === "" ? undefined : runPeer(options.peer, modes, 120_000);
  results.line();
  printTimes(results, timings, peer?.runs ?? []);
  printCounts(results, splits);
  if (peer) {
    results.line(peer.text);
    if (peer.failure) results.aim(false, peer.failure);
  }
  const tf32 = timings.get("tf32")?.stepMs;
  if (tf32 !== undefined)
    results.aim(tf32 < targetMs, `eager step in TF32: ${number(tf32, 2)} ms; target ${targetMs}`);
  for (const { name, precision, stepMs } of peer?.runs ?? []) {
    const ours = timings.get(precision)?.stepMs;
    if (ours !== undefined)
      results.aim(ours < stepMs, `${precision}: ours ${number(ours, 2)} ms, ${name} ${number(stepMs, 2)} ms`);
  }
  results.finish();
}

await main(options);
