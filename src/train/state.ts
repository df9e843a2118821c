/**
 * Captures and restores the state of a training, bit for bit: weights, the optimizer's moments and counts, and the positions of
 * the random generators on the device and on the host.
 */

import { type StoredTensor, storeTensor } from "../data/index.js";
import { HoldfastError } from "../errors/index.js";
import { type Module, Parameter } from "../nn/index.js";
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
import { splitOf } from "./split-checkpoint.js";

/** Which tensors of a training are captured. */
export interface CaptureOptions {
  /** Leave out frozen parameters: the run loads them from elsewhere. Default: false. */
  readonly trainedOnly?: boolean | undefined;
}

/** State that a run adds to a checkpoint. */
export interface StateExtras extends CaptureOptions {
  readonly step: number;
  /** The model's name; default: the name of its class. */
  readonly model?: string;
  /** Such as a normaliser's statistics. They are restored under the same names. */
  readonly tensors?: Iterable<StoredTensor>;
  /** Epoch, cursor, fold, settings, a schedule's state: plain data. */
  readonly state?: JsonRecord;
}

/** The restored state that a run added. */
export interface RestoredExtras {
  readonly step: number;
  readonly tensors: ReadonlyMap<string, StoredTensor>;
  readonly state: JsonRecord;
}

const randomName = "random.state";

/** Captures a training between two steps, after the optimizer's step: gradients are not saved. Waits for the device. */
export function captureState(
  module: Module,
  optimizer: Optimizer,
  { step, model = module.constructor.name, tensors = [], state = {}, ...options }: StateExtras,
): Checkpoint {
  const stored = [
    ...Array.from(capturedTensors(module, optimizer, options), ([name, tensor]) => storeTensor(name, tensor)),
    ...Array.from(tensors, (tensor) => ({ ...tensor, name: tensorPrefixes.extra + tensor.name })),
  ];
  const { seed, draws } = drawPosition();
  return {
    step,
    tensors: new Map(stored.map((tensor) => [tensor.name, tensor])),
    state: { ...state, model, random: { seed: String(seed), draws } },
    ...splitFor(optimizer),
  };
}

function splitFor(optimizer: Optimizer): Pick<Checkpoint, "split"> {
  const split = splitOf(optimizer, tensorPrefixes.optimizer);
  return split ? { split } : {};
}

/** Dtypes and shapes of the captured tensors of a model and an optimizer. Reads nothing from the device. */
export function describeState(
  module: Module,
  optimizer: Optimizer,
  options: CaptureOptions = {},
): TensorShapes {
  return shapesOf(module, optimizer.describeState(), options);
}

/**
 * Restores a captured training into a model and an optimizer of the same structure: weights, moments, counts and random
 * positions. If anything does not match, it throws and changes nothing.
 */
export function restoreState(
  checkpoint: Checkpoint,
  module: Module,
  optimizer: Optimizer,
  options: CaptureOptions = {},
): RestoredExtras {
  requireSameTensors(checkpoint, module.constructor.name, describeState(module, optimizer, options));
  const position = drawPositionOf(
    `The checkpoint of step ${checkpoint.step}`,
    checkpoint.state["random"],
    "Its file is damaged, or of another version.",
  );
  // The names were compared above.
  module.loadStateDict(withoutPrefix(checkpoint, tensorPrefixes.model), { strict: false });
  optimizer.loadStateDict(withoutPrefix(checkpoint, tensorPrefixes.optimizer));
  restoreDrawPosition(position);
  // After the seed, which resets the device's random state.
  const onDevice = checkpoint.tensors.get(randomName);
  if (onDevice) writeElements(deviceOf(module).randomState, onDevice);
  return extrasOf(checkpoint);
}

/** Restores only the weights, which is enough to predict. */
export function restoreWeights(checkpoint: Checkpoint, module: Module): RestoredExtras {
  module.loadStateDict(withoutPrefix(checkpoint, tensorPrefixes.model));
  return extrasOf(checkpoint);
}

function capturedTensors(
  module: Module,
  optimizer: Optimizer,
  options: CaptureOptions,
): ReadonlyMap<string, Tensor> {
  return shapesOf<Tensor>(module, optimizer.stateDict(), options);
}

/** The tensors of a model, of a state of its optimizer, and of the device's random numbers. */
function shapesOf<State>(
  module: Module,
  state: Readonly<Record<string, State>>,
  { trainedOnly = false }: CaptureOptions,
): ReadonlyMap<string, Tensor | State> {
  const named = <Item>(prefix: string, entries: Iterable<readonly [string, Item]>): [string, Item][] =>
    Array.from(entries, ([name, tensor]) => [prefix + name, tensor]);
  return new Map<string, Tensor | State>([
    ...named(
      tensorPrefixes.model,
      Object.entries(module.stateDict()).filter(([, tensor]) => !(trainedOnly && isFrozen(tensor))),
    ),
    ...named(tensorPrefixes.optimizer, Object.entries(state)),
    [randomName, deviceOf(module).randomState],
  ]);
}

function isFrozen(tensor: Tensor): boolean {
  return tensor instanceof Parameter && !tensor.requiresGrad;
}

function deviceOf(module: Module): Device {
  const [first] = Object.values(module.stateDict());
  if (first) return first.device;
  throw new HoldfastError(
    "BAD_ARGUMENT",
    `${module.constructor.name} has no parameters and no buffers, so it has no state to save.`,
  );
}

export function extrasOf(checkpoint: Checkpoint): RestoredExtras {
  const tensors = new Map(Object.entries(withoutPrefix(checkpoint, tensorPrefixes.extra)));
  return { step: checkpoint.step, state: checkpoint.state, tensors };
}

/** The tensors with this prefix, by name without it. */
function withoutPrefix({ tensors }: Checkpoint, prefix: string): Readonly<Record<string, StoredTensor>> {
  const matching = [...tensors].filter(([name]) => name.startsWith(prefix));
  return Object.fromEntries(
    matching.map(([name, tensor]) => {
      const rest = name.slice(prefix.length);
      return [rest, { ...tensor, name: rest }];
    }),
  );
}
