/**
 * The smoke test: it uploads the 50 weights of CrossAsset and 213,304 rows, and runs forward, backward and AdamW once. Then it runs
 * 20 steps eagerly, and the same 20 as replays of one captured graph. Both must end in the same bits.
 */

import { CrossAsset, type CrossAssetOptions } from "../../crossasset/index.js";
import type { Replayable } from "../../runtime/index.js";
import { captureStep, type Device, manualSeed } from "../../tensor/index.js";
import { formatBytes, formatDuration, MiB } from "../../units/index.js";
import { classes, makeRows, maxRowsIn, requireUploaded, uploadRows } from "./data-set.js";
import { checkGradients } from "./gradient-check.js";
import { check, type PhaseLog, type PhaseOutput } from "./phase-log.js";
import { runSteps, type StepSeries, type Transferred } from "./step-series.js";
import { requireSameState } from "./training-state.js";
import { type SavedPoint, TrialTraining } from "./trial-training.js";

export interface SmokeSizes {
  readonly rows: number;
  readonly batch: number;
  readonly steps: number;
  readonly model: ModelSizes;
}

/** Sizes of the model; an omitted size is that of the whole model. */
export type ModelSizes = Pick<CrossAssetOptions, "width" | "layers">;

/** The cost of a training step on this device. */
export interface StepFigures extends Nodes {
  readonly batch: number;
  /** The median of the steps, including the read-back of the loss. */
  readonly eagerMs: number;
  readonly replayedMs: number;
  readonly eagerBytes: Transferred;
  readonly replayedBytes: Transferred;
}

/** The nodes of the step's graph. */
type Nodes = Readonly<Record<"launches" | "copies" | "fills", number>>;

/** Max. driver copies for the whole upload. */
const maxCopies = 60;
const seed = 42;
/** All ones is NaN in every float format. */
const guardedByte = 0xff;
const dropout = 0.1;
/** Memory besides the data set: weights, gradients, moments, and three times the activations of a batch. */
const otherBytes = (batch: number): number => (96 + 4 * batch) * MiB;
/** Lower precision adds noise to the loss. */
const slopeTolerance = { f32: 0.05, tf32: 0.15, bf16: 0.3 } as const;

/** Runs the phases between opening the device and closing it. A phase that fails throws. */
export function runSmokeTest(device: Device, sizes: SmokeSizes, log: PhaseLog): StepFigures {
  const trial = log.run("upload", () => upload(device, sizes));
  const loss = log.run("forward", () => runForward(trial));
  log.run("backward", () => runBackward(trial, loss));
  const start = log.run("update", () => runUpdate(trial));
  const eager = log.run("eager", () => runEagerly(trial, start, sizes.steps));
  const graph = log.run("capture", () => capture(trial, start));
  const replayed = log.run("replay", () => replay(trial, graph, start, eager));
  return {
    batch: sizes.batch,
    eagerMs: eager.medianMs,
    replayedMs: replayed.medianMs,
    ...nodesOf(graph),
    eagerBytes: eager.bytes,
    replayedBytes: replayed.bytes,
  };
}

function upload(device: Device, sizes: SmokeSizes): PhaseOutput<TrialTraining> {
  const { rows: requested, batch } = sizes;
  const { runtime } = device;
  manualSeed(seed);
  const model = makeModel(sizes.model);
  const rows = device.name === "cpu" ? maxRowsIn(runtime, requested, otherBytes(batch)) : requested;
  const host = makeRows(rows);
  const before = runtime.diagnostics().transfers.up;
  model.to(device);
  const data = uploadRows(device, host);
  const after = runtime.diagnostics().transfers.up;
  const [tensors, bytes, copies] = (["tensors", "bytes", "copies"] as const).map(
    (name) => after[name] - before[name],
  ) as [number, number, number];
  check(
    copies <= maxCopies,
    () => `The upload of ${tensors} tensors took ${copies} copies; at most ${maxCopies} are expected.`,
  );
  requireUploaded(device, host, data, model.parameters());
  const fewer = rows < requested ? `; ${count(requested - rows)} more rows do not fit the budget` : "";
  return {
    value: new TrialTraining(device, model, data, batch),
    detail: `${count(tensors)} tensors, ${formatBytes(bytes)}, in ${copies} copies; read back, equal${fewer}`,
    figures: { rows, tensors, bytes, copies },
  };
}

/** The model, with its initial values stored for the comparison after the upload. */
function makeModel(sizes: ModelSizes): CrossAsset {
  const model = new CrossAsset({ ...sizes, dropout });
  for (const parameter of model.parameters()) {
    const values = Float32Array.from(parameter.initialValues());
    parameter.initialize(() => values);
  }
  return model;
}

/** Without dropout, so that the loss is a function of the weights and its slope can be measured. */
function runForward(trial: TrialTraining): PhaseOutput<number> {
  trial.model.eval();
  trial.chooseBatch(0);
  const loss = trial.device.step(() => trial.forward().item());
  const chance = Math.log(classes);
  check(loss > chance / 3 && loss < chance * 3, () => `The loss is ${loss}; random guessing has ${chance}.`);
  return {
    value: loss,
    detail: `loss ${loss.toFixed(4)}; random guessing has ${chance.toFixed(4)}`,
    figures: { loss },
  };
}

/** Keeps the gradients for the update. */
function runBackward(trial: TrialTraining, loss: number): PhaseOutput<void> {
  const { device } = trial;
  device.step(() => trial.backward(trial.forward()));
  const { precision } = device.runtime.settings;
  const tolerance = slopeTolerance[device.name === "cpu" ? "f32" : precision];
  const figures = checkGradients(trial, loss, tolerance);
  const { gradients, norm, slope } = figures;
  return {
    value: undefined,
    detail: `${gradients} gradients, norm ${norm.toFixed(4)}; measured slope is ${slope.toFixed(4)} of the predicted one`,
    figures: { gradients, norm, slope },
  };
}

/** Restores the state afterwards: both series of steps start from there. */
function runUpdate(trial: TrialTraining): PhaseOutput<SavedPoint> {
  const { device, model } = trial;
  const start = trial.save();
  const read = (): readonly Float32Array[] =>
    model.parameters().map((parameter) => Float32Array.from(parameter.dataSync()));
  const before = read();
  device.step(() => trial.update());
  let changed = 0;
  for (const [index, weights] of read().entries()) {
    const name = model.parameters()[index]?.name;
    const old = before[index];
    const differing = weights.reduce((sum, weight, element) => sum + Number(weight !== old?.[element]), 0);
    check(differing > 0, () => `AdamW did not change "${name}".`);
    check(weights.every(Number.isFinite), () => `AdamW made an element of "${name}" not finite.`);
    changed += differing;
  }
  trial.restore(start);
  const { parameterCount } = model;
  return {
    value: start,
    detail: `${count(changed)} of ${count(parameterCount)} weights changed`,
    figures: { changed, parameters: parameterCount, tensors: before.length },
  };
}

function runEagerly(trial: TrialTraining, start: SavedPoint, steps: number): PhaseOutput<StepSeries> {
  const { device, model } = trial;
  model.train();
  const series = runSteps(trial, start, steps, () => device.step(() => trial.step()));
  for (const [step, loss] of series.losses.entries()) {
    check(Number.isFinite(loss), () => `The loss of step ${step + 1} is ${loss}.`);
  }
  const [first = 0, last = 0] = [series.losses[0], series.losses.at(-1)];
  return {
    value: series,
    detail: `${steps} steps, ${formatDuration(series.medianMs)} each; loss ${first.toFixed(4)} to ${last.toFixed(4)}`,
    figures: { steps, medianMs: series.medianMs, firstLoss: first, lastLoss: last },
  };
}

function capture(trial: TrialTraining, start: SavedPoint): PhaseOutput<Replayable> {
  const { device } = trial;
  const { highWater } = device.runtime.arena.figures;
  // In a smaller space, fragmentation may be higher.
  const memoryBytes = Math.ceil(highWater * 1.125) + MiB;
  trial.restore(start);
  const graph = captureStep(device, "the doctor's step", memoryBytes, () => trial.step());
  check(graph.mode === "graph", () => "The step was not captured.");
  requireSameState("The capture changed the training state", start.state, trial.save().state);
  const nodes = nodesOf(graph);
  return {
    value: graph,
    detail: `one graph of ${nodesText(nodes)}; its replay equals the direct run`,
    figures: { ...nodes, memoryBytes },
  };
}

function nodesOf({ nodes }: Replayable): Nodes {
  const { kernel = 0, copy = 0, fill = 0 } = nodes ?? {};
  return { launches: kernel, copies: copy, fills: fill };
}

export function nodesText({ launches, copies, fills }: Nodes): string {
  const counts = [
    [launches, "launch", "launches"],
    [copies, "copy", "copies"],
    [fills, "fill", "fills"],
  ] as const;
  return counts
    .filter(([number]) => number > 0)
    .map(([number, singular, plural]) => `${number} ${number === 1 ? singular : plural}`)
    .join(", ");
}

function replay(
  trial: TrialTraining,
  graph: Replayable,
  start: SavedPoint,
  eager: StepSeries,
): PhaseOutput<StepSeries> {
  const { runtime } = trial.device;
  const { arena } = runtime;
  const steps = eager.losses.length;
  // The replays must not use the arena's memory. A read from this block gives NaN, and a write to it is found.
  const guardedBlock = arena.allocate(arena.figures.highWater, "guarded block");
  runtime.fill(guardedBlock, guardedByte);
  const series = runSteps(trial, start, steps, () => graph.replay());
  const changed = firstOtherByte(guardedByte, runtime.read(guardedBlock));
  check(
    changed < 0,
    () => `A replay wrote to memory outside the graph, at byte ${changed} of the guarded block.`,
  );
  arena.free(guardedBlock);
  const different = series.losses.findIndex((loss, step) => !Object.is(loss, eager.losses[step]));
  check(
    different < 0,
    () =>
      `Replay ${different + 1} of ${steps} has the loss ${series.losses[different]}; the same eager step has ` +
      `${eager.losses[different]}.`,
  );
  requireSameState(
    `After ${steps} replays the training state differs from ${steps} eager steps`,
    eager.end.state,
    series.end.state,
  );
  const { up, down } = trial.declaredBytes;
  const { bytes } = series;
  check(
    bytes.up === up && bytes.down === down,
    () => `A replayed step copies ${bytes.up} bytes up and ${bytes.down} down; expected ${up} and ${down}.`,
  );
  return {
    value: series,
    detail: `${steps} replays, ${formatDuration(series.medianMs)} each; equal to the eager steps, bit for bit`,
    figures: { steps, medianMs: series.medianMs, bytesUp: bytes.up, bytesDown: bytes.down },
  };
}

/** The index of the first other byte, or -1. A plain loop, because there may be hundreds of millions. */
function firstOtherByte(byte: number, bytes: Uint8Array): number {
  for (let at = 0; at < bytes.length; at++) if (bytes[at] !== byte) return at;
  return -1;
}

function count(value: number): string {
  return value.toLocaleString("en-US");
}
