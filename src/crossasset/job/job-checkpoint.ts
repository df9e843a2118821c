/** The checkpoints of a job: the model, the optimizer, the normaliser, and the position in the folds. */

import type { StoredTensor } from "../../data/index.js";
import type { JsonRecord } from "../../records/index.js";
import {
  type Checkpoint,
  type CheckpointStore,
  captureState,
  extrasOf,
  findCheckpoint,
  type LoadedCheckpoint,
  type RejectedCheckpoint,
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

/** The state that a run in a folder resumes from; undefined if it has no checkpoint. */
export function findJob(
  store: CheckpointStore,
  settings: JsonRecord,
  allowOlder: boolean,
): ResumedJob | undefined {
  const read = (checkpoint: LoadedCheckpoint) => stateIn(checkpoint, settings);
  return findCheckpoint(store, { model: modelName, settings, allowOlder, read });
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
