/** The checkpoints of a job: the model, the optimizer, the normaliser, and the position in the folds. */

import { join } from "node:path";
import type { StoredTensor } from "../../data/index.js";
import { HoldfastError } from "../../errors/index.js";
import type { JsonRecord } from "../../records/index.js";
import {
  type Checkpoint,
  type CheckpointStore,
  captureState,
  extrasOf,
  type LoadedCheckpoint,
  type RejectedCheckpoint,
  requireCompatible,
  restoreState,
} from "../../train/index.js";
import type { CrossAsset } from "../model.js";
import { type Normaliser, normaliserFrom, normaliserRecord } from "../samples/index.js";
import type { FoldTraining } from "./fold-training.js";
import { readSavedState, type SavedState } from "./saved-state.js";

/** The model's name in checkpoints. */
export const modelName = "CrossAsset";

/** The state that a job resumes from. */
export interface ResumedJob extends SavedState {
  readonly step: number;
  readonly file: string;
  readonly normaliser: Normaliser;
  /** Skipped checkpoints, with the reasons. */
  readonly rejected: readonly RejectedCheckpoint[];
  /** Restores weights, moments and random positions. */
  restore(model: CrossAsset, training: FoldTraining): void;
}

/** The checkpoint of a fold's training. `step` counts the steps of the job. */
export function captureJob(
  step: number,
  model: CrossAsset,
  { optimizer, normaliser }: FoldTraining,
  settings: JsonRecord,
  saved: SavedState,
): Checkpoint {
  return captureState(model, optimizer, {
    ...{ step, model: modelName, tensors: tensorsOf(normaliser) },
    state: { settings, ...saved },
  });
}

/** Reads the latest checkpoint; undefined if there is none. With `allowOlder`, damaged checkpoints are skipped. */
export function findCheckpoint(
  store: CheckpointStore,
  settings: JsonRecord,
  allowOlder: boolean,
): ResumedJob | undefined {
  if (store.list().length === 0) return undefined;
  const { checkpoint, rejected } = allowOlder
    ? store.loadLatestValid((candidate) => void stateIn(candidate, settings))
    : { checkpoint: store.load("latest"), rejected: [] };
  if (!checkpoint) {
    const reasons = rejected.map(({ name, reason }) => `${name}: ${reason}`).join(" ");
    throw new HoldfastError("BAD_FILE", `No checkpoint in ${store.folder} is valid. ${reasons}`);
  }
  requireCompatible(checkpoint, { model: modelName, settings });
  try {
    return { ...stateIn(checkpoint, settings), rejected };
  } catch (error) {
    throw withFileName(store, checkpoint, error);
  }
}

/** The job state of a checkpoint. */
function stateIn(checkpoint: LoadedCheckpoint, settings: JsonRecord): Omit<ResumedJob, "rejected"> {
  return {
    ...readSavedState(checkpoint.state, settings),
    ...{ step: checkpoint.step, file: checkpoint.name },
    normaliser: normaliserIn(checkpoint),
    restore: (model, training) => void restoreState(checkpoint, model, training.optimizer),
  };
}

/** Adds the file name to an error. */
function withFileName({ folder }: CheckpointStore, { name }: LoadedCheckpoint, error: unknown): unknown {
  if (!(error instanceof HoldfastError)) return error;
  const { code, message, numbers } = error;
  return new HoldfastError(code, `${join(folder, name)}: ${message}`, { numbers, cause: error });
}

function tensorsOf(normaliser: Normaliser): StoredTensor[] {
  return Object.entries(normaliserRecord(normaliser)).map(([name, values]) => ({
    ...{ name: `normaliser.${name}`, dtype: "f32", shape: [values.length] },
    bytes: new Uint8Array(values.buffer, values.byteOffset, values.byteLength),
  }));
}

/** The feature statistics of a checkpoint's model. */
export function normaliserIn(checkpoint: LoadedCheckpoint): Normaliser {
  const { tensors } = extrasOf(checkpoint);
  const valuesOf = (name: string): Float32Array => {
    const { dtype, bytes = new Uint8Array(0) } = tensors.get(`normaliser.${name}`) ?? {};
    return new Float32Array(dtype === "f32" ? bytes.slice().buffer : new ArrayBuffer(0));
  };
  return normaliserFrom({ mean: valuesOf("mean"), deviation: valuesOf("deviation") });
}
