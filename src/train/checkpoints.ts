/**
 * A folder with the last few checkpoints of a run. A kill at any time leaves the complete ones in place. A damaged checkpoint is
 * rejected with the reason and never read in part.
 */

import { readdirSync, renameSync } from "node:fs";
import { join } from "node:path";
import {
  errorCode,
  fileError,
  isThere,
  makeFolder,
  removeLeftovers,
  type WriteBytes,
} from "../data/index.js";
import { HoldfastError } from "../errors/index.js";
import { type Checkpoint, requireStep } from "./checkpoint-file.js";
import { readCheckpoint, removeCheckpoint, removeUnusedParts, writeCheckpoint } from "./split-checkpoint.js";

/** Options of a `CheckpointStore`. */
export interface CheckpointStoreOptions {
  /** The number of latest checkpoints to keep; default: 3. The best one is kept in addition. */
  readonly keep?: number;
  /** Writes bytes to a file; default: the system's call. */
  readonly write?: WriteBytes;
  /**
   * Ignore checkpoints of later steps. A rank resumes from the checkpoint that rank 0 has found.
   *
   * @internal
   */
  readonly lastStep?: number;
}

/** A checkpoint in the folder. */
export interface ListedCheckpoint {
  /** The file's name, `step-000000123.safetensors`. */
  readonly name: string;
  readonly step: number;
  readonly path: string;
}

/** A checkpoint that was read and verified. */
export interface LoadedCheckpoint extends Checkpoint {
  readonly name: string;
}

/** A checkpoint that could not be read, with the reason. */
export interface RejectedCheckpoint {
  readonly name: string;
  /** One line. */
  readonly reason: string;
}

const bestName = "best.safetensors";
const fileName = /^step-(\d{9,})\.safetensors$/;

/**
 * A folder with the last few checkpoints of a run, and the best one.
 *
 * @example
 * ```ts
 * import { mkdtempSync } from "node:fs";
 * import { tmpdir } from "node:os";
 * import { join } from "node:path";
 * import { CheckpointStore, captureCheckpoint, device, nn, restoreCheckpoint } from "holdfast";
 * const cpu = await device("cpu");
 * const model = new nn.Linear(2, 1).to(cpu);
 * const store = new CheckpointStore(mkdtempSync(join(tmpdir(), "run-")), { keep: 2 });
 * for (let step = 1; step <= 4; step++) store.save(captureCheckpoint({ model, step }));
 * console.log(store.list().map(({ step }) => step)); // → [ 3, 4 ]
 * console.log(restoreCheckpoint(store.load("latest"), { model }).step); // → 4
 * cpu.close();
 * ```
 */
export class CheckpointStore {
  readonly folder: string;
  readonly keep: number;
  readonly #write: { readonly write?: WriteBytes };
  readonly #lastStep: number;

  /** The folder is not touched before the first save. */
  constructor(folder: string, options: CheckpointStoreOptions = {}) {
    const { keep = 3, write, lastStep = Infinity } = options;
    if (!Number.isSafeInteger(keep) || keep < 1) {
      throw new HoldfastError("BAD_ARGUMENT", `keep is ${keep}. It must be a whole number, 1 or more.`);
    }
    this.folder = folder;
    this.keep = keep;
    this.#write = write ? { write } : {};
    this.#lastStep = lastStep;
  }

  /**
   * Creates the folder, and removes the temporary files of an interrupted save.
   *
   * @example
   * ```ts
   * import { mkdtempSync } from "node:fs";
   * import { tmpdir } from "node:os";
   * import { join } from "node:path";
   * import { CheckpointStore } from "holdfast";
   * const store = new CheckpointStore(mkdtempSync(join(tmpdir(), "run-")), { keep: 2 });
   * store.prepare();
   * console.log(store.list()); // → []
   * ```
   */
  prepare(): void {
    makeFolder(this.folder);
    removeLeftovers(this.folder);
  }

  /**
   * Saves a checkpoint, then removes the oldest ones above `keep`. A checkpoint of the same step is replaced. A later
   * one in the folder is an error; call `continueFrom` first. With `isBest` the checkpoint is also saved as the best
   * one, for `load("best")`. If an optimizer is split over ranks, all ranks save; otherwise one does.
   *
   * @example
   * ```ts
   * import { mkdtempSync } from "node:fs";
   * import { tmpdir } from "node:os";
   * import { join } from "node:path";
   * import { CheckpointStore } from "holdfast";
   * const store = new CheckpointStore(mkdtempSync(join(tmpdir(), "run-")), { keep: 2 });
   * for (const [step, loss] of [3, 1, 2, 2.5].entries()) {
   *   store.save({ step, tensors: new Map(), state: { loss } }, { isBest: loss === 1 });
   * }
   * console.log(store.list().map(({ step }) => step), store.load("best").step); // → [ 2, 3 ] 1
   * ```
   */
  save(checkpoint: Checkpoint, { isBest = false }: { readonly isBest?: boolean } = {}): ListedCheckpoint {
    const { step } = checkpoint;
    requireStep(step);
    this.prepare();
    const later = this.list().at(-1);
    if (later && later.step > step) {
      throw new HoldfastError(
        "BAD_STATE",
        `${this.folder} has ${later.name}, which is later than step ${step}. Resume from it, or use another folder.`,
        { numbers: { step, later: later.step } },
      );
    }
    const saved = this.#listed(step);
    writeCheckpoint(saved.path, checkpoint, this.#write);
    if (isBest) writeCheckpoint(join(this.folder, bestName), checkpoint, this.#write);
    // Of several ranks, rank 0 tidies up.
    if ((checkpoint.split?.ranks.rank ?? 0) === 0)
      for (const { path } of this.list().slice(0, -this.keep)) removeCheckpoint(path);
    return saved;
  }

  /**
   * The checkpoints in the folder by step, damaged ones included. The best one and files of other names are not listed.
   *
   * @example
   * ```ts
   * import { mkdtempSync } from "node:fs";
   * import { tmpdir } from "node:os";
   * import { join } from "node:path";
   * import { CheckpointStore } from "holdfast";
   * const store = new CheckpointStore(mkdtempSync(join(tmpdir(), "run-")), { keep: 2 });
   * for (const step of [1, 2, 3]) store.save({ step, tensors: new Map(), state: {} });
   * console.log(store.list().map(({ name }) => name));
   * // → [ 'step-000000002.safetensors', 'step-000000003.safetensors' ]
   * ```
   */
  list(): readonly ListedCheckpoint[] {
    let names: readonly string[];
    try {
      names = readdirSync(this.folder);
    } catch (error) {
      if (errorCode(error) === "ENOENT") return [];
      throw fileError(`${this.folder} can't be listed`, this.folder, error);
    }
    return names
      .flatMap((name) => {
        const step = Number(fileName.exec(name)?.[1] ?? Number.NaN);
        const isListed = Number.isSafeInteger(step) && step <= this.#lastStep;
        return isListed && this.#listed(step).name === name ? [this.#listed(step)] : [];
      })
      .sort((a, b) => a.step - b.step);
  }

  /**
   * Reads the latest checkpoint, the best one, or one by its name. Throws BAD_FILE with the reason if it is damaged.
   *
   * @example
   * ```ts
   * import { mkdtempSync } from "node:fs";
   * import { tmpdir } from "node:os";
   * import { join } from "node:path";
   * import { CheckpointStore } from "holdfast";
   * const store = new CheckpointStore(mkdtempSync(join(tmpdir(), "run-")), { keep: 2 });
   * for (const step of [1, 2, 3]) store.save({ step, tensors: new Map(), state: {} });
   * console.log(store.load("latest").step, store.load("step-000000002.safetensors").step); // → 3 2
   * ```
   */
  load(which: string): LoadedCheckpoint {
    if (which === "best") return this.#read({ name: bestName, path: join(this.folder, bestName) });
    const listed = this.list();
    const match = which === "latest" ? listed.at(-1) : listed.find(({ name }) => name === which);
    if (match) return this.#read(match);
    const available =
      listed.length > 0 ? `It has ${listed.map(({ name }) => name).join(", ")}.` : "It has none.";
    const missing =
      which === "latest" ? "no checkpoint to resume from" : `no checkpoint ${JSON.stringify(which)}`;
    throw new HoldfastError("BAD_FILE", `${this.folder} has ${missing}. ${available}`, {
      numbers: { folder: this.folder, which },
    });
  }

  /**
   * Reads the latest valid checkpoint; undefined if there is none. `rejected` lists the skipped ones, the latest first: show them
   * to the user. A checkpoint is also skipped if `check` throws a HoldfastError.
   *
   * @example
   * ```ts
   * import { mkdtempSync, writeFileSync } from "node:fs";
   * import { tmpdir } from "node:os";
   * import { join } from "node:path";
   * import { CheckpointStore } from "holdfast";
   * const store = new CheckpointStore(mkdtempSync(join(tmpdir(), "run-")), { keep: 2 });
   * for (const step of [1, 2, 3]) store.save({ step, tensors: new Map(), state: {} });
   * const [, last] = store.list();
   * if (last) writeFileSync(last.path, "cut off");
   * const { checkpoint, rejected } = store.loadLatestValid();
   * console.log(checkpoint?.step, rejected.length); // → 2 1
   * ```
   */
  loadLatestValid(check: (checkpoint: LoadedCheckpoint) => void = () => undefined): {
    readonly checkpoint: LoadedCheckpoint | undefined;
    readonly rejected: readonly RejectedCheckpoint[];
  } {
    const rejected: RejectedCheckpoint[] = [];
    for (const listed of this.list().toReversed()) {
      try {
        const checkpoint = this.#read(listed);
        check(checkpoint);
        return { checkpoint, rejected };
      } catch (error) {
        if (!(error instanceof HoldfastError)) throw error;
        rejected.push({ name: listed.name, reason: error.message });
      }
    }
    return { checkpoint: undefined, rejected };
  }

  /**
   * Declares that the run resumes from a step. Later checkpoints get the suffix `.superseded`; none is removed. Returns their new
   * names.
   *
   * @example
   * ```ts
   * import { mkdtempSync } from "node:fs";
   * import { tmpdir } from "node:os";
   * import { join } from "node:path";
   * import { CheckpointStore } from "holdfast";
   * const store = new CheckpointStore(mkdtempSync(join(tmpdir(), "run-")), { keep: 2 });
   * for (const step of [1, 2, 3]) store.save({ step, tensors: new Map(), state: {} });
   * console.log(store.continueFrom(2)); // → [ 'step-000000003.safetensors.superseded' ]
   * ```
   */
  continueFrom(step: number): readonly string[] {
    if (isThere(this.folder)) removeUnusedParts(this.folder);
    const later = this.list().filter((listed) => listed.step > step);
    for (const { path } of later) renameSync(path, `${path}.superseded`);
    return later.map(({ name }) => `${name}.superseded`);
  }

  /** Reads and verifies a file. Without `step`, any step is valid. */
  #read({ name, path, step }: Omit<ListedCheckpoint, "step"> & { readonly step?: number }): LoadedCheckpoint {
    try {
      const checkpoint = readCheckpoint(path);
      if (step === undefined || checkpoint.step === step) return { ...checkpoint, name };
      throw new HoldfastError("BAD_FILE", `It contains step ${checkpoint.step}: the file was renamed.`);
    } catch (error) {
      throw fileError(`${path} is rejected`, path, error);
    }
  }

  #listed(step: number): ListedCheckpoint {
    const name = `step-${String(step).padStart(9, "0")}.safetensors`;
    return { name, step, path: join(this.folder, name) };
  }
}
