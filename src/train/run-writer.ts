/**
 * Writes a run: its folder with settings, progress and figures, its records for the inspector, and its checkpoints. An existing run stays
 * unchanged until the first record. An application adds its own events and states. Of several ranks, rank 0 writes. Each rank writes the
 * events of its own device and its steps, and its part of checkpoints if the optimizer is split.
 */

import { join } from "node:path";
import { writeAtomically } from "../data/index.js";
import { clockOffsets, type World } from "../distributed/index.js";
import { HoldfastError } from "../errors/index.js";
import type { Optimizer } from "../optim/index.js";
import type { JsonRecord, RankRecord, RunFigures, RunPhase, RunProgress } from "../records/index.js";
import type { Runtime } from "../runtime/index.js";
import type { Device, ReportOptions } from "../tensor/index.js";
import type { Checkpoint } from "./checkpoint-file.js";
import { CheckpointStore } from "./checkpoints.js";
import { toJson } from "./files/json.js";
import type { LogSizes } from "./files/log-file.js";
import { RecorderLog } from "./files/recorder-log.js";
import { RankLog } from "./inspection/rank-log.js";
import { type PlanReporter, RunRecorder } from "./inspection/run-recorder.js";
import { finalStateAfter, incidentOf } from "./run-failure.js";
import { rankFiles, recorderOfRank, runFiles } from "./run-files.js";
import { RunFolder } from "./run-folder.js";
import { requireEqualSettings, stateOfRun } from "./run-state.js";
import type { StepFigures } from "./step-progress.js";
import type { EpochRecord } from "./training-summary.js";
import type { TrainingWatcher } from "./training-watcher.js";

/** What every run needs to resume. */
export interface ResumePoint {
  /** Completed steps of the run. */
  readonly step: number;
  /** The sizes of the run's logs; version 0.1.0 did not save them. */
  readonly logs?: LogSizes | undefined;
}

/** A completed step, for the progress of a run. */
export interface NotedStep
  extends Pick<StepFigures, "step" | "steps" | "loss" | "samples" | "samplesPerSecond"> {
  readonly epoch: number;
  readonly fold?: number;
  readonly usedBytes: number;
}

/** A completed epoch, for the metrics of a run. */
export interface NotedEpoch {
  /** Completed steps of the run. */
  readonly step: number;
  readonly record: EpochRecord;
  readonly fold?: number;
  /** Skipped steps of earlier folds. */
  readonly skippedBefore?: number;
  /** More figures for its line of the metrics. */
  readonly figures?: JsonRecord | undefined;
}

/** Options of a `RunWriter`. */
export interface RunWriterOptions<Point extends ResumePoint> {
  readonly path: string;
  /** All settings that change the result. A run is only resumed with the same settings. */
  readonly settings: JsonRecord;
  /** The device's name. */
  readonly device: string;
  /** Records the events of this device in the folder, for the inspector. */
  readonly recordedDevice?: Device | undefined;
  /** The number of latest checkpoints to keep; default: 3. */
  readonly keep?: number | undefined;
  /** Finds the checkpoint to resume from. It is called before the first write. */
  readonly find: (store: CheckpointStore) => Point | undefined;
  /** The ranks of a distributed run: all have the same options. */
  readonly world?: World | undefined;
  /** True for metrics of the checkpoint's step that the resumed run writes again. */
  readonly isRepeated?: (line: JsonRecord, resumed: Point | undefined) => boolean;
}

export class RunWriter<Point extends ResumePoint> {
  readonly resumed: Point | undefined;
  /** Undefined on other ranks than 0. */
  readonly #folder: RunFolder | undefined;
  readonly #options: RunWriterOptions<Point>;
  readonly #isNew: boolean;
  readonly #store: CheckpointStore;
  readonly #runtime: Runtime | undefined;
  #progress: RunProgress = { step: 0 };
  #isStarted = false;
  /** Of a distributed run. */
  readonly #ranks: readonly RankRecord[];
  #log: RecorderLog | undefined;
  #rankLog: RankLog | undefined;
  #recorder: RunRecorder | undefined;

  constructor(options: RunWriterOptions<Point>) {
    const { path, settings, device, recordedDevice, keep, find, world } = options;
    this.#options = options;
    this.#runtime = recordedDevice?.runtime;
    const checkpoints = join(path, runFiles.checkpoints);
    const storeOptions = keep === undefined ? {} : { keep };
    if (world && world.rank > 0) {
      // Rank 0 opens the run first, and says from which step all continue.
      const [lastStep = null] = world.exchange<number | null>("the step to resume from", null);
      this.#isNew = lastStep === null;
      this.#store = new CheckpointStore(checkpoints, { ...storeOptions, lastStep: lastStep ?? -1 });
      this.resumed = lastStep === null ? undefined : find(this.#store);
      this.#ranks = describeRanks(world, device);
      return;
    }
    this.#isNew = stateOfRun(path) === "none";
    this.#store = new CheckpointStore(checkpoints, storeOptions);
    let resumed: Point | undefined;
    this.#folder = this.#isNew
      ? RunFolder.create(path, { settings, device })
      : RunFolder.open(path, {
          check: (run) => {
            requireEqualSettings(path, run, settings);
            resumed = find(this.#store);
            if (recordedDevice) RunRecorder.check(path);
          },
        });
    this.resumed = resumed;
    world?.exchange("the step to resume from", resumed?.step ?? null);
    this.#ranks = world ? describeRanks(world, device) : [];
  }

  /** The run's folder. Only rank 0 has it open. */
  get folder(): RunFolder {
    if (this.#folder) return this.#folder;
    throw new HoldfastError("BAD_STATE", `Only rank 0 writes to the run in ${this.#options.path}.`);
  }

  get progress(): RunProgress {
    return this.#progress;
  }

  /** Runs a function that writes an event of the run. Between two steps, the device's events are written too. Other ranks than 0 write only these. */
  write(body: () => void, { isStep = false }: { readonly isStep?: boolean } = {}): void {
    this.#writing(() => {
      this.begin();
      if (isStep) this.#log?.writeIfDue();
      else this.#log?.write();
      if (this.#folder) body();
    });
  }

  /** Before the first event: removes the records of steps after the checkpoint, which the run repeats. */
  begin(): void {
    if (this.#isStarted) return;
    this.#isStarted = true;
    const { step: from = 0, logs: sizes } = this.resumed ?? {};
    if (!this.#folder) {
      this.#openRankLogs(from);
      return;
    }
    if (!this.#isNew) {
      this.#store.continueFrom(from);
      const { isRepeated } = this.#options;
      this.folder.dropMetricsAfter(from, {
        sizes,
        ...(isRepeated && { isDropped: (line) => isRepeated(line, this.resumed) }),
      });
    }
    this.#progress = { step: from };
    if (!this.#runtime) return;
    if (this.#ranks.length > 1)
      writeAtomically(this.folder.pathOf(rankFiles.ranks), `${toJson("ranks", { ranks: this.#ranks }, 2)}\n`);
    this.#openRankLogs(from);
    this.#recorder = new RunRecorder({ folder: this.folder.path, runtime: this.#runtime, from, sizes });
  }

  #openRankLogs(from: number): void {
    const { path, world } = this.#options;
    const runtime = this.#runtime;
    if (!runtime) return;
    const { rank = 0, size = 1 } = world ?? {};
    const clockMs = this.#ranks[rank]?.clockMs ?? 0;
    this.#log = new RecorderLog(join(path, recorderOfRank(rank)), runtime.recorder, { clockMs });
    if (size === 1) return;
    const traffic = () => (runtime.device.kind === "cpu" ? world?.traffic : undefined);
    this.#rankLog = new RankLog(join(path, rankFiles.steps(rank)), { from, clockMs, traffic });
  }

  enterPhase(phase: RunPhase): void {
    this.folder.enterPhase(phase);
  }

  /** Notes a position, and figures that have changed. */
  noteProgress(position: Omit<RunProgress, "figures" | "phase">, figures: RunFigures = {}): void {
    this.#progress = { ...this.#progress, ...position, figures: { ...this.#progress.figures, ...figures } };
    this.folder.noteProgress(this.#progress);
  }

  /** Notes a completed step. */
  noteStep({ step, steps: of, epoch, fold, loss, samples, samplesPerSecond, usedBytes }: NotedStep): void {
    this.noteProgress({ step, of, epoch, fold }, { loss, samples, samplesPerSecond, usedBytes });
  }

  /** Writes the figures of a completed epoch, and an incident if steps of it were skipped. */
  noteEpoch({ step, record, fold, skippedBefore = 0, figures = {} }: NotedEpoch): void {
    const { epoch, loss, lr, samplesPerSecond, seconds, skipped } = record;
    const before = this.#progress.figures?.skipped ?? 0;
    // The epoch's speed stays until the next one is known.
    const rate = samplesPerSecond ?? this.#progress.figures?.samplesPerSecond;
    const all = skippedBefore + skipped;
    this.noteProgress(this.#progress, { skipped: all, samplesPerSecond: rate });
    const more = all - before;
    if (more > 0) {
      const place = fold === undefined ? "" : `, fold ${fold + 1},`;
      this.noteIncident(
        "steps not finite",
        `${more} ${more === 1 ? "step" : "steps"} of epoch ${epoch + 1}${place} had a gradient that was not finite and ${more === 1 ? "was" : "were"} skipped.`,
      );
    }
    const position = { step, ...(fold !== undefined && { fold }), epoch };
    this.folder.appendMetrics({
      ...{ ...position, loss, lr, samplesPerSecond, seconds, skipped },
      ...figures,
    });
  }

  /** Changes figures that the next progress has. */
  setFigures(figures: RunFigures): void {
    this.#progress = { ...this.#progress, figures: { ...this.#progress.figures, ...figures } };
  }

  noteIncident(...incident: Parameters<RunRecorder["noteIncident"]>): void {
    this.#recorder?.noteIncident(...incident);
  }

  /** A recorder of a trainer. `stepsBefore` counts the steps of earlier folds. */
  watch(fold: number, stepsBefore: number): TrainingWatcher {
    // Read at each call: the recorder starts with the first event.
    return {
      sent: ({ step, epoch, samples, lr, hostMs }) => {
        const [time, loss] = [Date.now(), Number.NaN];
        this.#rankLog?.noteSent(stepsBefore + step);
        this.#recorder?.noteSent({ step: stepsBefore + step, time, loss, lr, fold, epoch, samples, hostMs });
      },
      lossRead: (loss) => this.#recorder?.noteLoss(loss),
      planned: (compiled) => this.#recorder?.notePlans(compiled),
    };
  }

  /** Records the plans of a compiled step. */
  notePlans(compiled: PlanReporter, options?: ReportOptions): void {
    this.#recorder?.notePlans(compiled, options);
  }

  /** Writes a heartbeat. */
  beat(): void {
    this.#folder?.beat();
  }

  /**
   * Saves a checkpoint with the sizes of the logs, and returns its name; undefined on a rank that has nothing to save. `read` captures the
   * state; it may write to the logs first.
   */
  save(optimizer: Optimizer, read: () => (logs: LogSizes) => Checkpoint): string | undefined {
    const folder = this.#folder;
    if (!folder && !optimizer.ranks) return undefined;
    return this.#writing(() => {
      const capture = read();
      const checkpoint = capture({ ...folder?.syncMetrics(), ...this.#recorder?.sync() });
      folder?.requireExists();
      return this.#store.save(checkpoint).name;
    });
  }

  /** Ends the run as finished, or as stopped by a signal. */
  end(state: "finished" | "stopped", exitCode: number): void {
    this.#log?.write();
    this.#rankLog?.close();
    this.#recorder?.close();
    this.#folder?.end({ state, ...(state === "stopped" && { reason: "a signal" }), exitCode });
  }

  /** Records that an error ended the run. A resumed run without an event stays unchanged. */
  fail(error: unknown, exitCode: number): void {
    if (!this.#folder || (!this.#isNew && !this.#isStarted)) {
      this.#folder?.close();
      return;
    }
    const reason = error instanceof Error ? error.message.split("\n")[0] : String(error);
    for (const note of [
      () => this.#log?.write(),
      () => this.#rankLog?.close(),
      () => this.#recorder?.noteIncident(...incidentOf(error)),
      () => this.#recorder?.close(),
      () => this.folder.end({ state: finalStateAfter(error), ...(reason && { reason }), exitCode }),
    ]) {
      try {
        note();
      } catch (other) {
        // On a full disk this fails too, and must not hide the first error.
        if (!(other instanceof HoldfastError)) throw other;
      }
    }
  }

  /** If a write fails because the folder is gone, the error says so. */
  #writing<Result>(write: () => Result): Result {
    try {
      return write();
    } catch (error) {
      this.#folder?.requireExists();
      throw error;
    }
  }
}

/** The ranks, as all of them see each other. All ranks call it. */
function describeRanks(world: World, device: string): readonly RankRecord[] {
  const devices = world.exchange("the name of its device", device);
  const clocks = clockOffsets(world);
  return world.ranks.map(({ rank, host, pid }) => ({
    ...{ rank, host, pid, device: devices[rank] ?? "" },
    clockMs: clocks[rank] ?? 0,
  }));
}
