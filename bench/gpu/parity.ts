/**
 * `npm run bench:gpu -- --only parity`: the first epoch of the CrossAsset job's first fold in float32, with the same seed, bars and batches on the CPU and on the GPU, eager, planned and replayed. Prints the loss of each batch, the norm of the head's weight gradient before clipping, and the distance of each column from the CPU's eager one.
 *
 *   node --conditions=holdfast-source dist/bench/gpu/parity.js --emulator --samples 60 --batch 4 --batches 2    a trial without a GPU
 */

import { createHash } from "node:crypto";
import {
  crossasset,
  fromTyped,
  manualSeed,
  nn,
  noGrad,
  optim,
  type Tensor,
  TensorDataset,
  Trainer,
} from "holdfast";
import { permutation } from "../../src/kernels/index.js";
import { latestPlanOf } from "../../src/tensor/index.js";
import { readOptions } from "../../test/support/command-line.js";
import { deviceOption, makeFolds, openAsked, rowsOf } from "./job-data.js";
import { commonOptions, count } from "./options.js";
import { Results } from "./results.js";
import { C, F, type Rows, S } from "./training.js";

const options = readOptions(import.meta.url, {
  ...commonOptions,
  ...deviceOption,
  samples: { type: "string", default: "24613" },
  batch: { type: "string", default: "256" },
  /** The maximal number of batches; default: the whole epoch. */
  batches: { type: "string", default: "" },
  /** The time limit of the CPU's eager steps; the other columns run as many. */
  "cpu-seconds": { type: "string", default: "40" },
});
const batch = count("batch", options.batch);
const { seed, lr } = crossasset.defaultSettings;
const allowed = 1e-4;
/** In float64 a CPU takes twice as long, and half as many batches are enough. */
const maxDouble = 33;

type RunMode = "eager" | "planned" | "replayed";

interface Column {
  readonly name: string;
  /** The reference of the comparison, or the measured device. */
  readonly side: "reference" | "measured";
  readonly mode: RunMode;
  readonly losses: readonly number[];
  readonly norms: readonly number[];
  /** The mean, without the first step. */
  readonly stepMs: number;
  /** "graph" or "direct", of a compiled step. */
  readonly execution: string;
  /** Of all weights after the last step. */
  readonly weights: string;
}

/** How plans run: as a graph, or call by call at the same addresses. */
const captureOf = { eager: "auto", planned: "off", replayed: "on" } as const;

interface ColumnOptions {
  readonly side: Column["side"];
  readonly mode: RunMode;
  readonly rows: Rows;
  readonly batches: number;
  readonly dtype?: "f32" | "f64";
  /** The weights before each batch; default: the column's own, from the seed. */
  readonly weights?: readonly Weights[];
  /** Called with the weights before each batch. */
  readonly keep?: (weights: Weights) => void;
}

type Weights = Parameters<crossasset.CrossAsset["loadStateDict"]>[0];

function train({
  side,
  mode,
  rows,
  batches: maxBatches,
  dtype = "f32",
  weights,
  keep,
}: ColumnOptions): Column {
  const where = side === "reference" ? "cpu" : options.device;
  const name = `${where === "cpu" ? "CPU" : "CUDA"} ${mode}${where === "cpu" && side === "measured" ? " again" : ""}${dtype === "f64" ? " f64" : ""}`;
  const limitMs =
    where === "cpu" ? 1000 * count("cpu-seconds", options["cpu-seconds"]) : Number.POSITIVE_INFINITY;
  const { count: all, x, labels } = rows;
  const opened = openAsked(options, where, { precision: "f32", capture: captureOf[mode] });
  try {
    const { device } = opened;
    manualSeed(seed);
    const model = new crossasset.CrossAsset().to(device, dtype);
    const parameters = model.parameters();
    const head = [...model.namedParameters()].find(([path]) => path === "head.weight")![1];
    const optimizer = new optim.AdamW(parameters, { lr });
    const data = fromTyped(dtype === "f64" ? Float64Array.from(x) : x, [all, S, F], { device });
    const targets = fromTyped(labels, [all, S], { device });
    // As in the first epoch of the job's trainer.
    const order = Int32Array.from(permutation({ seed, id: 0 }, all));
    const batches = Array.from({ length: maxBatches }, (_, index) => {
      const rowsOfBatch = order.slice(index * batch, (index + 1) * batch);
      return fromTyped(rowsOfBatch, [rowsOfBatch.length], { device });
    });
    const body = (indices: Tensor): { readonly loss: Tensor; readonly norm: Tensor } => {
      const logits = model.forward(data.indexSelect(0, indices)).reshape([-1, C]);
      const loss = nn.functional.crossEntropy(logits, targets.indexSelect(0, indices).reshape([-1]));
      loss.backward();
      const norm = noGrad(() => head.grad!.square().sum().sqrt());
      optim.clipGradNorm(parameters, 1, { errorIfNonfinite: false });
      optimizer.step();
      optimizer.zeroGrad();
      return { loss, norm };
    };
    const step = device.compile(body);
    const read = ({ loss, norm }: ReturnType<typeof body>): [number, number] => [loss.item(), norm.item()];
    const figures: [number, number][] = [];
    const startedAt = performance.now();
    let secondAt = startedAt;
    for (const [index, indices] of batches.entries()) {
      const startWeights = weights?.[index];
      if (startWeights) model.loadStateDict(startWeights);
      keep?.(weightsOf(model));
      figures.push(mode === "eager" ? device.step(() => read(body(indices))) : read(step(indices)));
      if (figures.length === 1) secondAt = performance.now();
      if (performance.now() - startedAt > limitMs) break;
    }
    const stepMs = (performance.now() - secondAt) / Math.max(1, figures.length - 1);
    const hash = createHash("sha256");
    for (const parameter of parameters) hash.update(new Uint8Array(bufferOf(parameter)));
    return {
      ...{ name, side, mode },
      ...{ losses: figures.map(([loss]) => loss), norms: figures.map(([, norm]) => norm), stepMs },
      execution: mode === "eager" ? "" : (latestPlanOf(step)?.replayable.mode ?? "none"),
      weights: hash.digest("hex").slice(0, 12),
    };
  } finally {
    opened.close();
  }
}

function weightsOf(model: crossasset.CrossAsset): Weights {
  return Object.fromEntries(
    [...model.namedParameters()].map(([path, parameter]) => {
      const { dtype, shape } = parameter;
      return [path, { dtype, shape, bytes: new Uint8Array(bufferOf(parameter)) }];
    }),
  );
}

function bufferOf(parameter: Tensor): ArrayBufferLike {
  return (parameter.dataSync() as Float32Array).slice().buffer;
}

/** The mean loss of that epoch by the job's trainer. */
async function trainByTrainer(where: string, { count: all, x, labels }: Rows): Promise<number> {
  const opened = openAsked(options, where, { precision: "f32" });
  try {
    const { device } = opened;
    manualSeed(seed);
    const model = new crossasset.CrossAsset().to(device);
    const trainer = new Trainer({
      ...{ device, model, optimizer: new optim.AdamW(model.parameters(), { lr }) },
      data: new TensorDataset({ values: x, shape: [all, S, F] }, { values: labels, shape: [all, S] }),
      ...{ batchSize: batch, epochs: 1, seed, clipNorm: 1 },
      loss: (rows, labels) =>
        nn.functional.crossEntropy(model.forward(rows).reshape([-1, C]), labels.reshape([-1])),
    });
    const { epochs } = await trainer.run();
    trainer.close();
    return epochs[0]!.loss;
  } finally {
    opened.close();
  }
}

interface Distance {
  readonly max: number;
  readonly batch: number;
}

function distanceOf(values: readonly number[], reference: readonly number[]): Distance {
  let [max, at] = [values.length === 0 ? Number.NaN : 0, 0];
  for (const [index, value] of values.entries()) {
    const distance = Math.abs(value - reference[index]!) / Math.abs(reference[index]!);
    if (!(distance <= max)) [max, at] = [distance, index];
  }
  return { max, batch: at + 1 };
}

function tell(results: Results, columns: readonly Column[]): void {
  for (const [title, key] of [
    ["loss of each batch", "losses"],
    ["norm of the head's weight gradient before clipping, of each batch", "norms"],
  ] as const) {
    results.line(title);
    results.table([
      ["batch", ...columns.map(({ name }) => name)],
      ...(columns[0]?.[key] ?? []).map((_, index) => [
        String(index + 1),
        ...columns.map((column) => column[key][index]?.toFixed(7) ?? ""),
      ]),
    ]);
  }
  printDistances(results, columns);
}

function printDistances(results: Results, columns: readonly Column[]): void {
  const [reference] = columns;
  if (!reference) return;
  results.line(`the largest relative difference from ${reference.name}, and its batch`);
  results.table([
    ["", "batches", "ms a step", "plan", "loss", "at", "gradient norm", "at", "sha256 of the weights"],
    ...columns.map(({ name, losses, norms, stepMs, execution, weights }) => {
      const [loss, norm] = [distanceOf(losses, reference.losses), distanceOf(norms, reference.norms)];
      return [
        ...[name, String(losses.length), stepMs.toFixed(2), execution],
        ...[loss.max.toExponential(2), String(loss.batch), norm.max.toExponential(2), String(norm.batch)],
        weights,
      ];
    }),
  ]);
}

async function main(): Promise<void> {
  const results = new Results("parity", options);
  const columns: Column[] = [];
  await results.attempt("the data", async () => {
    const { samples, folds } = makeFolds(count("samples", options.samples), crossasset.defaultSettings.folds);
    const rows = rowsOf(samples, folds[0]!, folds[0]!.train);
    const epoch = Math.ceil(rows.count / batch);
    const maxBatches = options.batches === "" ? epoch : Math.min(epoch, count("batches", options.batches));
    results.line(
      `fold 1 of ${samples.count} samples: ${rows.count} rows, ${epoch} batches of ${batch} in an epoch; f32, AdamW ${lr}, clip 1`,
    );
    const weights: Weights[] = [];
    const requests: readonly Pick<ColumnOptions, "side" | "mode" | "keep">[] = [
      { side: "reference", mode: "eager", keep: (state) => void weights.push(state) },
      { side: "reference", mode: "planned" },
      { side: "measured", mode: "eager" },
      { side: "measured", mode: "planned" },
      { side: "measured", mode: "replayed" },
    ];
    for (const request of requests) {
      const batches = Math.min(maxBatches, columns[0]?.losses.length ?? maxBatches);
      await results.attempt(`${request.side} ${request.mode}`, () => {
        const column = train({ ...request, rows, batches });
        columns.push(column);
        const { name, losses, norms, stepMs } = column;
        results.line(
          `${name}: ${losses.length} batches, ${stepMs.toFixed(2)} ms a step, last loss ${losses.at(-1)}, last norm ${norms.at(-1)}`,
        );
      });
    }
    results.line();
    tell(results, columns);
    requireBounds(results, columns);
    await results.attempt("the CPU's weights", () => printFromOneState(results, rows, columns[0], weights));
    await results.attempt("float64", () => printDouble(results, rows, columns[0]?.losses.length ?? 0));
    const replayed = columns.find(ranAs("replayed"));
    await results.attempt("the yardstick", () => {
      if (replayed) printYardstick(results, replayed, rows);
    });
    await results.attempt("the trainer", async () => {
      if (replayed?.losses.length !== epoch) return;
      const trainerLoss = await trainByTrainer(options.device, rows);
      const sizes = replayed.losses.map((_, index) => Math.min(batch, rows.count - index * batch));
      const sum = replayed.losses.reduce((total, loss, index) => total + loss * sizes[index]!, 0);
      const difference = Math.abs(trainerLoss - sum / rows.count) / trainerLoss;
      results.aim(
        difference <= allowed,
        `the job's trainer has ${trainerLoss.toFixed(7)} for this epoch, ${difference.toExponential(1)} from the replayed column's mean`,
      );
    });
  });
  results.finish();
}

function checkDistances(results: Results, columns: readonly Column[], how: string): void {
  const [reference] = columns;
  if (!reference) return;
  for (const { name, losses, norms } of columns.slice(1)) {
    const [loss, norm] = [distanceOf(losses, reference.losses).max, distanceOf(norms, reference.norms).max];
    results.aim(
      loss <= allowed && norm <= allowed,
      `${name}${how}: losses ${loss.toExponential(1)} from ${reference.name}, gradient norms ${norm.toExponential(1)}; ${allowed} allowed`,
    );
  }
}

function requireBounds(results: Results, columns: readonly Column[]): void {
  checkDistances(results, columns, "");
  const [eager, planned] = [columns.find(ranAs("eager")), columns.find(ranAs("planned"))];
  const replayed = columns.find(ranAs("replayed"));
  if (planned && replayed) {
    results.aim(
      planned.execution === "direct",
      `the planned column ran its calls directly: ${planned.execution}`,
    );
    results.aim(replayed.execution === "graph", `the replayed column ran its graph: ${replayed.execution}`);
    results.aim(isSame(planned, replayed), `planned and replayed: ${sameness(planned, replayed)}`);
  }
  if (eager && replayed)
    results.aim(isSame(eager, replayed), `eager and replayed: ${sameness(eager, replayed)}`);
}

/**
 * Each batch by itself: the device starts from the weights that the CPU had before it. The difference is then
 * the rounding of one step, which no earlier step has amplified.
 */
function printFromOneState(
  results: Results,
  rows: Rows,
  reference: Column | undefined,
  weights: readonly Weights[],
): void {
  if (!reference) return;
  results.line(`each batch by itself, from the weights that ${reference.name} had before it`);
  const batches = reference.losses.length;
  const columns = (["eager", "planned", "replayed"] as const).map((mode) =>
    train({ side: "measured", mode, rows, batches, weights }),
  );
  printDistances(results, [reference, ...columns]);
  checkDistances(results, [reference, ...columns], ", from its weights");
}

/**
 * The whole epoch in float64, where rounding matters less: the remaining difference would be an error of the
 * engine.
 */
function printDouble(results: Results, rows: Rows, maxBatches: number): void {
  const batches = Math.min(maxBatches, maxDouble);
  results.line(`the first ${batches} batches in float64`);
  const [reference, ...columns] = [
    train({ side: "reference", mode: "eager", rows, batches, dtype: "f64" }),
    train({ side: "measured", mode: "eager", rows, batches, dtype: "f64" }),
    train({ side: "measured", mode: "replayed", rows, batches, dtype: "f64" }),
  ] as const;
  printDistances(results, [reference, ...columns]);
  checkDistances(results, [reference, ...columns], "");
}

/** The column of the measured device that ran in this mode. */
function ranAs(expected: RunMode): (column: Column) => boolean {
  return ({ side, mode }) => side === "measured" && mode === expected;
}

/** The distance of a device from itself if the last bit of every input differs: the effect of rounding alone. */
function printYardstick(results: Results, replayed: Column, rows: Rows): void {
  const bits = new Uint32Array(rows.x.slice().buffer).map((word) => word ^ 1);
  const moved = { ...rows, x: new Float32Array(bits.buffer) };
  const again = train({ side: "measured", mode: "replayed", rows: moved, batches: replayed.losses.length });
  const [loss, norm] = [distanceOf(again.losses, replayed.losses), distanceOf(again.norms, replayed.norms)];
  results.line(
    `a yardstick: ${replayed.name}, with the last bit of every feature flipped: losses ${loss.max.toExponential(1)} from itself (batch ${loss.batch}), gradient norms ${norm.max.toExponential(1)} (batch ${norm.batch})`,
  );
}

function isSame(a: Column, other: Column): boolean {
  return countDiffering(a, other) === 0 && a.weights === other.weights;
}

function countDiffering(a: Column, other: Column): number {
  return a.losses.filter(
    (loss, index) => loss !== other.losses[index] || a.norms[index] !== other.norms[index],
  ).length;
}

function sameness(a: Column, other: Column): string {
  const weights = a.weights === other.weights ? "the same bits" : "other bits";
  return `${countDiffering(a, other)} of ${a.losses.length} batches differ, the weights after the last are ${weights}`;
}

await main();
