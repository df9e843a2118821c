/** A job's folder: what it was asked, how far it is, its figures, and checkpoints that another process goes on from. */

import { join } from "node:path";
import { isThere, type StoredTensor } from "../../data/index.js";
import { HoldfastError } from "../../errors/index.js";
import type { JsonRecord, RunProgress, RunRecord } from "../../records/index.js";
import type { Runtime } from "../../runtime/index.js";
import type { ReportOptions } from "../../tensor/index.js";
import {
  CheckpointStore,
  captureState,
  extrasOf,
  type LoadedCheckpoint,
  RecorderLog,
  type RejectedCheckpoint,
  type Reporting,
  RunFolder,
  RunRecorder,
  readRun,
  readRunRecord,
  requireCompatible,
  requireSameSettings,
  restoreState,
  runFiles,
  type TrainingWatcher,
} from "../../train/index.js";
import type { CrossAsset } from "../model.js";
import { type Normaliser, normaliserFrom, normaliserRecord } from "../samples/index.js";
import type { JobEvent } from "./events.js";
import type { FoldTraining } from "./fold-training.js";
import type { FoldResult, JobResults } from "./results.js";
import { readSavedState, type SavedState } from "./saved-state.js";

/** The kind of model that checkpoints name. */
export const modelName = "CrossAsset";

/** Options of a job's run folder. */
export interface JobRunOptions {
  readonly path: string;
  /** All that the result follows from; a run is gone on with only where they are the same. */
  readonly settings: JsonRecord;
  /** The device's name. */
  readonly device: string;
  /** Go on from the latest checkpoint that is sound, where later ones are not. */
  readonly allowOlder?: boolean;
  /** The device's; what it does is written into the folder, for the inspector and for people. */
  readonly runtime?: Runtime;
}

/** Where a job goes on. */
export interface ResumedJob extends SavedState {
  readonly step: number;
  readonly file: string;
  readonly normaliser: Normaliser;
  /** Checkpoints that were passed over, with the reasons. */
  readonly rejected: readonly RejectedCheckpoint[];
  /** Brings weights, moments and random numbers back. */
  restore(model: CrossAsset, training: FoldTraining): void;
}

/**
 * Does a folder hold a run, and has it ended with all that it was to do, or diverged? Neither is resumed.
 *
 * @example
 * ```ts
 * import { crossasset } from "holdfast";
 * console.log(crossasset.stateOfRun("runs/that/never/were")); // → none
 * ```
 */
export function stateOfRun(path: string): "none" | "unfinished" | "finished" | "diverged" {
  if (!isThere(join(path, runFiles.run))) return "none";
  const state = readRun(path).status?.state;
  return state === "finished" || state === "diverged" ? state : "unfinished";
}

/**
 * Rejects settings that are not those of the run in a folder, and writes nothing. Only the settings that are given are compared.
 *
 * @example
 * ```ts
 * import { mkdtempSync } from "node:fs";
 * import { tmpdir } from "node:os";
 * import { join } from "node:path";
 * import { crossasset } from "holdfast";
 * const path = join(mkdtempSync(join(tmpdir(), "run-")), "first");
 * crossasset.openJobRun({ path, settings: { epochs: 3 }, device: "CPU" }).end(undefined, 3);
 * try {
 *   crossasset.requireRunSettings(path, { epochs: 4 });
 * } catch (error) {
 *   console.log(String(error).includes("epochs was 3 and is 4 here")); // → true
 * }
 * ```
 */
export function requireRunSettings(path: string, settings: JsonRecord): void {
  const run = readRunRecord(path);
  if (run) requireSameSettings(`The run in ${path}`, run.settings, settings);
}

function requireSettingsOf(path: string, run: RunRecord, settings: JsonRecord): void {
  const names = Object.keys({ ...run.settings, ...settings });
  requireSameSettings(`The run in ${path}`, run.settings, settings, names);
}

/**
 * Begins a run in a folder, or goes on with the one that is there; `runJob` writes it down.
 *
 * @example
 * ```ts
 * import { mkdtempSync } from "node:fs";
 * import { tmpdir } from "node:os";
 * import { join } from "node:path";
 * import { crossasset } from "holdfast";
 * const path = join(mkdtempSync(join(tmpdir(), "run-")), "first");
 * const run = crossasset.openJobRun({ path, settings: { epochs: 3 }, device: "CPU" });
 * console.log(run.resumed, crossasset.stateOfRun(path)); // → undefined unfinished
 * run.end(undefined, 3);
 * ```
 */
export function openJobRun(options: JobRunOptions): JobRun {
  return new JobRun(options);
}

/** A run that is under way. */
export class JobRun {
  readonly resumed: ResumedJob | undefined;
  readonly #folder: RunFolder;
  readonly #isNew: boolean;
  readonly #store: CheckpointStore;
  readonly #settings: JsonRecord;
  readonly #runtime: Runtime | undefined;
  #progress: RunProgress = { step: 0 };
  #budgetBytes: number | undefined;
  /** Steps skipped in folds that have ended. */
  #skippedBefore = 0;
  #isPartial = false;
  #log: RecorderLog | undefined;
  #recorder: RunRecorder | undefined;

  /** Begins a run, or opens the one that is there; that one keeps every byte until the job's first event. */
  constructor({ path, settings, device, allowOlder = false, runtime }: JobRunOptions) {
    this.#isNew = stateOfRun(path) === "none";
    this.#settings = settings;
    this.#runtime = runtime;
    this.#store = new CheckpointStore(join(path, runFiles.checkpoints));
    let resumed: ResumedJob | undefined;
    this.#folder = this.#isNew
      ? RunFolder.create(path, { settings, device })
      : RunFolder.open(path, {
          check: (run) => {
            requireSettingsOf(path, run, settings);
            resumed = findCheckpoint(this.#store, settings, allowOlder);
            if (runtime) RunRecorder.check(path);
          },
        });
    this.resumed = resumed;
  }

  /** Writes down what the job tells. */
  note(event: JobEvent): void {
    this.#writing(() => this.#note(event));
  }

  #note(event: JobEvent): void {
    const folder = this.#folder;
    this.#begin();
    if (event.kind === "step") this.#log?.glance();
    else this.#log?.write();
    if (event.kind === "device") this.#budgetBytes = event.budgetBytes;
    else if (event.kind === "phase") folder.enterPhase(event.phase);
    else if (event.kind === "step") {
      const { step, steps: of, epoch, fold, loss, samples, samplesPerSecond, usedBytes } = event;
      const measured = { loss, samples, samplesPerSecond, usedBytes, budgetBytes: this.#budgetBytes };
      this.#progress = {
        step,
        of,
        epoch,
        fold,
        figures: { skipped: 0, ...this.#progress.figures, ...measured },
      };
      folder.noteProgress(this.#progress);
    } else if (event.kind === "epoch") {
      const { fold, epoch, step, record } = event;
      const { loss, lr, samplesPerSecond, seconds, skipped } = record;
      const tested = Object.keys(record.figures).length > 0 && { figures: record.figures };
      const before = this.#progress.figures?.skipped ?? 0;
      this.#noteEpoch(skipped, samplesPerSecond);
      const more = this.#skippedBefore + skipped - before;
      if (more > 0)
        this.#recorder?.noteIncident(
          "steps not finite",
          `${more} ${more === 1 ? "step" : "steps"} of epoch ${epoch + 1}, fold ${fold + 1}, had a gradient that was not finite and changed nothing.`,
        );
      folder.appendMetrics({ step, fold, epoch, loss, lr, samplesPerSecond, seconds, skipped, ...tested });
    } else if (event.kind === "resumed") {
      const { step, steps: of, epoch, fold } = event;
      this.#progress = { ...this.#progress, step, of, epoch, fold };
      folder.noteProgress(this.#progress);
    } else if (event.kind === "fold end") {
      const { fold, test } = event.result;
      this.#skippedBefore = this.#progress.figures?.skipped ?? 0;
      folder.appendMetrics({ step: event.step, fold, test: { ...test } });
    } else if (event.kind === "end") folder.writeResults({ ...event.results });
  }

  /** Who writes down what a fold's training does; the folds before it have made so many steps. */
  watch(fold: number, stepsBefore: number): TrainingWatcher {
    const recorder = this.#recorder;
    return {
      sent: ({ step, epoch, samples, lr, hostMs }) => {
        const [time, loss] = [Date.now(), Number.NaN];
        recorder?.noteSent({ step: stepsBefore + step, time, loss, lr, fold, epoch, samples, hostMs });
      },
      known: (loss) => recorder?.noteLoss(loss),
      planned: (compiled) => recorder?.notePlans(compiled),
    };
  }

  /** Writes down what a compiled step has become. */
  notePlans(compiled: Reporting, options?: ReportOptions): void {
    this.#recorder?.notePlans(compiled, options);
  }

  /** Says that the job is alive, where it has nothing else to say. */
  beat(): void {
    this.#folder.beat();
  }

  /** Saves where a fold's training stands; the job's step is what its file is named by. */
  save(
    step: number,
    fold: number,
    model: CrossAsset,
    training: FoldTraining,
    results: readonly FoldResult[],
  ): string {
    return this.#writing(() => this.#save(step, fold, model, training, results));
  }

  #save(...[step, fold, model, training, results]: Parameters<JobRun["save"]>): string {
    // First: it brings the losses of all steps to the host, and so into the step log.
    const { position, epochs } = training;
    const logs = { ...this.#folder.syncMetrics(), ...this.#recorder?.sync() };
    const saved: SavedState = { fold, position, epochs, results, logs };
    const checkpoint = captureState(model, training.optimizer, {
      ...{ step, model: modelName, tensors: tensorsOf(training.normaliser) },
      state: { settings: this.#settings, ...saved },
    });
    this.#folder.requireThere();
    return this.#store.save(checkpoint).name;
  }

  end(results: JobResults | undefined, exitCode: number): void {
    this.#log?.write();
    this.#recorder?.close();
    this.#folder.end({
      state: results ? "finished" : "stopped",
      ...(!results && { reason: "a signal" }),
      exitCode,
    });
  }

  /** Says that an error has ended the run. A run that was resumed and had not begun yet stays as it was. */
  fail(error: unknown, exitCode: number): void {
    if (!this.#isNew && !this.#isPartial) {
      this.#folder.close();
      return;
    }
    const reason = error instanceof Error ? error.message.split("\n")[0] : String(error);
    for (const note of [
      () => this.#log?.write(),
      () => this.#recorder?.noteIncident(...incidentOf(error)),
      () => this.#recorder?.close(),
      () => this.#folder.end({ state: endOf(error), ...(reason && { reason }), exitCode }),
    ]) {
      try {
        note();
      } catch (other) {
        // On a full disk this fails too, and must not hide why the run has.
        if (!(other instanceof HoldfastError)) throw other;
      }
    }
  }

  /** The steps that this fold has skipped so far, in this process, and the epoch's speed, which stands until the next is known. */
  #noteEpoch(skippedInFold: number, samplesPerSecond: number | undefined): void {
    const { figures } = this.#progress;
    const measured = {
      skipped: this.#skippedBefore + skippedInFold,
      samplesPerSecond: samplesPerSecond ?? figures?.samplesPerSecond,
    };
    this.#progress = { ...this.#progress, figures: { ...figures, ...measured } };
    this.#folder.noteProgress(this.#progress);
  }

  /** Where a write fails because the folder is gone, says that. */
  #writing<Result>(write: () => Result): Result {
    try {
      return write();
    } catch (error) {
      this.#folder.requireThere();
      throw error;
    }
  }

  /** Before the first event: drops what the files tell of steps after the checkpoint, which the job makes again. */
  #begin(): void {
    if (this.#isPartial) return;
    this.#isPartial = true;
    const { step: from = 0, fold = 0, logs: sizes, results = [], epochs = [] } = this.resumed ?? {};
    if (!this.#isNew) {
      this.#store.continueFrom(from);
      // A fold's test comes at the step of its last checkpoint, and is made again.
      this.#folder.dropMetricsAfter(from, {
        sizes,
        isDropped: ({ test, fold: tested }) => test !== undefined && Number(tested) >= fold,
      });
    }
    this.#skippedBefore = results.reduce((sum, result) => sum + skippedIn(result.epochs), 0);
    this.#progress = { step: from, figures: { skipped: this.#skippedBefore + skippedIn(epochs) } };
    if (!this.#runtime) return;
    this.#log = new RecorderLog(this.#folder.pathOf(runFiles.recorder), this.#runtime.recorder);
    this.#recorder = new RunRecorder({ folder: this.#folder.path, runtime: this.#runtime, from, sizes });
  }
}

function findCheckpoint(
  store: CheckpointStore,
  settings: JsonRecord,
  allowOlder: boolean,
): ResumedJob | undefined {
  if (store.list().length === 0) return undefined;
  const { checkpoint, rejected } = allowOlder
    ? store.loadLatestSound((found) => void stateIn(found, settings))
    : { checkpoint: store.load("latest"), rejected: [] };
  if (!checkpoint) {
    const reasons = rejected.map(({ name, reason }) => `${name}: ${reason}`).join(" ");
    throw new HoldfastError("BAD_FILE", `No checkpoint in ${store.folder} is sound. ${reasons}`);
  }
  requireCompatible(checkpoint, { model: modelName, settings });
  try {
    return { ...stateIn(checkpoint, settings), rejected };
  } catch (error) {
    throw inCheckpoint(store, checkpoint, error);
  }
}

/** Rejections of memory, whose messages hold the table of who has it. */
const shortages: ReadonlySet<string> = new Set(["OUT_OF_BUDGET", "OUT_OF_MEMORY", "ARENA_FULL"]);

function endOf(error: unknown): "failed" | "diverged" {
  return error instanceof HoldfastError && error.code === "DIVERGED" ? "diverged" : "failed";
}

function incidentOf(error: unknown): Parameters<RunRecorder["noteIncident"]> {
  if (error instanceof HoldfastError) {
    const kind = shortages.has(error.code) ? "over budget" : "failure";
    return [error.code === "DIVERGED" ? "steps not finite" : kind, `${error.code}: ${error.message}`];
  }
  return ["failure", error instanceof Error ? (error.stack ?? error.message) : String(error)];
}

/** What a checkpoint says of the job. */
function stateIn(checkpoint: LoadedCheckpoint, settings: JsonRecord): Omit<ResumedJob, "rejected"> {
  return {
    ...readSavedState(checkpoint.state, settings),
    ...{ step: checkpoint.step, file: checkpoint.name },
    normaliser: normaliserIn(checkpoint),
    restore: (model, training) => void restoreState(checkpoint, model, training.optimizer),
  };
}

/** Names the file in a rejection. */
function inCheckpoint({ folder }: CheckpointStore, { name }: LoadedCheckpoint, error: unknown): unknown {
  if (!(error instanceof HoldfastError)) return error;
  const { code, message, numbers } = error;
  return new HoldfastError(code, `${join(folder, name)}: ${message}`, { numbers, cause: error });
}

/** Steps that a fold has skipped, after those of its epochs that have ended. */
function skippedIn(epochs: FoldResult["epochs"]): number {
  return epochs.at(-1)?.skipped ?? 0;
}

function tensorsOf(normaliser: Normaliser): StoredTensor[] {
  return Object.entries(normaliserRecord(normaliser)).map(([name, values]) => ({
    ...{ name: `normaliser.${name}`, dtype: "f32", shape: [values.length] },
    bytes: new Uint8Array(values.buffer, values.byteOffset, values.byteLength),
  }));
}

/** The statistics of the features that a checkpoint's model was trained with. */
export function normaliserIn(checkpoint: LoadedCheckpoint): Normaliser {
  const { tensors } = extrasOf(checkpoint);
  const valuesOf = (name: string): Float32Array => {
    const { dtype, bytes = new Uint8Array(0) } = tensors.get(`normaliser.${name}`) ?? {};
    return new Float32Array(dtype === "f32" ? bytes.slice().buffer : new ArrayBuffer(0));
  };
  return normaliserFrom({ mean: valuesOf("mean"), deviation: valuesOf("deviation") });
}
