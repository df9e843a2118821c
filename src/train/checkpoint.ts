/**
 * Exact resume: the parts of a training in one file, and back. A training that goes on from a checkpoint ends with the same
 * bits as one that was never stopped. Nothing is changed unless everything in the file fits.
 */

import { basename, dirname } from "node:path";
import {
  fileError,
  readWhole,
  removeLeftovers,
  type StoredTensor,
  storeTensor,
  writeAtomically,
} from "../data/index.js";
import { HoldfastError } from "../errors/index.js";
import type { StoredElements } from "../nn/index.js";
import type { JsonRecord } from "../records/index.js";
import { drawPosition, drawPositionOf, restoreDrawPosition, Tensor, writeElements } from "../tensor/index.js";
import { type Checkpoint, decodeCheckpoint, encodeCheckpoint, tensorPrefixes } from "./checkpoint-file.js";
import { requireSameTensors } from "./compatibility.js";
import { isRecord } from "./files/json.js";
import { kindOf, randomKind, SliceList, type Stateful, type TrainingParts } from "./training-parts.js";

/** What a checkpoint holds. */
export interface CheckpointContents extends TrainingParts {
  /** How many steps were made; default: 0. */
  readonly step?: number;
  /** Plain data of your own: numbers, texts, arrays and records of these. It comes back as it is. */
  readonly extra?: JsonRecord;
  /** Tensors of your own; they come back as elements on the host. */
  readonly tensors?: Readonly<Record<string, Tensor | StoredElements>>;
}

/** What comes back besides the parts that were restored. */
export interface RestoredCheckpoint {
  readonly step: number;
  readonly extra: JsonRecord;
  readonly tensors: ReadonlyMap<string, StoredTensor>;
}

/**
 * Saves the parts of a training in one file, so that another process can go on from there to the same bits. The file is
 * there whole or not at all. Call it between two steps, after the gradients were used: they are not saved.
 *
 * @example
 * ```ts
 * import { mkdtempSync } from "node:fs";
 * import { tmpdir } from "node:os";
 * import { join } from "node:path";
 * import { device, loadCheckpoint, nn, ones, optim, saveCheckpoint } from "holdfast";
 * const cpu = await device("cpu");
 * const path = join(mkdtempSync(join(tmpdir(), "run-")), "latest.safetensors");
 * const model = new nn.Sequential(new nn.Linear(4, 1), new nn.Dropout(0.5)).to(cpu);
 * const optimizer = new optim.AdamW(model.parameters());
 * const train = () =>
 *   cpu.step(() => {
 *     const loss = model.forward(ones([2, 4])).square().mean();
 *     loss.backward();
 *     optimizer.step();
 *     optimizer.zeroGrad();
 *     return loss.item();
 *   });
 * train();
 * saveCheckpoint(path, { model, optimizer, step: 1, extra: { note: "after one step" } });
 * const second = train();
 * const { step, extra } = loadCheckpoint(path, { model, optimizer });
 * console.log(step, extra["note"], train() === second); // → 1 after one step true
 * cpu.close();
 * ```
 */
export function saveCheckpoint(path: string, contents: CheckpointContents): void {
  const pieces = encodeCheckpoint(captureCheckpoint(contents));
  if (typeof path !== "string") {
    throw new HoldfastError("BAD_ARGUMENT", "saveCheckpoint takes a path and the parts of a training.");
  }
  removeLeftovers(dirname(path), basename(path));
  writeAtomically(path, pieces);
}

/**
 * Puts the parts of a training back to where they were saved. Give them as they were made then: other names, shapes, dtypes
 * or data sets are rejected by name, and nothing is changed. Kinds that are not given are left alone, so that a model can be
 * loaded without its optimizer.
 *
 * @example
 * ```ts
 * import { mkdtempSync } from "node:fs";
 * import { tmpdir } from "node:os";
 * import { join } from "node:path";
 * import { device, HoldfastError, loadCheckpoint, nn, saveCheckpoint } from "holdfast";
 * const cpu = await device("cpu");
 * const path = join(mkdtempSync(join(tmpdir(), "run-")), "latest.safetensors");
 * saveCheckpoint(path, { model: new nn.Linear(4, 1).to(cpu), step: 3 });
 * console.log(loadCheckpoint(path, { model: new nn.Linear(4, 1).to(cpu) }).step); // → 3
 * try {
 *   loadCheckpoint(path, { model: new nn.Linear(5, 1).to(cpu) });
 * } catch (error) {
 *   if (error instanceof HoldfastError) console.log(error.code); // → BAD_STATE
 * }
 * cpu.close();
 * ```
 */
export function loadCheckpoint(path: string, parts: TrainingParts): RestoredCheckpoint {
  try {
    return restoreCheckpoint(decodeCheckpoint(readWhole(path)), parts);
  } catch (error) {
    if (!(error instanceof HoldfastError) || error.code === "BAD_FILE") {
      throw fileError(`${path} can't be read`, path, error);
    }
    const { code, numbers } = error;
    throw new HoldfastError(code, `${path}: ${error.message}`, {
      cause: error,
      numbers: { ...numbers, path },
    });
  }
}

/**
 * The same as `saveCheckpoint`, in memory: for a `CheckpointStore`.
 *
 * @example
 * ```ts
 * import { captureCheckpoint, device, nn } from "holdfast";
 * const cpu = await device("cpu");
 * const { step, tensors } = captureCheckpoint({ model: new nn.Linear(2, 1).to(cpu), step: 5 });
 * console.log(step, [...tensors.keys()]); // → 5 [ 'model.weight', 'model.bias' ]
 * cpu.close();
 * ```
 */
export function captureCheckpoint(contents: CheckpointContents): Checkpoint {
  const parts = new SliceList(contents);
  const { step = 0, extra = {}, tensors = {} } = contents;
  if (!isRecord(extra)) throw new HoldfastError("BAD_ARGUMENT", "extra must be a plain object.");
  const stored = [
    ...Array.from(parts.tensors(), ([name, tensor]) => storeTensor(name, tensor)),
    ...Object.entries(tensors).map(([name, one]) => storeAny(tensorPrefixes.extra + name, one)),
  ];
  const { seed, draws } = drawPosition();
  return {
    step,
    tensors: new Map(stored.map((one) => [one.name, one])),
    state: {
      model: parts.models.map(([, module]) => module.constructor.name).join(", "),
      ...(parts.hasRandom && { [randomKind]: { seed: String(seed), draws } }),
      parts: Object.fromEntries(parts.stateful.map(([name, part]) => [name, part.stateDict()])),
      extra,
    },
  };
}

/**
 * The same as `loadCheckpoint`, from memory: for what a `CheckpointStore` has loaded.
 *
 * @example
 * ```ts
 * import { captureCheckpoint, device, nn, restoreCheckpoint } from "holdfast";
 * const cpu = await device("cpu");
 * const [trained, fresh] = [new nn.Linear(2, 1).to(cpu), new nn.Linear(2, 1).to(cpu)];
 * restoreCheckpoint(captureCheckpoint({ model: trained }), { model: fresh });
 * console.log(String(fresh.weight.tolist()) === String(trained.weight.tolist())); // → true
 * cpu.close();
 * ```
 */
export function restoreCheckpoint(checkpoint: Checkpoint, given: TrainingParts): RestoredCheckpoint {
  const parts = new SliceList(given);
  const found = subexpressionsOf(checkpoint, parts);
  const model = parts.models.map(([, module]) => module.constructor.name).join(", ") || "training";
  const subject = `The checkpoint of step ${checkpoint.step}`;
  const position = parts.hasRandom
    ? drawPositionOf(subject, checkpoint.state[randomKind], "Load it with random: false.")
    : undefined;
  requireSameTensors(found, model, parts.tensors());
  // These are on the host and can be put back, so they come first: any of them may reject its state.
  loadOrUndo(matchStates(subject, checkpoint, parts));
  for (const [name, module] of parts.models) module.loadStateDict(below(found, name));
  for (const [name, optimizer] of parts.optimizers) optimizer.loadStateDict(below(found, name));
  if (position) restoreDrawPosition(position);
  // After the seed, which starts the devices' own random numbers anew.
  for (const [name, state] of parts.randomStates()) {
    const saved = found.tensors.get(name);
    if (saved) writeElements(state, saved);
  }
  const { extra } = checkpoint.state;
  const own = Object.entries(below(checkpoint, kindOf(tensorPrefixes.extra)));
  return { step: checkpoint.step, extra: isRecord(extra) ? extra : {}, tensors: new Map(own) };
}

function storeAny(name: string, one: Tensor | StoredElements): StoredTensor {
  return one instanceof Tensor ? storeTensor(name, one) : { ...one, name };
}

/** The tensors of the kinds that are asked for. */
function subexpressionsOf(checkpoint: Checkpoint, { kinds, hasRandom }: SliceList): Checkpoint {
  const isAsked = (kind: string): boolean => kinds.has(kind) || (hasRandom && kind === randomKind);
  const tensors = [...checkpoint.tensors].filter(([name]) => isAsked(kindOf(name)));
  return { ...checkpoint, tensors: new Map(tensors) };
}

/** The tensors of one part, by the rest of their names. */
function below({ tensors }: Checkpoint, part: string): Readonly<Record<string, StoredTensor>> {
  const prefix = `${part}.`;
  const own = [...tensors].filter(([name]) => name.startsWith(prefix));
  return Object.fromEntries(
    own.map(([name, tensor]) => {
      const rest = name.slice(prefix.length);
      return [rest, { ...tensor, name: rest }];
    }),
  );
}

interface Loading {
  readonly name: string;
  readonly part: Stateful;
  readonly state: unknown;
}

/** Which state is for which part; rejects where one is on one side only. */
function matchStates(
  subject: string,
  { state }: Checkpoint,
  { stateful, kinds }: SliceList,
): readonly Loading[] {
  const saved = isRecord(state["parts"]) ? state["parts"] : {};
  const names = new Set(stateful.map(([name]) => name));
  const faults = [
    ...[...names]
      .filter((name) => !(name in saved))
      .map((name) => `${name} is here and not in the checkpoint`),
    ...Object.keys(saved)
      .filter((name) => kinds.has(kindOf(name)) && !names.has(name))
      .map((name) => `${name} is in the checkpoint and not here`),
  ];
  if (faults.length === 0) return stateful.map(([name, part]) => ({ name, part, state: saved[name] }));
  throw new HoldfastError(
    "BAD_STATE",
    `${subject} does not fit this training: ${faults.join("; ")}. Give the parts that it was saved with.`,
    { numbers: { faults: faults.length } },
  );
}

/** Loads all states; where one is rejected, those before it are put back. */
function loadOrUndo(loadings: readonly Loading[]): void {
  const undo: (() => void)[] = [];
  for (const { name, part, state } of loadings) {
    const before = part.stateDict();
    try {
      part.loadStateDict(state as never);
      undo.push(() => part.loadStateDict(before as never));
    } catch (error) {
      for (const one of undo) one();
      const why = error instanceof Error ? error.message : String(error);
      const details = error instanceof HoldfastError ? { numbers: error.numbers } : {};
      throw new HoldfastError("BAD_STATE", `${name}: ${why}`, { cause: error, ...details });
    }
  }
}
