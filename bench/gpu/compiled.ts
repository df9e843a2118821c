/**
 * `npm run bench:gpu -- --only compiled`: CrossAsset's compiled training step in float32, TF32 and bf16: rows
 * gathered on the device by index, forward, backward, clip and AdamW as one launch. Prints the step's time,
 * the host's share, launches, copies, memory and the time to the first step. A table of kernels follows,
 * whose times add up to the step. `--torch FILE` and `--jax FILE` run the peers' scripts in the same run.
 */

import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { crossasset, formatBytes, fromTyped, manualSeed, nn, optim, type Tensor } from "holdfast";
import type { GemmPrecision } from "../../src/driver/index.js";
import type { StepPlanReport } from "../../src/records/index.js";
import { latestPlanOf } from "../../src/tensor/index.js";
import { readOptions } from "../../test/support/command-line.js";
import { type CommonOptions, commonOptions, count, type Gpu, openGpu } from "./options.js";
import { type PeerRun, runPeer } from "./peers.js";
import { Results } from "./results.js";
import { C, F, makeRows, median, type Rows, S } from "./training.js";

const options = readOptions(import.meta.url, {
  ...commonOptions,
  batch: { type: "string", default: "256" },
  rows: { type: "string", default: "65536" },
  groups: { type: "string", default: "15" },
  steps: { type: "string", default: "100" },
  precisions: { type: "string", default: "f32,tf32,bf16" },
  kernels: { type: "boolean", default: false },
  curves: { type: "string", default: "500" },
  torch: { type: "string", default: "" },
  "torch-modes": { type: "string", default: "compilegraph" },
  jax: { type: "string", default: "" },
  // Measures only this precision, and writes its figures to this file.
  figures: { type: "string", default: "" },
});
const [batch, rowCount] = [count("batch", options.batch), count("rows", options.rows)];
const [groups, stepsOfGroup] = [count("groups", options.groups), count("steps", options.steps)];
const warmUp = options["emulator"] ? 1 : 200;
/** Steps that the host submits in a row while its time is measured. */
const inARow = 8;
/** The target for a step, in ms. */
const goals: Readonly<Record<string, number>> = { f32: 0.9, tf32: 0.3, bf16: 0.2 };

interface Measured {
  readonly stepMs: number;
  readonly bestMs: number;
  readonly hostMs: number;
  readonly firstMs: number;
  readonly nodes: number;
  readonly copiedBytes: number;
  readonly planBytes: number;
  readonly budgetBytes: number;
  readonly loss: number;
  readonly kernels: readonly KernelTime[];
}

interface KernelTime {
  readonly op: string;
  readonly kernel: string;
  readonly us: number;
}

/** The step and its arguments: every call has other rows, whose indices are on the device already. */
function prepare({ device }: Gpu, { count: all, x, labels }: Rows) {
  manualSeed(42);
  const model = new crossasset.CrossAsset().to(device);
  const parameters = model.parameters();
  const optimizer = new optim.AdamW(parameters, { lr: 1e-3 });
  const data = fromTyped(x, [all, S, F], { device });
  const targets = fromTyped(labels, [all, S], { device });
  const picks = Int32Array.from({ length: all }, (_, index) => (index * 40503) % all);
  const order = fromTyped(picks, [Math.floor(all / batch), batch], { device });
  const train = (rows: Tensor): { readonly loss: Tensor } => {
    const logits = model.forward(data.indexSelect(0, rows)).reshape([-1, C]);
    const loss = nn.functional.crossEntropy(logits, targets.indexSelect(0, rows).reshape([-1]));
    loss.backward();
    optim.clipGradNorm(parameters, 1, { errorIfNonfinite: false });
    optimizer.step();
    optimizer.zeroGrad();
    return { loss };
  };
  const step = device.compile(train);
  const batches = Array.from({ length: order.shape[0] ?? 1 }, (_, index) => order.select(0, index));
  let next = 0;
  const nextBatch = (): Tensor => batches[next++ % batches.length]!;
  return {
    step,
    run: () => step(nextBatch()),
    runEager: () => device.step(() => train(nextBatch()).loss.item()),
  };
}

/** The losses of `steps` steps in float32, eager or compiled, from the same start. */
function lossesOf(common: CommonOptions, rows: Rows, steps: number, mode: "eager" | "compiled"): number[] {
  const gpu = openGpu(common, { device: { precision: "f32" } });
  try {
    const { run, runEager, step } = prepare(gpu, rows);
    if (mode === "eager") return Array.from({ length: steps }, runEager);
    for (let index = 0; index < steps; index++) run();
    step.flush();
    return [...(step.history["loss"] ?? [])];
  } finally {
    gpu.close();
  }
}

/** Checks that eager and compiled steps learn the same, and that two compiled runs agree to the bit. */
function compareCurves(results: Results, common: CommonOptions, rows: Rows): void {
  const steps = count("curves", options.curves);
  const [eager, compiled, again] = (["eager", "compiled", "compiled"] as const).map((mode) =>
    lossesOf(common, rows, steps, mode),
  );
  const differences = eager!.map((loss, index) => Math.abs(loss - compiled![index]!) / loss);
  const worst = Math.max(...differences);
  results.line(
    `losses of ${steps} steps in f32, eager and compiled: ${[0, 9, 99, steps - 1]
      .map((index) => `step ${index + 1}: ${eager![index]?.toFixed(6)} ${compiled![index]?.toFixed(6)}`)
      .join("; ")}`,
  );
  results.aim(
    worst <= 1e-4,
    `curves: eager and compiled differ by at most ${worst.toExponential(1)} over ${steps} steps; 1e-4 allowed`,
  );
  const differing = compiled!.filter((loss, index) => loss !== again![index]).length;
  results.aim(differing === 0, `curves: ${differing} of ${steps} losses differ between two compiled runs`);
}

function measure(common: CommonOptions, rows: Rows, precision: GemmPrecision): Measured {
  // No wrapper around the driver: counting calls would add to their time.
  const gpu = openGpu(common, { device: { precision } });
  try {
    const { runtime } = gpu.device;
    const { step, run } = prepare(gpu, rows);
    const startedAt = performance.now();
    run();
    runtime.synchronize();
    const firstMs = performance.now() - startedAt;
    for (let index = 0; index < warmUp; index++) run();
    runtime.synchronize();
    const [times, hosts]: number[][] = [[], []];
    const copiedBefore = bytesCopied(gpu);
    for (let group = 0; group < groups; group++) {
      const from = performance.now();
      for (let index = 0; index < stepsOfGroup; index++) run();
      const issued = performance.now();
      runtime.synchronize();
      times!.push((performance.now() - from) / stepsOfGroup);
      hosts!.push((issued - from) / stepsOfGroup);
    }
    const copied = bytesCopied(gpu) - copiedBefore;
    // As in training, one step after the other, but few enough that the host never waits for the device's
    // queue.
    const host: number[] = [];
    for (let index = 0; index < (options["emulator"] ? 2 : 300); index++) {
      runtime.synchronize();
      run();
      const from = performance.now();
      for (let count = 0; count < inARow; count++) run();
      host.push((performance.now() - from) / inARow);
    }
    const plan = latestPlanOf(step)!;
    const loss = run().loss.item();
    return {
      stepMs: median(times!),
      bestMs: Math.min(...times!),
      hostMs: median(host),
      firstMs,
      nodes: nodesOf(plan.replayable.nodes),
      copiedBytes: copied / (groups * stepsOfGroup),
      planBytes: plan.planned.plan.bytes,
      budgetBytes: runtime.budget.used,
      loss,
      kernels: options.kernels ? kernelsOf(step.report({ times: true })) : [],
    };
  } finally {
    gpu.close();
  }
}

/** To and from the host. */
function bytesCopied({ device }: Gpu): number {
  const { up, down } = device.runtime.diagnostics().transfers;
  return up.bytes + down.bytes;
}

function nodesOf(
  nodes: { readonly kernel: number; readonly copy: number; readonly fill: number } | undefined,
): number {
  return nodes ? nodes.kernel + nodes.copy + nodes.fill : 0;
}

/** Of the only plan: the time that each call adds to the step. */
function kernelsOf([plan]: readonly StepPlanReport[]): KernelTime[] {
  return (plan?.calls ?? []).map(({ op, kernel, us = 0 }) => ({ op, kernel, us }));
}

const number = (value: number, digits = 0): string => value.toFixed(digits);

function tell(results: Results, measured: ReadonlyMap<string, Measured>, peers: readonly PeerRun[]): void {
  results.line(`a compiled step of ${batch} rows, ${groups} groups of ${stepsOfGroup} steps after ${warmUp}`);
  results.table([
    ["", "median ms", "best", "samples/s", "goal", "peer / ours"],
    ...[...measured].map(([precision, figures]) => [
      `Holdfast compiled ${precision}`,
      number(figures.stepMs, 4),
      number(figures.bestMs, 4),
      number((batch / figures.stepMs) * 1000),
      number(goals[precision] ?? 0, 2),
      "",
    ]),
    ...peers.map(({ name, precision, stepMs }) => {
      const ours = measured.get(precision)?.stepMs;
      const ratio = ours === undefined ? "" : number(stepMs / ours, 2);
      return [`${name} ${precision}`, number(stepMs, 4), "", number((batch / stepMs) * 1000), "", ratio];
    }),
  ]);
  const rowOf = (title: string, cell: (figures: Measured) => string): string[] => [
    title,
    ...[...measured.values()].map(cell),
  ];
  results.table([
    ["", ...measured.keys()],
    rowOf("nodes of the graph", (figures) => number(figures.nodes)),
    rowOf("host's time for a step, µs", (figures) => number(1000 * figures.hostMs, 1)),
    rowOf("bytes to and from the host, a step", (figures) => number(figures.copiedBytes, 1)),
    rowOf("memory of the plan", (figures) => formatBytes(figures.planBytes)),
    rowOf("budget in use, with the data set", (figures) => formatBytes(figures.budgetBytes)),
    rowOf("first call (trace to replay), ms", (figures) => number(figures.firstMs)),
    rowOf("loss at the end", (figures) => number(figures.loss, 4)),
  ]);
  for (const [precision, { kernels, stepMs }] of measured) {
    if (kernels.length === 0) continue;
    const total = kernels.reduce((sum, { us }) => sum + us, 0);
    results.line(
      `kernels of the ${precision} step, with the time that each adds to a graph; in total ${number(total, 1)} µs of ${number(1000 * stepMs, 1)}`,
    );
    results.table([
      ["", "op", "kernel", "µs"],
      ...kernels.map(({ op, kernel, us }, index) => [
        String(index),
        op.slice(0, 60),
        kernel.slice(0, 60),
        number(us, 2),
      ]),
    ]);
    const byKernel = new Map<string, { us: number; times: number }>();
    for (const { kernel, us } of kernels) {
      const sum = byKernel.get(kernel) ?? { us: 0, times: 0 };
      byKernel.set(kernel, { us: sum.us + us, times: sum.times + 1 });
    }
    results.table([
      ["kernel", "times", "µs"],
      ...[...byKernel]
        .sort(([, a], [, b]) => b.us - a.us)
        .map(([kernel, { us, times }]) => [kernel.slice(0, 60), String(times), number(us, 1)]),
    ]);
  }
}

/** In its own process, as a user trains. A second device of one process runs its kernels a few percent slower. */
function measureAlone(precision: string): Measured {
  const folder = mkdtempSync(join(tmpdir(), "holdfast-bench-"));
  const figures = join(folder, "figures.json");
  const args = ["--precisions", precision, "--figures", figures, "--torch", "", "--jax", ""];
  try {
    const { status } = spawnSync(
      process.execPath,
      [import.meta.filename, ...process.argv.slice(2), ...args],
      {
        stdio: ["ignore", "ignore", "inherit"],
      },
    );
    if (status !== 0) throw new Error(`The process ended with ${status}.`);
    return JSON.parse(readFileSync(figures, "utf8")) as Measured;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

async function main(common: CommonOptions): Promise<void> {
  const precisions = options.precisions.split(",") as GemmPrecision[];
  if (options.figures !== "") {
    const [precision = "f32"] = precisions;
    writeFileSync(options.figures, JSON.stringify(measure(common, makeRows(rowCount, "random"), precision)));
    return;
  }
  const results = new Results("compiled", common);
  const measured = new Map<string, Measured>();
  for (const precision of precisions) {
    await results.attempt(`the step in ${precision}`, () => {
      measured.set(precision, measureAlone(precision));
    });
  }
  const rows = makeRows(rowCount, "random");
  await results.attempt("the curves", () => compareCurves(results, common, rows));
  const peers = [
    ...(options.torch === "" ? [] : [runPeer(options.torch, options["torch-modes"].split(","), 170_000)]),
    ...(options.jax === "" ? [] : [runPeer(options.jax, [], 240_000)]),
  ];
  tell(
    results,
    measured,
    peers.flatMap(({ runs }) => runs),
  );
  for (const { text, failure } of peers) {
    results.line(text);
    if (failure) results.aim(false, failure);
  }
  for (const { name, precision, stepMs } of peers.flatMap(({ runs }) => runs)) {
    const ours = measured.get(precision)?.stepMs;
    if (ours !== undefined)
      results.aim(ours < stepMs, `${precision}: ours ${number(ours, 3)} ms, ${name} ${number(stepMs, 3)} ms`);
  }
  for (const [precision, { stepMs, hostMs }] of measured) {
    results.aim(
      stepMs <= goals[precision]!,
      `${precision}: ${number(stepMs, 3)} ms; target ${goals[precision]}`,
    );
    results.aim(
      hostMs < 0.02,
      `${precision}: the host takes ${number(1000 * hostMs, 1)} µs a step; target 20`,
    );
  }
  results.finish();
}

await main(options);
