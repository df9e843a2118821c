/** A job's folder: settings, progress, figures, and checkpoints that another process can resume from. */

import { join } from "node:path";
import { HoldfastError } from "../../errors/index.js";
import type { JsonRecord, RunProgress } from "../../records/index.js";
import type { Runtime } from "../../runtime/index.js";
import type { Device, ReportOptions } from "../../tensor/index.js";
import {
  CheckpointStore,
  type PlanReporter,
  RecorderLog,
  RunFolder,
  RunRecorder,
  runFiles,
  type TrainingWatcher,
} from "../../train/index.js";
import type { CrossAsset } from "../model.js";
import type { JobEvent } from "./events.js";
import type { FoldTraining } from "./fold-training.js";
import { captureJob, findCheckpoint, type ResumedJob } from "./job-checkpoint.js";
import { finalStateAfter, incidentOf } from "./job-failure.js";
import type { FoldResult, JobResults } from "./results.js";
import { requireEqualSettings, stateOfRun } from "./run-state.js";
import type { SavedState } from "./saved-state.js";

/** Options of a job's run folder. */
export interface JobRunOptions {
  readonly path: string;
  /** All settings that change the result. A run is only resumed with the same settings. */
  readonly settings: JsonRecord;
  /** The device's name. */
  readonly device: string;
  /** Resume from the latest valid checkpoint if later ones are damaged. */
  readonly allowOlder?: boolean;
  /** Records the events of this device in the folder, for the inspector. */
  readonly recordedDevice?: Device;
}

/**
 * Starts a run in a folder, or resumes the run there. `runJob` writes to it.
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

/** A running job. */
export class JobRun {
  readonly resumed: ResumedJob | undefined;
  readonly #folder: RunFolder;
  readonly #isNew: boolean;
  readonly #store: CheckpointStore;
  readonly #settings: JsonRecord;
  readonly #runtime: Runtime | undefined;
  #progress: RunProgress = { step: 0 };
  #budgetBytes: number | undefined;
  /** Steps skipped in completed folds. */
  #skippedBefore = 0;
  #isStarted = false;
  #log: RecorderLog | undefined;
  #recorder: RunRecorder | undefined;

  /** Starts a run, or opens an existing one. An existing run stays unchanged until the job's first event. */
  constructor({ path, settings, device, allowOlder = false, recordedDevice }: JobRunOptions) {
    this.#isNew = stateOfRun(path) === "none";
    this.#settings = settings;
    this.#runtime = recordedDevice?.runtime;
    this.#store = new CheckpointStore(join(path, runFiles.checkpoints));
    let resumed: ResumedJob | undefined;
    this.#folder = this.#isNew
      ? RunFolder.create(path, { settings, device })
      : RunFolder.open(path, {
          check: (run) => {
            requireEqualSettings(path, run, settings);
            resumed = findCheckpoint(this.#store, settings, allowOlder);
            if (recordedDevice) RunRecorder.check(path);
          },
        });
    this.resumed = resumed;
  }

  /** Records an event of the job. */
  note(event: JobEvent): void {
    this.#writing(() => this.#note(event));
  }

  #note(event: JobEvent): void {
    const folder = this.#folder;
    this.#begin();
    if (event.kind === "step") this.#log?.writeIfDue();
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
          `${more} ${more === 1 ? "step" : "steps"} of epoch ${epoch + 1}, fold ${fold + 1}, had a gradient that was not finite and ${more === 1 ? "was" : "were"} skipped.`,
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

  /** A recorder of a fold's training. `stepsBefore` counts the steps of the earlier folds. */
  watch(fold: number, stepsBefore: number): TrainingWatcher {
    const recorder = this.#recorder;
    return {
      sent: ({ step, epoch, samples, lr, hostMs }) => {
        const [time, loss] = [Date.now(), Number.NaN];
        recorder?.noteSent({ step: stepsBefore + step, time, loss, lr, fold, epoch, samples, hostMs });
      },
      lossRead: (loss) => recorder?.noteLoss(loss),
      planned: (compiled) => recorder?.notePlans(compiled),
    };
  }

  /** Records the plans of a compiled step. */
  notePlans(compiled: PlanReporter, options?: ReportOptions): void {
    this.#recorder?.notePlans(compiled, options);
  }

  /** Writes a heartbeat. */
  beat(): void {
    this.#folder.beat();
  }

  /** Saves the state of a fold's training. The file is named after the job's step. */
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
    // First, because it reads all losses, which go to the step log.
    const { position, epochs } = training;
    const logs = { ...this.#folder.syncMetrics(), ...this.#recorder?.sync() };
    const saved: SavedState = { fold, position, epochs, results, logs };
    const checkpoint = captureJob(step, model, training, this.#settings, saved);
    this.#folder.requireExists();
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

  /** Records that an error ended the run. A resumed run without an event stays unchanged. */
  fail(error: unknown, exitCode: number): void {
    if (!this.#isNew && !this.#isStarted) {
      this.#folder.close();
      return;
    }
    const reason = error instanceof Error ? error.message.split("\n")[0] : String(error);
    for (const note of [
      () => this.#log?.write(),
      () => this.#recorder?.noteIncident(...incidentOf(error)),
      () => this.#recorder?.close(),
      () => this.#folder.end({ state: finalStateAfter(error), ...(reason && { reason }), exitCode }),
    ]) {
      try {
        note();
      } catch (other) {
        // On a full disk this fails too, and must not hide the first error.
        if (!(other instanceof HoldfastError)) throw other;
      }
    }
  }

  /** Updates the skipped steps of this fold, and the epoch's speed until the next one is known. */
  #noteEpoch(skippedInFold: number, samplesPerSecond: number | undefined): void {
    const { figures } = this.#progress;
    const measured = {
      skipped: this.#skippedBefore + skippedInFold,
      samplesPerSecond: samplesPerSecond ?? figures?.samplesPerSecond,
    };
    this.#progress = { ...this.#progress, figures: { ...figures, ...measured } };
    this.#folder.noteProgress(this.#progress);
  }

  /** If a write fails because the folder is gone, the error says so. */
  #writing<Result>(write: () => Result): Result {
    try {
      return write();
    } catch (error) {
      this.#folder.requireExists();
      throw error;
    }
  }

  /** Before the first event: removes the records of steps after the checkpoint, which the job repeats. */
  #begin(): void {
    if (this.#isStarted) return;
    this.#isStarted = true;
    const { step: from = 0, fold = 0, logs: sizes, results = [], epochs = [] } = this.resumed ?? {};
    if (!this.#isNew) {
      this.#store.continueFrom(from);
      // A fold's test has the step of its last checkpoint, and is repeated.
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

/** Skipped steps of a fold, from its completed epochs. */
function skippedIn(epochs: FoldResult["epochs"]): number {
  return epochs.at(-1)?.skipped ?? 0;
}
