/** Finds the checkpoint that a run resumes from, and reads the state that the run has added to it. */

import { join } from "node:path";
import { HoldfastError } from "../errors/index.js";
import type { JsonRecord } from "../records/index.js";
import type { CheckpointStore, LoadedCheckpoint, RejectedCheckpoint } from "./checkpoints.js";
import { requireCompatible } from "./compatibility.js";

export interface FindCheckpointOptions<State> {
  /** The model's name in checkpoints. */
  readonly model: string;
  readonly settings: JsonRecord;
  /** Take the latest valid checkpoint if later ones are damaged. */
  readonly allowOlder: boolean;
  /** Reads and checks the state that the run has added. */
  readonly read: (checkpoint: LoadedCheckpoint) => State;
}

/** A state, with the checkpoints that were skipped, and the reasons. */
export type FoundState<State> = State & { readonly rejected: readonly RejectedCheckpoint[] };

/** The state of the checkpoint to resume from; undefined if there is none. */
export function findCheckpoint<State>(
  store: CheckpointStore,
  { model, settings, allowOlder, read }: FindCheckpointOptions<State>,
): FoundState<State> | undefined {
  if (store.list().length === 0) return undefined;
  const { checkpoint, rejected } = allowOlder
    ? store.loadLatestValid((candidate) => void read(candidate))
    : { checkpoint: store.load("latest"), rejected: [] };
  if (!checkpoint) {
    const reasons = rejected.map(({ name, reason }) => `${name}: ${reason}`).join(" ");
    throw new HoldfastError("BAD_FILE", `No checkpoint in ${store.folder} is valid. ${reasons}`);
  }
  requireCompatible(checkpoint, { model, settings });
  try {
    return { ...read(checkpoint), rejected };
  } catch (error) {
    throw withFileName(store, checkpoint, error);
  }
}

/** Adds the file name to an error. */
function withFileName({ folder }: CheckpointStore, { name }: LoadedCheckpoint, error: unknown): unknown {
  if (!(error instanceof HoldfastError)) return error;
  const { code, message, numbers } = error;
  return new HoldfastError(code, `${join(folder, name)}: ${message}`, { numbers, cause: error });
}
