/**
 * What a training goes on from, as a checkpoint's tensors and plain data, and back to the same bits: weights, an optimizer's
 * moments and counts, and where the random numbers stand, on the device and on the host.
 */

import { type StoredTensor, storeTensor } from "../data/index.js";
import { HoldfastError } from "../errors/index.js";
import type { Module } from "../nn/index.js";
import type { Optimizer } from "../optim/index.js";
import type { JsonRecord } from "../records/index.js";
import {
  type Device,
  drawPosition,
  drawPositionOf,
  restoreDrawPosition,
  type Tensor,
  writeElements,
} from "../tensor/index.js";
import { type Checkpoint, tensorPrefixes } from "./checkpoint-file.js";
import { requireSameTensors, type TensorShapes } from "./compatibility.js";

/** What a run adds of its own. */
export interface StateExtras {
  readonly step: number;
  /** The kind of model; the class's name unless given. */
  readonly model?: string;
  /** A normaliser's statistics and the like; they come back under the same names. */
  readonly tensors?: Iterable<StoredTensor>;
  /** Epoch, cursor, fold, settings, a schedule's state: plain data. */
  readonly state?: JsonRecord;
}

/** What comes back of a run's own. */
export interface RestoredExtras {
  readonly step: number;
  readonly tensors: ReadonlyMap<string, StoredTensor>;
  readonly state: JsonRecord;
}

const randomName = "random.state";

/** Captures a training between two steps, when the gradients have been used: they are not kept. Waits for the device. */
export function captureState(
  module: Module,
  optimizer: Optimizer,
  { step, model = module.constructor.name, tensors = [], state = {} }: StateExtras,
): Checkpoint {
  const stored = [
    ...Array.from(ownTensors(module, optimizer), ([name, tensor]) => storeTensor(name, tensor)),
    ...Array.from(tensors, (one) => ({ ...one, name: tensorPrefixes.extra + one.name })),
  ];
  const { seed, draws } = drawPosition();
  return {
    step,
    tensors: new Map(stored.map((one) => [one.name, one])),
    state: { ...state, model, random: { seed: String(seed), draws } },
  };
}

/** Dtypes and shapes of all that is captured of a model and an optimizer; nothing is read from the device. */
export function describeState(module: Module, optimizer: Optimizer): TensorShapes {
  return ownTensors(module, optimizer);
}

/**
 * Puts a training back to where it was captured: model and optimizer are made as they were then, and get its weights, moments
 * and counts; random numbers go on where they were. Nothing is changed unless all fits.
 */
export function restoreState(checkpoint: Checkpoint, module: Module, optimizer: Optimizer): RestoredExtras {
  requireSameTensors(checkpoint, module.constructor.name, describeState(module, optimizer));
  const position = drawPositionOf(
    `The checkpoint of step ${checkpoint.step}`,
    checkpoint.state["random"],
    "Its file is damaged, or not one of this version's.",
  );
  module.loadStateDict(partOf(checkpoint, tensorPrefixes.model));
  optimizer.loadStateDict(partOf(checkpoint, tensorPrefixes.optimizer));
  restoreDrawPosition(position);
  // Behind the seed, which starts the device's own random numbers anew.
  const onDevice = checkpoint.tensors.get(randomName);
  if (onDevice) writeElements(deviceOf(module).randomState, onDevice);
  return extrasOf(checkpoint);
}

/** Puts only the weights back, into a model of the same shapes: enough to predict with. */
export function restoreWeights(checkpoint: Checkpoint, module: Module): RestoredExtras {
  module.loadStateDict(partOf(checkpoint, tensorPrefixes.model));
  return extrasOf(checkpoint);
}

function ownTensors(module: Module, optimizer: Optimizer): ReadonlyMap<string, Tensor> {
  const named = (prefix: string, entries: Iterable<readonly [string, Tensor]>): [string, Tensor][] =>
    Array.from(entries, ([name, tensor]) => [prefix + name, tensor]);
  return new Map([
    ...named(tensorPrefixes.model, module.namedParameters()),
    ...named(tensorPrefixes.optimizer, Object.entries(optimizer.stateDict())),
    [randomName, deviceOf(module).randomState],
  ]);
}

function deviceOf(module: Module): Device {
  const [first] = module.parameters();
  if (first) return first.device;
  throw new HoldfastError(
    "BAD_ARGUMENT",
    `${module.constructor.name} has no parameters: it has no state to keep.`,
  );
}

export function extrasOf(checkpoint: Checkpoint): RestoredExtras {
  const tensors = new Map(Object.entries(partOf(checkpoint, tensorPrefixes.extra)));
  return { step: checkpoint.step, state: checkpoint.state, tensors };
}

/** The tensors whose names begin so, by the rest of their names. */
function partOf({ tensors }: Checkpoint, prefix: string): Readonly<Record<string, StoredTensor>> {
  const part = [...tensors].filter(([name]) => name.startsWith(prefix));
  return Object.fromEntries(
    part.map(([name, tensor]) => {
      const own = name.slice(prefix.length);
      return [own, { ...tensor, name: own }];
    }),
  );
}
