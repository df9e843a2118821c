/**
 * Exact resume: saves the parts of a training to one file and restores them. A training that resumes from a checkpoint ends with
 * the same bits as one that was never stopped. Nothing changes if anything in the file does not match.
 */

import { basename, dirname } from "node:path";
import { fileError, removeLeftovers, type StoredTensor, storeTensor } from "../data/index.js";
import { HoldfastError } from "../errors/index.js";
import type { StoredElements } from "../nn/index.js";
import type { JsonRecord } from "../records/index.js";
import { drawPosition, drawPositionOf, restoreDrawPosition, Tensor, writeElements } from "../tensor/index.js";
import { type Checkpoint, requireStep, tensorPrefixes } from "./checkpoint-file.js";
import { requireSameTensors } from "./compatibility.js";
import { isRecord } from "./files/json.js";
import { readCheckpoint, writeCheckpoint } from "./split-checkpoint.js";
import { kindOf, PartList, randomKind, type Stateful, type TrainingParts } from "./training-parts.js";

/** The contents of a checkpoint. */
export interface CheckpointContents extends TrainingParts {
  /** Completed steps; default: 0. */
  readonly step?: number;
  /** Your own plain data: numbers, strings, arrays and records of these. It is restored unchanged. */
  readonly extra?: JsonRecord;
  /** Your own tensors. They are restored as elements on the host. */
  readonly tensors?: Readonly<Record<string, Tensor | StoredElements>>;
}

/** The contents of a checkpoint besides the restored parts. */
export interface RestoredCheckpoint {
  readonly step: number;
  readonly extra: JsonRecord;
  readonly tensors: ReadonlyMap<string, StoredTensor>;
}

/**
 * Saves the parts of a training to one file. Another process can resume from it and end with the same bits. The write is atomic.
 * Call it between two steps, after the optimizer's step: gradients are not saved. If an optimizer is split over ranks, all ranks
 * call it, and each writes its elements to a file next to `path`.
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
  const checkpoint = captureCheckpoint(contents);
  requireStep(checkpoint.step);
  if (typeof path !== "string") {
    throw new HoldfastError("BAD_ARGUMENT", "saveCheckpoint needs a path and the parts of a training.");
  }
  removeLeftovers(dirname(path), basename(path));
  writeCheckpoint(path, checkpoint);
}

/**
 * Restores the parts of a training. Pass parts with the same names, shapes, dtypes and data sets as the saved ones; otherwise
 * the error names the difference and nothing changes. Kinds that you do not pass are ignored, so you can load a model without
 * its optimizer.
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
    return restoreCheckpoint(readCheckpoint(path), parts);
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
 * Like `saveCheckpoint`, but in memory: for a `CheckpointStore`.
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
  const parts = new PartList(contents);
  const { step = 0, extra = {}, tensors = {} } = contents;
  if (!isRecord(extra)) throw new HoldfastError("BAD_ARGUMENT", "extra must be a plain object.");
  const stored = [
    ...Array.from(parts.tensors(), ([name, tensor]) => storeTensor(name, tensor)),
    ...Object.entries(tensors).map(([name, tensor]) => storeAny(tensorPrefixes.extra + name, tensor)),
  ];
  const { seed, draws } = drawPosition();
  return {
    step,
    tensors: new Map(stored.map((tensor) => [tensor.name, tensor])),
    state: {
      model: parts.models.map(([, module]) => module.constructor.name).join(", "),
      ...(parts.hasRandom && { [randomKind]: { seed: String(seed), draws } }),
      parts: Object.fromEntries(parts.stateful.map(([name, part]) => [name, part.stateDict()])),
      extra,
    },
    ...(parts.split && { split: parts.split }),
  };
}

/**
 * Like `loadCheckpoint`, but from memory: for a checkpoint that a `CheckpointStore` loaded.
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
export function restoreCheckpoint(checkpoint: Checkpoint, restored: TrainingParts): RestoredCheckpoint {
  const parts = new PartList(restored);
  const requested = withKinds(checkpoint, parts);
  const model = parts.models.map(([, module]) => module.constructor.name).join(", ") || "training";
  const subject = `The checkpoint of step ${checkpoint.step}`;
  const position = parts.hasRandom
    ? drawPositionOf(subject, checkpoint.state[randomKind], "Load it with random: false.")
    : undefined;
  requireSameTensors(requested, model, parts.shapes());
  // First, because any of them may reject its state, and host state can be undone.
  loadOrUndo(matchStates(subject, checkpoint, parts));
  for (const [name, module] of parts.models) module.loadStateDict(tensorsOf(requested, name));
  for (const [name, part] of [...parts.optimizers, ...parts.scalers])
    part.loadStateDict(tensorsOf(requested, name));
  if (position) restoreDrawPosition(position);
  // After the seed, which resets the devices' random state.
  for (const [name, state] of parts.randomStates()) {
    const saved = requested.tensors.get(name);
    if (saved) writeElements(state, saved);
  }
  const { extra } = checkpoint.state;
  const extras = Object.entries(tensorsOf(checkpoint, kindOf(tensorPrefixes.extra)));
  return { step: checkpoint.step, extra: isRecord(extra) ? extra : {}, tensors: new Map(extras) };
}

function storeAny(name: string, tensor: Tensor | StoredElements): StoredTensor {
  return tensor instanceof Tensor ? storeTensor(name, tensor) : { ...tensor, name };
}

/** The checkpoint with the tensors of the requested kinds. */
function withKinds(checkpoint: Checkpoint, { kinds, hasRandom }: PartList): Checkpoint {
  const isRequested = (kind: string): boolean => kinds.has(kind) || (hasRandom && kind === randomKind);
  const tensors = [...checkpoint.tensors].filter(([name]) => isRequested(kindOf(name)));
  return { ...checkpoint, tensors: new Map(tensors) };
}

/** The tensors of one part, by name without the prefix. */
function tensorsOf({ tensors }: Checkpoint, part: string): Readonly<Record<string, StoredTensor>> {
  const prefix = `${part}.`;
  const matching = [...tensors].filter(([name]) => name.startsWith(prefix));
  return Object.fromEntries(
    matching.map(([name, tensor]) => {
      const rest = name.slice(prefix.length);
      return [rest, { ...tensor, name: rest }];
    }),
  );
}

interface MatchedState {
  readonly name: string;
  readonly part: Stateful;
  readonly state: unknown;
}

/** Pairs each part with its saved state. Throws if a part or a state has no partner. */
function matchStates(
  subject: string,
  { state }: Checkpoint,
  { stateful, kinds }: PartList,
): readonly MatchedState[] {
  const saved = isRecord(state["parts"]) ? state["parts"] : {};
  const names = new Set(stateful.map(([name]) => name));
  const faults = [
    ...[...names].filter((name) => !(name in saved)).map((name) => `${name} is not in the checkpoint`),
    ...Object.keys(saved)
      .filter((name) => kinds.has(kindOf(name)) && !names.has(name))
      .map((name) => `${name} is only in the checkpoint`),
  ];
  if (faults.length === 0) return stateful.map(([name, part]) => ({ name, part, state: saved[name] }));
  throw new HoldfastError(
    "BAD_STATE",
    `${subject} does not fit this training: ${faults.join("; ")}. Pass the parts that it was saved with.`,
    { numbers: { faults: faults.length } },
  );
}

/** Loads all states. If one is rejected, the earlier ones are restored. */
function loadOrUndo(matches: readonly MatchedState[]): void {
  const undo: (() => void)[] = [];
  for (const { name, part, state } of matches) {
    const before = part.stateDict();
    try {
      part.loadStateDict(state as never);
      undo.push(() => part.loadStateDict(before as never));
    } catch (error) {
      for (const restore of undo) restore();
      const why = error instanceof Error ? error.message : String(error);
      const details = error instanceof HoldfastError ? { numbers: error.numbers } : {};
      throw new HoldfastError("BAD_STATE", `${name}: ${why}`, { cause: error, ...details });
    }
  }
}
