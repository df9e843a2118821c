/** A job's folder: settings, progress, figures, and checkpoints that another process can resume from. */

import type { World } from "../../distributed/index.js";
import type { JsonRecord } from "../../records/index.js";
import type { Device, ReportOptions } from "../../tensor/index.js";
import { type PlanReporter, RunWriter, type TrainingWatcher } from "../../train/index.js";
import type { CrossAsset } from "../model.js";
import type { JobEvent } from "./events.js";
import type { FoldTraining } from "./fold-training.js";
import { captureJob, findJob, type ResumedJob } from "./job-checkpoint.js";
import type { FoldResult, JobResults } from "./results.js";

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
  /** The ranks of a distributed run. Rank 0 writes the run. */
  readonly world?: World | undefined;
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
  readonly #writer: RunWriter<ResumedJob>;
  readonly #settings: JsonRecord;
  /** Steps skipped in completed folds; undefined before the first event. */
  #skippedBefore: number | undefined;

  /** Starts a run, or opens an existing one. An existing run stays unchanged until the job's first event. */
  constructor(options: JobRunOptions) {
    const { settings, allowOlder = false } = options;
    this.#settings = settings;
    this.#writer = new RunWriter({
      ...options,
      find: (store) => findJob(store, settings, allowOlder),
      // A fold's test has the step of its last checkpoint, and is repeated.
      isRepeated: ({ test, fold: tested }, resumed) =>
        test !== undefined && Number(tested) >= (resumed?.fold ?? 0),
    });
  }

  get resumed(): ResumedJob | undefined {
    return this.#writer.resumed;
  }

  /** Records an event of the job. */
  note(event: JobEvent): void {
    this.#writer.write(() => this.#note(event), { isStep: event.kind === "step" });
  }

  #note(event: JobEvent): void {
    const writer = this.#writer;
    const { folder } = writer;
    const skippedBefore = this.#begin();
    if (event.kind === "device") writer.setFigures({ budgetBytes: event.budgetBytes });
    else if (event.kind === "phase") writer.enterPhase(event.phase);
    else if (event.kind === "step") writer.noteStep(event);
    else if (event.kind === "epoch") {
      const { fold, step, record } = event;
      const tested = Object.keys(record.figures).length > 0 ? { figures: record.figures } : {};
      writer.noteEpoch({ step, record, fold, skippedBefore, figures: tested });
    } else if (event.kind === "resumed") {
      const { step, steps: of, epoch, fold } = event;
      writer.noteProgress({ step, of, epoch, fold });
    } else if (event.kind === "fold end") {
      const { fold, test } = event.result;
      this.#skippedBefore = writer.progress.figures?.skipped ?? 0;
      folder.appendMetrics({ step: event.step, fold, test: { ...test } });
    } else if (event.kind === "end") folder.writeResults({ ...event.results });
  }

  /** At the first event, counts the skipped steps of the resumed run. Returns those of completed folds. */
  #begin(): number {
    if (this.#skippedBefore !== undefined) return this.#skippedBefore;
    const { results = [], epochs = [] } = this.resumed ?? {};
    const skippedBefore = results.reduce((sum, result) => sum + skippedIn(result.epochs), 0);
    this.#skippedBefore = skippedBefore;
    this.#writer.setFigures({ skipped: skippedBefore + skippedIn(epochs) });
    return skippedBefore;
  }

  /** A recorder of a fold's training. `stepsBefore` counts the steps of the earlier folds. */
  watch(fold: number, stepsBefore: number): TrainingWatcher {
    return this.#writer.watch(fold, stepsBefore);
  }

  /** Records the plans of a compiled step. */
  notePlans(compiled: PlanReporter, options?: ReportOptions): void {
    this.#writer.notePlans(compiled, options);
  }

  /** Writes a heartbeat. */
  beat(): void {
    this.#writer.beat();
  }

  /** Saves the state of a fold's training. The file is named after the job's step. Undefined on a rank that has nothing to save. */
  save(
    step: number,
    fold: number,
    model: CrossAsset,
    training: FoldTraining,
    results: readonly FoldResult[],
  ): string | undefined {
    return this.#writer.save(training.optimizer, () => {
      // First, because it reads all losses, which go to the step log.
      const { position, epochs } = training;
      return (logs) =>
        captureJob(step, model, training, this.#settings, { fold, position, epochs, results, logs });
    });
  }

  end(results: JobResults | undefined, exitCode: number): void {
    this.#writer.end(results ? "finished" : "stopped", exitCode);
  }

  /** Records that an error ended the run. A resumed run without an event stays unchanged. */
  fail(error: unknown, exitCode: number): void {
    this.#writer.fail(error, exitCode);
  }
}

/** Skipped steps of a fold, from its completed epochs. */
function skippedIn(epochs: FoldResult["epochs"]): number {
  return epochs.at(-1)?.skipped ?? 0;
}
