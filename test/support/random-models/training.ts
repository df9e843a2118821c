/**
 * Generates the training of a model: losses, optimizers, clipping, schedules, and the calls with the events
 * between them.
 */

import type { Choices } from "../random-programs/choices.js";
import type { Sketch } from "./layers.js";
import type {
  ModelCall,
  ModelClip,
  ModelEvent,
  ModelLoss,
  ModelOptimizer,
  ModelSchedule,
  ModelStep,
} from "./program.js";
import { elementsOf, type Sizes } from "./sizes.js";

export interface RandomLoss {
  readonly loss: ModelLoss;
  /** Comes before the loss: an NLLLoss takes log probabilities. */
  readonly before: readonly ModelStep[];
}

type LossDrawer = (sketch: Sketch, choices: Choices, sizes: Sizes) => RandomLoss;

function reduction(choices: Choices): { reduction?: string } {
  return choices.of([{}, { reduction: "sum" }, { reduction: "mean" }, { reduction: "none" }]);
}

/** Labels for values [C, …rest], and sometimes a weight for each class. */
function classes(sketch: Sketch, choices: Choices, [count = 1, ...rest]: Sizes) {
  const target = sketch.input({ sizes: rest, dtype: "i32", from: 0, to: count - 1 });
  const weight = choices.isOneIn(4)
    ? sketch.input({ sizes: [count], dtype: "float", from: 0.5, to: 2, hasBatch: false })
    : undefined;
  // A mean over no rows would be 0/0: with one class no label may be ignored.
  const ignoreIndex = count > 3 && choices.isOneIn(4) ? { ignoreIndex: count - 1 } : {};
  return { target, tensors: weight ? { weight } : {}, ignoreIndex };
}

const pair =
  (
    loss: string,
    randomOptions: (choices: Choices) => Readonly<Record<string, unknown>> = () => ({}),
  ): LossDrawer =>
  (sketch, choices, sizes) => ({
    loss: {
      loss,
      options: { ...randomOptions(choices), ...reduction(choices) },
      target: sketch.floats(sizes),
      tensors: {},
    },
    before: [],
  });

/** A loss of values and targets in the ranges that it takes; a layer brings the values into theirs. */
const bounded =
  (loss: string, [from, to]: readonly [number, number], before?: string, more: object = {}): LossDrawer =>
  (sketch, choices, sizes) => ({
    loss: {
      ...{ loss, options: { ...more, ...reduction(choices) }, tensors: {} },
      target: sketch.input({ sizes, dtype: "float", from, to }),
    },
    before: before ? [{ kind: "layer", layer: before, args: [] }] : [],
  });

/** By the exported name. */
export const lossDrawers: Readonly<Record<string, LossDrawer>> = {
  MSELoss: pair("MSELoss"),
  L1Loss: pair("L1Loss"),
  HuberLoss: pair("HuberLoss", (choices) => choices.of([{}, { delta: 0.3 }])),
  SmoothL1Loss: pair("SmoothL1Loss", (choices) => choices.of([{}, { beta: 0.3 }])),
  BCELoss: bounded("BCELoss", [0, 1], "Sigmoid"),
  KLDivLoss: bounded("KLDivLoss", [0.1, 1], "LogSigmoid"),
  PoissonNLLLoss: bounded("PoissonNLLLoss", [0, 3], "Tanh"),
  SoftMarginLoss: bounded("SoftMarginLoss", [-1, 1]),
  HingeEmbeddingLoss: bounded("HingeEmbeddingLoss", [-1, 1]),
  FocalLoss: bounded("FocalLoss", [0, 1]),
  CrossEntropyLoss(sketch, choices, sizes) {
    const { target, tensors, ignoreIndex } = classes(sketch, choices, sizes);
    const labelSmoothing = choices.of([{}, { labelSmoothing: 0.2 }]);
    const options = { ...labelSmoothing, ...ignoreIndex, ...reduction(choices) };
    return { loss: { loss: "CrossEntropyLoss", options, target, tensors }, before: [] };
  },
  NLLLoss(sketch, choices, sizes) {
    const { target, tensors, ignoreIndex } = classes(sketch, choices, sizes);
    const options = { ...ignoreIndex, ...reduction(choices) };
    const before: ModelStep = { kind: "layer", layer: "LogSoftmax", args: [1] };
    return { loss: { loss: "NLLLoss", options, target, tensors }, before: [before] };
  },
  BCEWithLogitsLoss(sketch, choices, sizes) {
    const target = sketch.input({ sizes, dtype: "float", from: 0, to: 1 });
    const tensors: Record<string, string> = {};
    for (const name of ["weight", "posWeight"])
      if (choices.isOneIn(4))
        tensors[name] = sketch.input({
          ...{ sizes: sizes.slice(-1), dtype: "float", from: 0.5, to: 2, hasBatch: false },
        });
    return { loss: { loss: "BCEWithLogitsLoss", options: reduction(choices), target, tensors }, before: [] };
  },
};

/** With a small eps, a gradient that is 0 up to rounding would change a weight as much as any other. */
const eps = 0.01;

/** By the exported name; each returns options. */
export const optimizerDrawers: Readonly<
  Record<string, (choices: Choices) => Readonly<Record<string, unknown>>>
> = {
  AdamW: (choices) => ({
    eps,
    ...choices.of([{}, { weightDecay: 0.1 }, { betas: [0.8, 0.9] }, { maximize: true }]),
  }),
  SGD: (choices) =>
    choices.of([
      {},
      { momentum: 0.9 },
      { momentum: 0.9, weightDecay: 0.01 },
      { momentum: 0.5, dampening: 0.2 },
      { momentum: 0.9, nesterov: true },
      { weightDecay: 0.1, maximize: true },
    ]),
  Adam: (choices) => ({ eps, ...choices.of([{}, { weightDecay: 0.1 }, { betas: [0, 0.5] }]) }),
  RMSprop: (choices) => ({
    eps,
    ...choices.of([{}, { momentum: 0.9 }, { centered: true }, { weightDecay: 0.1 }]),
  }),
  Adagrad: (choices) => ({ eps, ...choices.of([{}, { lrDecay: 0.1 }, { initialAccumulatorValue: 0.5 }]) }),
  Adadelta: (choices) => ({ eps, ...choices.of([{}, { rho: 0.5 }]) }),
  Adamax: (choices) => ({ eps, ...choices.of([{}, { weightDecay: 0.1 }]) }),
  NAdam: (choices) => ({ eps, ...choices.of([{}, { decoupledWeightDecay: true, weightDecay: 0.1 }]) }),
  RAdam: (choices) => ({ eps, ...choices.of([{}, { betas: [0.8, 0.9] }]) }),
  Lion: (choices) => choices.of([{}, { weightDecay: 0.1 }]),
  Rprop: () => ({}),
  ASGD: (choices) => choices.of([{}, { weightDecay: 0.1 }]),
  Muon: (choices) => choices.of([{}, { nesterov: false }]),
  SparseAdam: (choices) => ({ eps, ...choices.of([{}, { betas: [0.8, 0.9] }, { maximize: true }]) }),
};

export function randomOptimizer(choices: Choices): ModelOptimizer {
  const name = choices.of(Object.keys(optimizerDrawers));
  const lr = choices.of([0.01, 0.001, 0.05]);
  const options = { lr, ...optimizerDrawers[name]!(choices) };
  if (!choices.isOneIn(3)) return { name, options };
  return {
    name,
    options,
    secondFrom: 1 + choices.below(4),
    second: choices.of([{ lr: 0.005 }, { weightDecay: 0 }]),
  };
}

export function randomClip(choices: Choices): ModelClip | undefined {
  const how = choices.below(4);
  if (how === 1) return { kind: "norm", maxNorm: choices.of([1, 0.1, 100]), normType: choices.of([2, 1, 3]) };
  if (how === 2) return { kind: "value", limit: choices.of([0.1, 0.01]) };
  return how === 3 ? { kind: "norm", maxNorm: 0.5, normType: Infinity } : undefined;
}

/** By the exported name. */
export const schedules: Readonly<Record<string, Readonly<Record<string, unknown>>>> = {
  CosineSchedule: { tMax: 5, etaMin: 0.0001 },
  ConstantSchedule: { factor: 0.5, totalIters: 2 },
  StepSchedule: { stepSize: 2, gamma: 0.5 },
  MultiStepSchedule: { milestones: [1, 3], gamma: 0.3 },
  OneCycleSchedule: { maxLr: 0.05, totalSteps: 12 },
  WarmupSchedule: { steps: 3, startFactor: 0.25 },
  /** JSON has no functions: this one's is in run.ts. */
  LambdaSchedule: {},
  ReduceOnPlateau: { patience: 0, factor: 0.5 },
};

export function randomSchedule(choices: Choices): ModelSchedule | undefined {
  if (!choices.isOneIn(2)) return undefined;
  const name = choices.of(Object.keys(schedules));
  return { name, options: schedules[name]! };
}

function randomEvent(choices: Choices): ModelEvent {
  const how = choices.below(9);
  const requiresGrad = choices.isOneIn(2);
  const index = choices.of([0, choices.below(64)]);
  if (how < 2) return { kind: "mode", module: index, isTraining: requiresGrad };
  if (how < 4) {
    const parameters = Array.from({ length: choices.of([1, 2, 3]) }, () => choices.below(64));
    return { kind: "freeze", parameters, requiresGrad };
  }
  // Module 0 is the whole model: a frozen one has no gradient at all.
  if (how === 4) return { kind: "freeze module", module: 1 + choices.below(63), requiresGrad };
  if (how === 5) return { kind: "lr", group: choices.below(2), value: choices.of([0.02, 0, 0.0001]) };
  if (how === 6) return { kind: "weightDecay", group: choices.below(2), value: choices.of([0.05, 0]) };
  if (how === 7) return { kind: "zeroGrad" };
  return { kind: "write", parameter: choices.below(64), factor: choices.of([0.5, -1, 1.25]) };
}

export interface CallOptions {
  readonly batches: readonly number[];
  /** Inputs that can take the value at their join from an earlier call. */
  readonly feedable: readonly string[];
  readonly results: readonly string[];
}

/** The first call is a plain one. */
export function randomCalls(
  allChoices: readonly Choices[],
  { batches, feedable, results }: CallOptions,
): ModelCall[] {
  const calls: ModelCall[] = [];
  for (const [index, choices] of allChoices.entries()) {
    const batch = choices.of(batches);
    const step =
      index === 0 ? "train" : choices.of(["train", "train", "train", "accumulate", "evaluate"] as const);
    const count = index === 0 ? 0 : choices.of([0, 1, 2]);
    const events = Array.from({ length: count }, () => randomEvent(choices));
    const how = choices.of(["keep", "clone"] as const);
    const keeps = choices.isOneIn(2) ? [{ result: choices.of(results), how }] : [];
    const feeds = feedable.flatMap((input) => {
      const call = calls.findIndex(
        (call) => call.batch === batch && call.keeps.some(({ result }) => result === `at ${input}`),
      );
      return call >= 0 ? [{ input, call, result: `at ${input}` }] : [];
    });
    calls.push({ step, batch, events, keeps, feeds });
  }
  return calls;
}

/** Space for a sum over all classes, and no more labels than a loss can distinguish. */
export function fitsLoss(name: string, sizes: Sizes): boolean {
  return elementsOf(sizes) > 0 && (name !== "NLLLoss" || sizes.length >= 1);
}
