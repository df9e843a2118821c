/**
 * The smoke test: the 50 weights of CrossAsset and 213,304 rows go up, a training step runs forward, backward and through
 * AdamW, then 20 steps run eagerly and the same 20 as replays of one captured graph, which must end in the same bits.
 */

import { CrossAsset } from "../../crossasset/index.js";
import type { Replayable } from "../../runtime/index.js";
import { captureStep, type Device, manualSeed } from "../../tensor/index.js";
import { formatBytes, formatDuration, MiB } from "../../units/index.js";
import { type Course, runCourse, type Transferred } from "./course.js";
import { classes, drawRows, requireArrived, rowsThatFit, uploadRows } from "./data-set.js";
import { checkGradients } from "./gradient-check.js";
import { check, type Finding, type PhaseLog } from "./phase-log.js";
import { type SavedPoint, TimingCapture } from "./rehearsal.js";
import { requireSameState } from "./training-state.js";

export interface SmokeSizes {
  readonly rows: number;
  readonly batch: number;
  readonly steps: number;
}

/** What a step of training costs on this device. */
export interface StepFigures extends Nodes {
  readonly batch: number;
  /** The median of the steps, their loss read back. */
  readonly eagerMs: number;
  readonly replayedMs: number;
  readonly eagerBytes: Transferred;
  readonly replayedBytes: Transferred;
}

/** What the step's graph holds. */
type Nodes = Readonly<Record<"launches" | "copies" | "fills", number>>;

/** The number of driver copies that are enough for everything that goes up. */
const maxCopies = 60;
const seed = 42;
/** All ones is NaN in every float format. */
const othersByte = 0xff;
const dropout = 0.1;
/** What a step needs beside the data set: weights, gradients, moments, and the activations of a batch three times. */
const otherBytes = (batch: number): number => (96 + 4 * batch) * MiB;
/** Products of rounded operands leave more noise in the loss. */
const slopeTolerance = { f32: 0.05, tf32: 0.15, bf16: 0.3 } as const;

/** Runs the phases between opening the device and closing it. A phase that fails throws. */
export function runSmokeTest(device: Device, sizes: SmokeSizes, log: PhaseLog): StepFigures {
  const timingCapture = log.run("upload", () => upload(device, sizes));
  const loss = log.run("forward", () => runForward(timingCapture));
  log.run("backward", () => runBackward(timingCapture, loss));
  const start = log.run("update", () => runUpdate(timingCapture));
  const eager = log.run("eager", () => runEagerly(timingCapture, start, sizes.steps));
  const graph = log.run("capture", () => capture(timingCapture, start));
  const replayed = log.run("replay", () => replay(timingCapture, graph, start, eager));
  return {
    batch: sizes.batch,
    eagerMs: eager.medianMs,
    replayedMs: replayed.medianMs,
    ...nodesOf(graph),
    eagerBytes: eager.bytes,
    replayedBytes: replayed.bytes,
  };
}

function upload(device: Device, { rows: wanted, batch }: SmokeSizes): Finding<TimingCapture> {
  const { runtime } = device;
  manualSeed(seed);
  const model = drawModel();
  const rows = device.name === "cpu" ? rowsThatFit(runtime, wanted, otherBytes(batch)) : wanted;
  const host = drawRows(rows);
  const before = runtime.diagnostics().transfers.up;
  model.to(device);
  const data = uploadRows(device, host);
  const after = runtime.diagnostics().transfers.up;
  const [tensors, bytes, copies] = (["tensors", "bytes", "copies"] as const).map(
    (name) => after[name] - before[name],
  ) as [number, number, number];
  check(
    copies <= maxCopies,
    () => `${tensors} tensors went up in ${copies} copies; ${maxCopies} are enough.`,
  );
  requireArrived(device, host, data, model.parameters());
  const fewer = rows < wanted ? `; the budget has no room for ${count(wanted - rows)} more rows` : "";
  return {
    value: new TimingCapture(device, model, data, batch),
    detail: `${count(tensors)} tensors, ${formatBytes(bytes)}, in ${copies} copies; read back, equal${fewer}`,
    figures: { rows, tensors, bytes, copies },
  };
}

/** The model with its first values at hand, to be compared with what has gone up; they are drawn once. */
function drawModel(): CrossAsset {
  const model = new CrossAsset({ dropout });
  for (const parameter of model.parameters()) {
    const values = Float32Array.from(parameter.initialValues());
    parameter.initialize(() => values);
  }
  return model;
}

/** Without dropout, so that the loss is a function of the weights and its slope can be measured. */
function runForward(timingCapture: TimingCapture): Finding<number> {
  timingCapture.model.eval();
  timingCapture.chooseBatch(0);
  const loss = timingCapture.device.step(() => timingCapture.forward().item());
  const chance = Math.log(classes);
  check(loss > chance / 3 && loss < chance * 3, () => `The loss is ${loss}; that of guessing is ${chance}.`);
  return {
    value: loss,
    detail: `loss ${loss.toFixed(4)}; guessing has ${chance.toFixed(4)}`,
    figures: { loss },
  };
}

/** Leaves its gradients where the update finds them. */
function runBackward(timingCapture: TimingCapture, loss: number): Finding<void> {
  const { device } = timingCapture;
  device.step(() => timingCapture.backward(timingCapture.forward()));
  const { precision } = device.runtime.settings;
  const tolerance = slopeTolerance[device.name === "cpu" ? "f32" : precision];
  const figures = checkGradients(timingCapture, loss, tolerance);
  const { gradients, norm, slope } = figures;
  return {
    value: undefined,
    detail: `${gradients} gradients, norm ${norm.toFixed(4)}; measured slope ${slope.toFixed(4)} of theirs`,
    figures: { gradients, norm, slope },
  };
}

/** Takes everything back again: where the update began is where both courses of steps begin. */
function runUpdate(timingCapture: TimingCapture): Finding<SavedPoint> {
  const { device, model } = timingCapture;
  const start = timingCapture.save();
  const read = (): readonly Float32Array[] =>
    model.parameters().map((parameter) => Float32Array.from(parameter.dataSync()));
  const before = read();
  device.step(() => timingCapture.update());
  let changed = 0;
  for (const [index, weights] of read().entries()) {
    const name = model.parameters()[index]?.name;
    const old = before[index];
    const own = weights.reduce((sum, one, element) => sum + Number(one !== old?.[element]), 0);
    check(own > 0, () => `AdamW has not changed "${name}".`);
    check(
      weights.every(Number.isFinite),
      () => `AdamW has left "${name}" with an element that is not finite.`,
    );
    changed += own;
  }
  timingCapture.restore(start);
  const { parameterCount } = model;
  return {
    value: start,
    detail: `${count(changed)} of ${count(parameterCount)} weights changed`,
    figures: { changed, parameters: parameterCount, tensors: before.length },
  };
}

function runEagerly(timingCapture: TimingCapture, start: SavedPoint, steps: number): Finding<Course> {
  const { device, model } = timingCapture;
  model.train();
  const course = runCourse(timingCapture, start, steps, () => device.step(() => timingCapture.step()));
  for (const [step, loss] of course.losses.entries()) {
    check(Number.isFinite(loss), () => `The loss of step ${step + 1} is ${loss}.`);
  }
  const [first = 0, last = 0] = [course.losses[0], course.losses.at(-1)];
  return {
    value: course,
    detail: `${steps} steps, ${formatDuration(course.medianMs)} each; loss ${first.toFixed(4)} to ${last.toFixed(4)}`,
    figures: { steps, medianMs: course.medianMs, firstLoss: first, lastLoss: last },
  };
}

function capture(timingCapture: TimingCapture, start: SavedPoint): Finding<Replayable> {
  const { device } = timingCapture;
  const { highWater } = device.runtime.arena.figures;
  // Blocks may come to lie less closely in a smaller space.
  const memoryBytes = Math.ceil(highWater * 1.125) + MiB;
  timingCapture.restore(start);
  const graph = captureStep(device, "the doctor's step", memoryBytes, () => timingCapture.step());
  check(graph.mode === "graph", () => "The step was not captured, and would run directly.");
  requireSameState(
    "The capture has changed what it must leave alone",
    start.state,
    timingCapture.save().state,
  );
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
  const parts = [
    [launches, "launch", "launches"],
    [copies, "copy", "copies"],
    [fills, "fill", "fills"],
  ] as const;
  return parts
    .filter(([number]) => number > 0)
    .map(([number, one, many]) => `${number} ${number === 1 ? one : many}`)
    .join(", ");
}

function replay(
  timingCapture: TimingCapture,
  graph: Replayable,
  start: SavedPoint,
  eager: Course,
): Finding<Course> {
  const { runtime } = timingCapture.device;
  const { arena } = runtime;
  const steps = eager.losses.length;
  // As much as a step takes now belongs to somebody else: a graph that reads there reads NaN, and must not write there.
  const others = arena.allocate(arena.figures.highWater, "others");
  runtime.fill(others, othersByte);
  const course = runCourse(timingCapture, start, steps, () => graph.replay());
  const changed = firstOtherThan(othersByte, runtime.read(others));
  check(
    changed < 0,
    () => `A replay has written into memory that is not the graph's own, at byte ${changed} of it.`,
  );
  arena.free(others);
  const different = course.losses.findIndex((loss, step) => !Object.is(loss, eager.losses[step]));
  check(
    different < 0,
    () =>
      `Replay ${different + 1} of ${steps} has the loss ${course.losses[different]}, and the same step run eagerly ` +
      `${eager.losses[different]}.`,
  );
  requireSameState(
    `After ${steps} replays memory differs from ${steps} eager steps`,
    eager.end.state,
    course.end.state,
  );
  const { up, down } = timingCapture.declaredBytes;
  const { bytes } = course;
  check(
    bytes.up === up && bytes.down === down,
    () =>
      `A replayed step moves ${bytes.up} bytes up and ${bytes.down} down; ${up} and ${down} were declared.`,
  );
  return {
    value: course,
    detail: `${steps} replays, ${formatDuration(course.medianMs)} each; equal to the eager ones, bit for bit`,
    figures: { steps, medianMs: course.medianMs, bytesUp: bytes.up, bytesDown: bytes.down },
  };
}

/** Where the first byte is that is another one, or -1. A plain loop: there may be hundreds of millions. */
function firstOtherThan(byte: number, bytes: Uint8Array): number {
  for (let at = 0; at < bytes.length; at++) if (bytes[at] !== byte) return at;
  return -1;
}

function count(value: number): string {
  return value.toLocaleString("en-US");
}
