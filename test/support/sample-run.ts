/** A run's folder for tests, with all files that the inspector reads: written at once, or step by step like a run. */

import { appendFileSync, mkdirSync, writeFileSync } from "node:fs";
import { hostname } from "node:os";
import { join } from "node:path";
import type { IncidentRecord, MemorySample, PlanRecord, RankSteps } from "../../src/records/index.js";
import { inspectionFiles, rankFiles, recorderOfRank } from "../../src/train/index.js";
import { StepLog, type StepRow } from "../../src/train/inspection/step-log.js";
import { samplePlan } from "./sample-plan.js";

export interface SampleRunOptions {
  /** Rows of the step log; default: 200. */
  readonly steps?: number;
  /** Rows of a batch. */
  readonly batch?: number;
  readonly folds?: number;
  readonly epochs?: number;
  readonly state?: "running" | "finished" | "stopped" | "failed";
  readonly device?: string;
  /** The time of the first step, in milliseconds since 1970. */
  readonly startMs?: number;
  readonly stepMs?: number;
  readonly plans?: readonly PlanRecord[];
  readonly incidents?: readonly IncidentRecord[];
  /** Losses that differ from the default curve, by step. */
  readonly lossAt?: (step: number) => number | undefined;
}

const MiB = 2 ** 20;

/** Writes a run's folder, `folder/name`, and returns the run, which can continue. */
export function writeSampleRun(folder: string, name: string, options: SampleRunOptions = {}): SampleRun {
  return new SampleRun(join(folder, name), options);
}

/** A made-up run. */
export class SampleRun {
  readonly path: string;
  readonly #options: Required<SampleRunOptions>;
  readonly #log: StepLog;
  #step = 0;

  constructor(path: string, options: SampleRunOptions) {
    this.path = path;
    const startMs = options.startMs ?? Date.UTC(2026, 0, 5, 12);
    this.#options = {
      ...{ steps: 200, batch: 32, folds: 2, epochs: 3, state: "finished", device: "CPU (a sample)" },
      ...{
        startMs,
        stepMs: 20,
        plans: [samplePlan({ time: startMs })],
        incidents: [],
        lossAt: () => undefined,
      },
      ...options,
    };
    const { steps, state, batch, folds, epochs, device, plans, incidents } = this.#options;
    mkdirSync(join(path, "checkpoints"), { recursive: true });
    this.#write("run.json", {
      settings: { folds, epochs, batch, seed: 42, lr: 1e-3 },
      ...{ device, holdfast: "0.1.0", node: process.version, platform: "linux x64", host: hostname() },
      started: new Date(startMs).toISOString(),
    });
    writeFileSync(join(path, "metrics.jsonl"), "");
    this.#log = new StepLog(join(path, inspectionFiles.steps));
    for (const plan of plans) this.appendPlan(plan);
    this.appendMemory();
    this.appendSteps(steps);
    this.appendMemory();
    for (const record of incidents) this.appendIncident(record);
    this.appendPhases([`${new Date(startMs).toISOString()}  phase        train step  12ms  step 1`]);
    if (state === "finished") this.writeResults();
    this.writeStatus(state);
  }

  get step(): number {
    return this.#step;
  }

  /** Appends rows like a run and flushes them; ends of epochs go to the metrics. */
  appendSteps(count: number): void {
    const { folds, epochs, steps } = this.#options;
    const perEpoch = Math.max(1, Math.floor(steps / (folds * epochs)));
    for (let done = 0; done < count; done++) {
      this.#step++;
      const row = this.rowOf(this.#step);
      this.#log.append(row);
      if (this.#step % perEpoch === 0 && this.#step <= perEpoch * folds * epochs) this.#endEpoch(row);
    }
    this.#log.flush();
  }

  /** The log row of a step. */
  rowOf(step: number): StepRow {
    const { startMs, stepMs, batch, folds, epochs, steps, lossAt } = this.#options;
    const perEpoch = Math.max(1, Math.floor(steps / (folds * epochs)));
    const epochInAll = Math.min(folds * epochs - 1, Math.floor((step - 1) / perEpoch));
    // Not random, and not smooth.
    const noise = Math.sin(step * 12.9898) * 0.05;
    const loss = lossAt(step) ?? 0.3 + 0.8 * Math.exp((-3 * step) / Math.max(1, steps)) + noise;
    return {
      ...{ step, time: startMs + step * stepMs, loss, lr: 1e-3 / (1 + step / Math.max(1, steps)) },
      ...{ fold: Math.floor(epochInAll / epochs), epoch: epochInAll % epochs },
      ...{ samples: batch, hostMs: stepMs * 0.1 + (step % 7) * 0.01 },
    };
  }

  /** Like a resume: removes the rows after a step, and continues from there. */
  dropAfter(step: number): void {
    this.#log.dropAfter(step);
    this.#step = step;
  }

  appendPlan(plan: PlanRecord): void {
    this.#appendLine(inspectionFiles.plans, plan);
  }

  appendIncident(record: IncidentRecord): void {
    this.#appendLine(inspectionFiles.incidents, record);
  }

  appendMemory(sample: MemorySample = this.#memorySample()): void {
    this.#appendLine(inspectionFiles.memory, sample);
  }

  appendPhases(lines: readonly string[]): void {
    appendFileSync(join(this.path, "recorder.log"), lines.map((line) => `${line}\n`).join(""));
  }

  /** Records of ranks, a line for every ten steps. `ownMs`: the time of a step outside of collectives, for each rank; null for GPUs. */
  writeRanks(ownMs: readonly (number | null)[], { clockMs = 0 } = {}): void {
    const { startMs, stepMs, device } = this.#options;
    const ranks = ownMs.map((_, rank) => ({
      rank,
      host: `node${rank >> 1}`,
      pid: 4000 + rank,
      device,
      clockMs,
    }));
    this.#write(rankFiles.ranks, { ranks });
    for (const [rank, own] of ownMs.entries()) {
      const lines = Array.from({ length: Math.floor(this.#step / 10) }, (_, index): RankSteps => {
        const step = 10 * (index + 1);
        const [time, ms, noise] = [startMs + step * stepMs, 10 * stepMs, 0.05 * Math.sin(step + rank)];
        const inCollectives = ms - 10 * (own ?? 0) * (1 + noise);
        const traffic = { collectives: 20, sentBytes: 10 * 8_000_000, ms: inCollectives };
        return { time, step, steps: 10, ms, ...(own !== null && { traffic }) };
      });
      const text = lines.map((line) => `${JSON.stringify(line)}\n`).join("");
      appendFileSync(join(this.path, rankFiles.steps(rank)), text);
    }
    for (let rank = 1; rank < ownMs.length; rank++)
      appendFileSync(
        join(this.path, recorderOfRank(rank)),
        `${new Date(startMs).toISOString()}  phase        compile (train)  ${rank}00ms\n`,
      );
  }

  writeStatus(
    state: NonNullable<SampleRunOptions["state"]>,
    {
      pid = process.pid,
      now = Date.now(),
      samplesPerSecond,
    }: { readonly pid?: number; readonly now?: number; readonly samplesPerSecond?: number } = {},
  ): void {
    const at = new Date(now).toISOString();
    this.#write("status.json", {
      ...{ state, step: this.#step, of: this.#options.steps, epoch: 0, fold: 0, updated: at, progressed: at },
      ...(state === "failed" && { reason: "A loss is not finite.", exitCode: 1 }),
      ...(state === "finished" && { exitCode: 0 }),
      ...(samplesPerSecond !== undefined && { figures: { samplesPerSecond } }),
      ...{ pid, host: hostname() },
    });
  }

  /** Results in CrossAsset's format. */
  writeResults(): void {
    const { folds, epochs, batch } = this.#options;
    const results = Array.from({ length: folds }, (_, fold) => ({
      ...{ fold, trainSamples: 40 * batch * (fold + 1), testSamples: 240 },
      epochs: Array.from({ length: epochs }, (_, epoch) => ({ epoch, ...epochFigures(epoch) })),
      test: answers(fold),
      perScale: [1, 5, 21].map((minutes) => ({ minutes, ...answers(fold) })),
    }));
    this.#write("results.json", { folds: results, wf_mean: 0.55, majority_mean: 0.38 });
  }

  close(): void {
    this.#log.close();
  }

  #endEpoch({ step, fold, epoch, lr }: StepRow): void {
    const { epochs } = this.#options;
    this.#appendLine("metrics.jsonl", { step, fold, epoch, lr, ...epochFigures(epoch) });
    if (epoch === epochs - 1) this.#appendLine("metrics.jsonl", { step, fold, test: answers(fold) });
  }

  #memorySample(): MemorySample {
    const { startMs, stepMs } = this.#options;
    return {
      ...{ time: startMs + this.#step * stepMs, step: this.#step, limit: 512 * MiB, used: 96 * MiB },
      holders: [
        { label: "parameters", bytes: 8 * MiB },
        { label: "moments: AdamW", bytes: 16 * MiB },
        { label: "step arena", bytes: 64 * MiB },
        { label: "staging", bytes: 8 * MiB },
      ],
      arena: {
        ...{ capacity: 128 * MiB, committed: 64 * MiB, highWater: 48 * MiB, live: 0 },
        ...{ pins: 2, pinnedBytes: MiB, resets: this.#step },
      },
    };
  }

  #appendLine(name: string, record: object): void {
    appendFileSync(join(this.path, name), `${JSON.stringify(record)}\n`);
  }

  #write(name: string, record: object): void {
    writeFileSync(join(this.path, name), `${JSON.stringify(record, undefined, 2)}\n`);
  }
}

function epochFigures(epoch: number): Readonly<Record<string, number>> {
  return { loss: 1 / (epoch + 1), samplesPerSecond: 1600 + epoch, seconds: 1.5, skipped: 0 };
}

function answers(fold: number): object {
  const confusion = [
    [50 + fold, 20, 10],
    [15, 45 - fold, 20],
    [30, 13, 37],
  ];
  return { loss: 0.98 - fold / 100, accuracy: 0.55 + fold / 100, majority: 0.38, confusion };
}

/** One incident of every kind. */
export function sampleIncidents(time = Date.UTC(2026, 0, 5, 12, 1)): IncidentRecord[] {
  const kinds = [
    ["stall", "Nothing has moved for 30s in cuStreamSynchronize.", "stack of the call\nstep 12"],
    ["capture rejected", "The step can't be a graph: it looks at a value.", undefined],
    ["over budget", "The budget cannot provide 1 GiB.", "limit 512 MiB\nin use 63 MiB"],
    ["steps not finite", "3 steps had a loss that is not finite.", undefined],
    ["failure", "The device is lost.", undefined],
  ] as const;
  return kinds.map(([kind, message, details], index) => ({
    ...{ kind, message, details, time: time + 1000 * index, step: 10 * index },
    phases: ["upload", "train step", "read-back"],
  }));
}
