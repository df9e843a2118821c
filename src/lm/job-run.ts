/** The run folder of a training: settings, progress, figures, and checkpoints that another process can resume from. */

import type { World } from "../distributed/index.js";
import type { LanguageModel } from "../models/index.js";
import type { Optimizer } from "../optim/index.js";
import type { JsonRecord } from "../records/index.js";
import type { Device, ReportOptions } from "../tensor/index.js";
import {
  type CheckpointStore,
  captureState,
  findCheckpoint,
  type LoadedCheckpoint,
  type PlanReporter,
  type RejectedCheckpoint,
  RunWriter,
  restoreState,
  type TrainingWatcher,
} from "../train/index.js";
import type { JobEvent, JobResults } from "./events.js";
import { readSavedState, type SavedState } from "./saved-state.js";

/** Options of a training's run folder. */
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

/** The state that a training resumes from. */
export interface ResumedJob extends SavedState {
  readonly step: number;
  readonly file: string;
  /** Skipped checkpoints, with the reasons. */
  readonly rejected: readonly RejectedCheckpoint[];
  /**
   * Restores weights, moments and random positions.
   *
   * @internal
   */
  restore(model: LanguageModel, optimizer: Optimizer): void;
}

/** The model's name in checkpoints. */
const modelName = "language model";
/** Frozen weights are those of the model's folder. */
const trainedOnly = true;

/**
 * Starts a run in a folder, or resumes the run there. `lm.runJob` writes to it.
 *
 * @example
 * ```ts
 * import { mkdtempSync } from "node:fs";
 * import { tmpdir } from "node:os";
 * import { join } from "node:path";
 * import { lm } from "holdfast";
 * const path = join(mkdtempSync(join(tmpdir(), "run-")), "first");
 * const run = lm.openJobRun({ path, settings: { epochs: 3 }, device: "CPU" });
 * console.log(run.resumed, lm.stateOfRun(path)); // → undefined unfinished
 * run.end(undefined, 3);
 * ```
 */
export function openJobRun(options: JobRunOptions): JobRun {
  return new JobRun(options);
}

/** A running training. */
export class JobRun {
  readonly #writer: RunWriter<ResumedJob>;
  readonly #settings: JsonRecord;

  /** Starts a run, or opens an existing one. An existing run stays unchanged until the first event. */
  constructor(options: JobRunOptions) {
    const { settings, allowOlder = false } = options;
    this.#settings = settings;
    this.#writer = new RunWriter({
      ...options,
      find: (store) => findJob(store, settings, allowOlder),
      // Without a checkpoint, all is repeated.
      isRepeated: (_, resumed) => resumed === undefined,
    });
  }

  get resumed(): ResumedJob | undefined {
    return this.#writer.resumed;
  }

  /** Records an event. */
  note(event: JobEvent): void {
    this.#writer.write(() => this.#note(event), { isStep: event.kind === "step" });
  }

  #note(event: JobEvent): void {
    const writer = this.#writer;
    const { folder } = writer;
    if (event.kind === "device") writer.setFigures({ budgetBytes: event.budgetBytes });
    else if (event.kind === "phase") writer.enterPhase(event.phase);
    else if (event.kind === "data" && !this.resumed) {
      const { kind: _, ...data } = event;
      folder.appendMetrics({ step: 0, data });
    } else if (event.kind === "step") {
      writer.setFigures({ tokensPerSecond: event.tokensPerSecond });
      writer.noteStep(event);
    } else if (event.kind === "epoch") {
      const { step, record, tokensPerSecond } = event;
      writer.noteEpoch({ step, record, figures: { tokensPerSecond } });
    } else if (event.kind === "evaluation") {
      const { kind: _, step, ...evaluation } = event;
      writer.noteProgress(writer.progress, { perplexity: evaluation.perplexity });
      folder.appendMetrics({ step, evaluation });
    } else if (event.kind === "samples") folder.appendMetrics({ step: event.step, texts: event.texts });
    else if (event.kind === "resumed") {
      const { step, steps: of, epoch } = event;
      const { position, evaluations } = this.resumed ?? {};
      const perplexity = evaluations?.at(-1)?.perplexity;
      writer.noteProgress({ step, of, epoch }, { skipped: position?.skipped ?? 0, perplexity });
    } else if (event.kind === "end") folder.writeResults({ ...event.results });
  }

  /** A recorder of the training. */
  watch(): TrainingWatcher {
    return this.#writer.watch(0, 0);
  }

  /** Records the plans of a compiled step. */
  notePlans(compiled: PlanReporter, options?: ReportOptions): void {
    this.#writer.notePlans(compiled, options);
  }

  /** Writes a heartbeat. */
  beat(): void {
    this.#writer.beat();
  }

  /**
   * Saves the state of the training. The file is named after its step. Undefined on a rank that has nothing to save.
   *
   * @internal
   */
  save(model: LanguageModel, optimizer: Optimizer, read: () => SavedState): string | undefined {
    return this.#writer.save(optimizer, () => {
      // First, because it reads all losses, which go to the step log.
      const saved = read();
      return (logs) =>
        captureState(model, optimizer, {
          ...{ step: saved.position.step, model: modelName, trainedOnly },
          state: { settings: this.#settings, ...saved, logs },
        });
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

/** The state that a run resumes from; undefined if it has no checkpoint. */
function findJob(store: CheckpointStore, settings: JsonRecord, allowOlder: boolean): ResumedJob | undefined {
  const read = (checkpoint: LoadedCheckpoint): Omit<ResumedJob, "rejected"> => ({
    ...readSavedState(checkpoint.state, checkpoint.step),
    ...{ step: checkpoint.step, file: checkpoint.name },
    restore: (model, optimizer) => void restoreState(checkpoint, model, optimizer, { trainedOnly }),
  });
  return findCheckpoint(store, { model: modelName, settings, allowOlder, read });
}
