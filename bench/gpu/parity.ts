/**
 * `npm run bench:gpu -- --only parity`: the first epoch of the CrossAsset job's first fold in float32, the same seed, bars and
 * batches on the CPU and on the GPU, eager, planned and replayed: the loss of each batch and the norm of the head's weight
 * gradient before clipping, beside each other, and how far each column is from the CPU's eager one.
 *
 *   node --conditions=holdfast-source dist/bench/gpu/parity.js --emulator --samples 60 --batch 4 --batches 2    a trial without a GPU
 */

import { createHash } from "node:crypto";
import { parseArgs } from "node:util";
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
import { deviceOption, makeFolds, openAsked, rowsOf } from "./job-data.js";
import { commonOptions, count } from "./options.js";
import { Results } from "./results.js";
import { C, F, type Rows, S } from "./training.js";

const { values: options } = parseArgs({
  options: {
    ...commonOptions,
    ...deviceOption,
    samples: { type: "string", default: "24613" },
    batch: { type: "string", default: "256" },
    /** No more than so many; default: all of the epoch. */
    batches: { type: "string", default: "" },
    /** The CPU is given so long for its eager steps; the others make as many. */
    "cpu-seconds": { type: "string", default: "40" },
  },
});
const batch = count("batch", options.batch);
const { seed, lr } = crossasset.defaultSettings;
const allowed = 1e-4;
/** In float64 a CPU takes twice as long, and as many batches show it. */
const maxDouble = 33;

type RunMode = "eager" | "planned" | "replayed";

interface Column {
  readonly name: string;
  /** What the others are held against, or on the device that is measured. */
  readonly side: "reference" | "measured";
  readonly way: RunMode;
  readonly losses: readonly number[];
  readonly norms: readonly number[];
  /** The mean, without the first step. */
  readonly stepMs: number;
  /** "graph" or "direct", of a compiled step. */
  readonly mode: string;
  /** Of all weights after the last step. */
  readonly weights: string;
}

/** How plans are sent: as their graph, or call by call at the same addresses. */
const captureOf = { eager: "auto", planned: "off", replayed: "on" } as const;

interface Asked {
  readonly side: Column["side"];
  readonly way: RunMode;
  readonly rows: Rows;
  readonly batches: number;
  readonly dtype?: "f32" | "f64";
  /** The weights before each batch; default: its own, from the seed. */
  readonly weights?: readonly Weights[];
  /** Is given the weights before each batch. */
  readonly keep?: (weights: Weights) => void;
}

type Weights = Parameters<crossasset.CrossAsset["loadStateDict"]>[0];

function train({ side, way, rows, batches: most, dtype = "f32", weights, keep }: Asked): Column {
  const where = side === "reference" ? "cpu" : options.device;
  const name = `${where === "cpu" ? "CPU" : "CUDA"} ${way}${where === "cpu" && side === "measured" ? " again" : ""}${dtype === "f64" ? " f64" : ""}`;
  const limitMs =
    where === "cpu" ? 1000 * count("cpu-seconds", options["cpu-seconds"]) : Number.POSITIVE_INFINITY;
  const { count: all, x, labels } = rows;
  const asked = openAsked(options, where, { precision: "f32", capture: captureOf[way] });
  try {
    const { device } = asked;
    manualSeed(seed);
    const model = new crossasset.CrossAsset().to(device, dtype);
    const parameters = model.parameters();
    const head = [...model.namedParameters()].find(([path]) => path === "head.weight")![1];
    const optimizer = new optim.AdamW(parameters, { lr });
    const data = fromTyped(dtype === "f64" ? Float64Array.from(x) : x, [all, S, F], { device });
    const targets = fromTyped(labels, [all, S], { device });
    // As the job's trainer has them in its first epoch.
    const order = Int32Array.from(permutation({ seed, id: 0 }, all));
    const batches = Array.from({ length: most }, (_, index) => {
      const own = order.slice(index * batch, (index + 1) * batch);
      return fromTyped(own, [own.length], { device });
    });
    const body = (own: Tensor): { readonly loss: Tensor; readonly norm: Tensor } => {
      const logits = model.forward(data.indexSelect(0, own)).reshape([-1, C]);
      const loss = nn.functional.crossEntropy(logits, targets.indexSelect(0, own).reshape([-1]));
      loss.backward();
      const norm = noGrad(() => head.grad!.square().sum().sqrt());
      optim.clipGradNorm(parameters, 1, { errorIfNonfinite: false });
      optimizer.step();
      optimizer.zeroGrad();
      return { loss, norm };
    };
    const step = device.compile(body);
    const read = ({ loss, norm }: ReturnType<typeof body>): [number, number] => [loss.item(), norm.item()];
    const found: [number, number][] = [];
    const startedAt = performance.now();
    let secondAt = startedAt;
    for (const [index, own] of batches.entries()) {
      const given = weights?.[index];
      if (given) model.loadStateDict(given);
      keep?.(weightsOf(model));
      found.push(way === "eager" ? device.step(() => read(body(own))) : read(step(own)));
      if (found.length === 1) secondAt = performance.now();
      if (performance.now() - startedAt > limitMs) break;
    }
    const stepMs = (performance.now() - secondAt) / Math.max(1, found.length - 1);
    const hash = createHash("sha256");
    for (const parameter of parameters) hash.update(new Uint8Array(bufferOf(parameter)));
    return {
      ...{ name, side, way },
      ...{ losses: found.map(([loss]) => loss), norms: found.map(([, norm]) => norm), stepMs },
      mode: way === "eager" ? "" : (latestPlanOf(step)?.replayable.mode ?? "none"),
      weights: hash.digest("hex").slice(0, 12),
    };
  } finally {
    asked.close();
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

/** The mean loss of that epoch by the trainer that the job has. */
async function trainByTrainer(where: string, { count: all, x, labels }: Rows): Promise<number> {
  const asked = openAsked(options, where, { precision: "f32" });
  try {
    const { device } = asked;
    manualSeed(seed);
    const model = new crossasset.CrossAsset().to(device);
    const trainer = new Trainer({
      ...{ device, model, optimizer: new optim.AdamW(model.parameters(), { lr }) },
      data: new TensorDataset({ values: x, shape: [all, S, F] }, { values: labels, shape: [all, S] }),
      ...{ batchSize: batch, epochs: 1, seed, clipNorm: 1 },
      loss: (rows, own) =>
        nn.functional.crossEntropy(model.forward(rows).reshape([-1, C]), own.reshape([-1])),
    });
    const { epochs } = await trainer.run();
    trainer.close();
    return epochs[0]!.loss;
  } finally {
    asked.close();
  }
}

interface Apart {
  readonly most: number;
  readonly batch: number;
}

function apart(values: readonly number[], reference: readonly number[]): Apart {
  let [most, at] = [values.length === 0 ? Number.NaN : 0, 0];
  for (const [index, value] of values.entries()) {
    const distance = Math.abs(value - reference[index]!) / Math.abs(reference[index]!);
    if (!(distance <= most)) [most, at] = [distance, index];
  }
  return { most, batch: at + 1 };
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
  tellDistances(results, columns);
}

function tellDistances(results: Results, columns: readonly Column[]): void {
  const [reference] = columns;
  if (!reference) return;
  results.line(`the largest relative difference from ${reference.name}, and the batch that has it`);
  results.table([
    ["", "batches", "ms a step", "plan", "loss", "at", "gradient norm", "at", "sha256 of the weights"],
    ...columns.map(({ name, losses, norms, stepMs, mode, weights }) => {
      const [loss, norm] = [apart(losses, reference.losses), apart(norms, reference.norms)];
      return [
        ...[name, String(losses.length), stepMs.toFixed(2), mode],
        ...[loss.most.toExponential(2), String(loss.batch), norm.most.toExponential(2), String(norm.batch)],
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
    const most = options.batches === "" ? epoch : Math.min(epoch, count("batches", options.batches));
    results.line(
      `fold 1 of ${samples.count} samples: ${rows.count} rows, ${epoch} batches of ${batch} in an epoch; f32, AdamW ${lr}, clip 1`,
    );
    const weights: Weights[] = [];
    const wanted: readonly Pick<Asked, "side" | "way" | "keep">[] = [
      { side: "reference", way: "eager", keep: (own) => void weights.push(own) },
      { side: "reference", way: "planned" },
      { side: "measured", way: "eager" },
      { side: "measured", way: "planned" },
      { side: "measured", way: "replayed" },
    ];
    for (const one of wanted) {
      const batches = Math.min(most, columns[0]?.losses.length ?? most);
      await results.attempt(`${one.side} ${one.way}`, () => {
        const column = train({ ...one, rows, batches });
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
    await results.attempt("the CPU's weights", () => tellFromOneState(results, rows, columns[0], weights));
    await results.attempt("float64", () => tellDouble(results, rows, columns[0]?.losses.length ?? 0));
    const replayed = columns.find(isOf("replayed"));
    await results.attempt("the yardstick", () => {
      if (replayed) tellYardstick(results, replayed, rows);
    });
    await results.attempt("the trainer", async () => {
      if (replayed?.losses.length !== epoch) return;
      const own = await trainByTrainer(options.device, rows);
      const sizes = replayed.losses.map((_, index) => Math.min(batch, rows.count - index * batch));
      const sum = replayed.losses.reduce((total, loss, index) => total + loss * sizes[index]!, 0);
      const difference = Math.abs(own - sum / rows.count) / own;
      results.aim(
        difference <= allowed,
        `the job's own trainer has ${own.toFixed(7)} for this epoch, ${difference.toExponential(1)} from the replayed column's mean`,
      );
    });
  });
  results.finish();
}

function judgeDistances(results: Results, columns: readonly Column[], how: string): void {
  const [reference] = columns;
  if (!reference) return;
  for (const { name, losses, norms } of columns.slice(1)) {
    const [loss, norm] = [apart(losses, reference.losses).most, apart(norms, reference.norms).most];
    results.aim(
      loss <= allowed && norm <= allowed,
      `${name}${how}: losses ${loss.toExponential(1)} from ${reference.name}, gradient norms ${norm.toExponential(1)}; ${allowed} allowed`,
    );
  }
}

function requireBounds(results: Results, columns: readonly Column[]): void {
  judgeDistances(results, columns, "");
  const [eager, planned] = [columns.find(isOf("eager")), columns.find(isOf("planned"))];
  const replayed = columns.find(isOf("replayed"));
  if (planned && replayed) {
    results.aim(planned.mode === "direct", `the planned column ran its calls directly: ${planned.mode}`);
    results.aim(replayed.mode === "graph", `the replayed column ran its graph: ${replayed.mode}`);
    results.aim(isSame(planned, replayed), `planned and replayed: ${sameness(planned, replayed)}`);
  }
  if (eager && replayed)
    results.aim(isSame(eager, replayed), `eager and replayed: ${sameness(eager, replayed)}`);
}

/**
 * Each batch by itself: the device is given the weights that the CPU had before it. What differs is then one step's rounding, which
 * no earlier step has made larger.
 */
function tellFromOneState(
  results: Results,
  rows: Rows,
  reference: Column | undefined,
  weights: readonly Weights[],
): void {
  if (!reference) return;
  results.line(`each batch by itself, from the weights that ${reference.name} had before it`);
  const batches = reference.losses.length;
  const columns = (["eager", "planned", "replayed"] as const).map((way) =>
    train({ side: "measured", way, rows, batches, weights }),
  );
  tellDistances(results, [reference, ...columns]);
  judgeDistances(results, [reference, ...columns], ", from its weights");
}

/** The whole epoch in float64, in which rounding has less to say: what is left would be the engine's. */
function tellDouble(results: Results, rows: Rows, most: number): void {
  const batches = Math.min(most, maxDouble);
  results.line(`the first ${batches} batches in float64`);
  const [reference, ...columns] = [
    train({ side: "reference", way: "eager", rows, batches, dtype: "f64" }),
    train({ side: "measured", way: "eager", rows, batches, dtype: "f64" }),
    train({ side: "measured", way: "replayed", rows, batches, dtype: "f64" }),
  ] as const;
  tellDistances(results, [reference, ...columns]);
  judgeDistances(results, [reference, ...columns], "");
}

/** The column of the measured device that ran so. */
function isOf(wanted: RunMode): (column: Column) => boolean {
  return ({ side, way }) => side === "measured" && way === wanted;
}

/** How far the same device comes from itself where every input is another by its last bit: what rounding alone can do. */
function tellYardstick(results: Results, replayed: Column, rows: Rows): void {
  const bits = new Uint32Array(rows.x.slice().buffer).map((word) => word ^ 1);
  const moved = { ...rows, x: new Float32Array(bits.buffer) };
  const again = train({ side: "measured", way: "replayed", rows: moved, batches: replayed.losses.length });
  const [loss, norm] = [apart(again.losses, replayed.losses), apart(again.norms, replayed.norms)];
  results.line(
    `a yardstick: ${replayed.name}, with the last bit of every feature turned over: losses ${loss.most.toExponential(1)} from itself (batch ${loss.batch}), gradient norms ${norm.most.toExponential(1)} (batch ${norm.batch})`,
  );
}

function isSame(one: Column, other: Column): boolean {
  return countDiffering(one, other) === 0 && one.weights === other.weights;
}

function countDiffering(one: Column, other: Column): number {
  return one.losses.filter(
    (loss, index) => loss !== other.losses[index] || one.norms[index] !== other.norms[index],
  ).length;
}

function sameness(one: Column, other: Column): string {
  const weights = one.weights === other.weights ? "the same bits" : "other bits";
  return `${countDiffering(one, other)} of ${one.losses.length} batches differ, weights after the last have ${weights}`;
}

await main();
