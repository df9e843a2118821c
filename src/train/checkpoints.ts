/**
 * A folder of checkpoints, the last few of a run. At every moment, through a kill at any other, the ones that were complete
 * are there; one that is damaged is rejected with the reason and never half read.
 */

import { readdirSync, renameSync, rmSync } from "node:fs";
import { join } from "node:path";
import {
  errorCode,
  fileError,
  makeFolder,
  readWhole,
  removeLeftovers,
  type WriteBytes,
  writeAtomically,
} from "../data/index.js";
import { HoldfastError } from "../errors/index.js";
import { type Checkpoint, decodeCheckpoint, encodeCheckpoint } from "./checkpoint-file.js";

export interface CheckpointStoreOptions {
  /** How many are kept, the latest ones; default: 3. The best one is kept besides. */
  readonly keep?: number;
  /** How bytes get into a file; the system's way unless given. */
  readonly write?: WriteBytes;
}

/** A checkpoint that lies in the folder. */
export interface ListedCheckpoint {
  /** The file's name, `step-000000123.safetensors`. */
  readonly name: string;
  readonly step: number;
  readonly path: string;
}

/** A checkpoint that was read whole and found sound. */
export interface LoadedCheckpoint extends Checkpoint {
  readonly name: string;
}

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

  /** Nothing is touched until the first save. */
  constructor(folder: string, { keep = 3, write }: CheckpointStoreOptions = {}) {
    if (!Number.isSafeInteger(keep) || keep < 1) {
      throw new HoldfastError(
        "BAD_ARGUMENT",
        `keep is ${keep}; give a whole number of checkpoints, 1 or more.`,
      );
    }
    this.folder = folder;
    this.keep = keep;
    this.#write = write ? { write } : {};
  }

  /**
   * Makes the folder, and removes what a save that was cut off has left there.
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
   * Saves a checkpoint, and removes those that are one too many only when it is in place. One of the same step is replaced;
   * where there is a later one it is rejected, because what is saved would not be the latest: `continueFrom` first.
   * With `isBest` it is saved a second time, as the one that `load("best")` gives whatever comes later.
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
    const pieces = encodeCheckpoint(checkpoint);
    const { step } = checkpoint;
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
    writeAtomically(saved.path, pieces, this.#write);
    if (isBest) writeAtomically(join(this.folder, bestName), pieces, this.#write);
    for (const { path } of this.list().slice(0, -this.keep)) rmSync(path, { force: true });
    return saved;
  }

  /**
   * What lies in the folder, sound or not, by step. The best one and files of other names are left alone.
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
        return Number.isSafeInteger(step) && this.#listed(step).name === name ? [this.#listed(step)] : [];
      })
      .sort((a, b) => a.step - b.step);
  }

  /**
   * Reads the latest checkpoint, the best one, or one by its name; throws BAD_FILE with the reason where it is not sound.
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
    const found = which === "latest" ? listed.at(-1) : listed.find(({ name }) => name === which);
    if (found) return this.#read(found);
    const there =
      listed.length > 0 ? `There are ${listed.map(({ name }) => name).join(", ")}.` : "There is none.";
    const wanted =
      which === "latest" ? "no checkpoint to go on from" : `no checkpoint ${JSON.stringify(which)}`;
    throw new HoldfastError("BAD_FILE", `${this.folder} has ${wanted}. ${there}`, {
      numbers: { folder: this.folder, which },
    });
  }

  /**
   * Reads the latest checkpoint that is sound; undefined where none is. What it had to pass over on the way stands in
   * `rejected`, the latest first: tell the user. One that `check` throws a HoldfastError for is passed over too.
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
   * const { checkpoint, rejected } = store.loadLatestSound();
   * console.log(checkpoint?.step, rejected.length); // → 2 1
   * ```
   */
  loadLatestSound(check: (checkpoint: LoadedCheckpoint) => void = () => undefined): {
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
   * Says that the run goes on from a step: later checkpoints are no longer its own, and get `.superseded` after their names.
   * Nothing is removed. Their new names.
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
    const later = this.list().filter((listed) => listed.step > step);
    for (const { path } of later) renameSync(path, `${path}.superseded`);
    return later.map(({ name }) => `${name}.superseded`);
  }

  /** Without a step it may be of any. */
  #read({ name, path, step }: Omit<ListedCheckpoint, "step"> & { readonly step?: number }): LoadedCheckpoint {
    try {
      const checkpoint = decodeCheckpoint(readWhole(path));
      if (step === undefined || checkpoint.step === step) return { ...checkpoint, name };
      throw new HoldfastError("BAD_FILE", `It is of step ${checkpoint.step}: the file was renamed.`);
    } catch (error) {
      throw fileError(`${path} is rejected`, path, error);
    }
  }

  #listed(step: number): ListedCheckpoint {
    const name = `step-${String(step).padStart(9, "0")}.safetensors`;
    return { name, step, path: join(this.folder, name) };
  }
}
