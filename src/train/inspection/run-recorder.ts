/**
 * Writes the records that the inspector shows: every step's numbers, the plans of compiled steps, samples of memory, and incidents. It runs at
 * every step, so a step costs a few stores into an array.
 */

import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { syncFolder, withFileError } from "../../data/index.js";
import type { IncidentRecord, JsonRecord, MemorySample, StepPlanReport } from "../../records/index.js";
import type { RecordedEvent, Runtime } from "../../runtime/index.js";
import type { ReportOptions } from "../../tensor/index.js";
import { formatDuration, runAll } from "../../units/index.js";
import { toJson } from "../files/json.js";
import { JsonLog, readJsonLog } from "../files/json-log.js";
import type { LogSizes } from "../files/log-file.js";
import { inspectionFiles, legacyIncidentsFile } from "../run-files.js";
import { PendingSteps } from "./pending-steps.js";
import { requireStepLog, StepLog, type StepRow } from "./step-log.js";

export interface RunRecorderOptions {
  /** The run's folder. */
  readonly folder: string;
  readonly runtime: Runtime;
  /** The step of the checkpoint. Records of later steps are removed: the resumed run writes them again. */
  readonly from?: number;
  /** The log sizes at the checkpoint, as `sync` returned them. Later records are removed. */
  readonly sizes?: LogSizes | undefined;
  /** Milliseconds since 1970; default: the system's clock. */
  readonly now?: () => number;
}

/** A compiled step of any inputs and results. */
export interface PlanReporter {
  report(options?: ReportOptions): readonly StepPlanReport[];
}

/** The interval between two writes of pending records, in milliseconds. */
const flushEveryMs = 2000;
/** Memory is sampled at every flush at first, later once per thousandth of the run's duration: a run of weeks fills no disk. */
const samplesPerRun = 1000;
/** Max. phases recorded with an incident. */
const maxPhases = 40;

export class RunRecorder {
  readonly #runtime: Runtime;
  readonly #now: () => number;
  readonly #steps: StepLog;
  readonly #plans: JsonLog;
  readonly #memory: JsonLog;
  readonly #incidents: JsonLog;
  /** Steps without a loss yet, oldest first. */
  readonly #pending = new PendingSteps();
  /** Digests of the plans in the file: an identical plan is not written twice. */
  readonly #writtenPlans: Set<string>;
  #step: number;
  readonly #startMs: number;
  #flushedMs = Number.NEGATIVE_INFINITY;
  #sampledMs = Number.NEGATIVE_INFINITY;
  #isOpen = true;

  constructor({ folder, runtime, from = 0, sizes = {}, now = Date.now }: RunRecorderOptions) {
    this.#runtime = runtime;
    this.#now = now;
    this.#startMs = now();
    this.#step = from;
    const opened: { close(): void }[] = [];
    const open = <Log extends TruncatableLog>(name: string, make: (path: string) => Log): Log => {
      const log = make(join(folder, name));
      opened.push(log);
      const size = sizes[name];
      if (size === undefined) log.dropAfter(from);
      else log.truncateTo(size);
      return log;
    };
    try {
      this.#steps = open(inspectionFiles.steps, (path) => new StepLog(path));
      this.#plans = open(inspectionFiles.plans, (path) => new JsonLog(path));
      this.#memory = open(inspectionFiles.memory, (path) => new JsonLog(path));
      this.#incidents = open(inspectionFiles.incidents, (path) => new JsonLog(path));
      if (existsSync(join(folder, legacyIncidentsFile)))
        open(legacyIncidentsFile, (path) => new JsonLog(path)).close();
      const { records } = readJsonLog(join(folder, inspectionFiles.plans));
      this.#writtenPlans = new Set(records.map(digestOfPlan));
      withFileError(`${folder} can't be written`, folder, () => syncFolder(folder));
    } catch (error) {
      for (const log of opened) ignoreErrors(() => log.close());
      throw error;
    }
  }

  /** Throws if this version can't continue the folder's logs. Writes nothing. */
  static check(folder: string): void {
    requireStepLog(join(folder, inspectionFiles.steps));
  }

  /** Notes a step that was sent to the device. Its loss comes later, through `noteLoss`. */
  noteSent(sent: StepRow): void {
    this.#pending.push(sent);
    this.#step = sent.step;
    if (sent.time - this.#flushedMs >= flushEveryMs || sent.time < this.#flushedMs) this.#flush(sent.time);
  }

  /** Notes the loss of the oldest step without one. */
  noteLoss(loss: number): void {
    this.#pending.shift(loss, this.#steps);
  }

  #flush(nowMs: number): void {
    this.#flushedMs = nowMs;
    const dueMs = Math.max(flushEveryMs, (nowMs - this.#startMs) / samplesPerRun);
    if (nowMs - this.#sampledMs >= dueMs || nowMs < this.#sampledMs) this.sampleMemory();
    else this.#steps.flush();
  }

  /** Writes a memory sample and the pending rows. */
  sampleMemory(): void {
    this.#sampledMs = this.#now();
    const { budget, arena } = this.#runtime;
    const { capacity, committed, highWater, live, pins, pinned, resetsByStep, resetsByCall } = arena.figures;
    const sample: MemorySample = {
      ...{ time: this.#sampledMs, step: this.#step, limit: budget.limit, used: budget.used },
      holders: budget.holders(24).map(({ label, holder, size }) => ({
        ...{ label: holder === label ? label : `${label}: ${holder}`, bytes: size },
      })),
      arena: {
        ...{ capacity, committed, highWater, live, pins, pinnedBytes: pinned },
        resets: resetsByStep + resetsByCall,
      },
    };
    this.#memory.append({ ...sample });
    this.#steps.flush();
  }

  /** Writes the plans of a compiled step. A plan that could not be captured is also an incident. An unchanged plan is not written again. */
  notePlans(compiled: PlanReporter, options?: ReportOptions): void {
    const at = new Date(this.#now()).toISOString();
    for (const report of compiled.report(options)) {
      const digest = digestOfPlan({ ...report });
      if (this.#writtenPlans.has(digest)) continue;
      this.#writtenPlans.add(digest);
      this.#plans.append({ ...report, at, step: this.#step });
      const { name, inputs, reason, isRejected } = report;
      if (!isRejected) continue;
      this.noteIncident(
        "capture rejected",
        `${name} for inputs ${inputs} runs call by call: ${reason ?? "the reason is unknown"}`,
      );
    }
  }

  noteIncident(kind: IncidentRecord["kind"], message: string, details?: string): void {
    const [first = "", ...rest] = message.split("\n");
    const record: IncidentRecord = {
      ...{ kind, time: this.#now(), step: this.#step, message: first },
      details: details ?? (rest.length > 0 ? rest.join("\n") : undefined),
      phases: phasesOf(this.#runtime.recorder.recent(512)),
    };
    this.#incidents.append({ ...record });
  }

  /** Returns after all records are safe from a power cut, with the sizes of the logs by name. */
  sync(): LogSizes {
    const logs = {
      [inspectionFiles.steps]: this.#steps,
      [inspectionFiles.plans]: this.#plans,
      [inspectionFiles.memory]: this.#memory,
      [inspectionFiles.incidents]: this.#incidents,
    };
    for (const log of Object.values(logs)) log.sync();
    return Object.fromEntries(Object.entries(logs).map(([name, { bytes }]) => [name, bytes]));
  }

  /** Also writes the steps without a loss. Does nothing if the recorder is closed. */
  close(): void {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    runAll([
      () => {
        while (this.#pending.shift(Number.NaN, this.#steps));
      },
      ...[this.#steps, this.#plans, this.#memory, this.#incidents].map((log) => () => log.close()),
    ]);
  }
}

/** For clean-up after an error: a second error must not hide the first. */
function ignoreErrors(body: () => void): void {
  try {
    body();
  } catch {
    // The first error is thrown.
  }
}

/** A log that a resumed run shortens, to a size or to a step. */
interface TruncatableLog {
  close(): void;
  dropAfter(step: number): void;
  truncateTo(bytes: number): void;
}

function digestOfPlan({ at: _at, step: _step, ...plan }: JsonRecord): string {
  return createHash("sha256").update(toJson("a plan", plan)).digest("base64");
}

/** The latest phases, oldest first, one line each. */
function phasesOf(events: readonly RecordedEvent[]): readonly string[] {
  const entered: RecordedEvent[] = [];
  const lines: string[] = [];
  for (const event of events) {
    if (event.kind === "phase-enter") entered.push(event);
    if (event.kind === "phase-exit") {
      const start = entered.pop();
      const took = start ? ` took ${formatDuration(event.atMs - start.atMs)}` : " ended";
      lines.push(`${event.label}${took}${event.step > 0 ? `, step ${event.step}` : ""}`);
    }
    if (event.kind === "reject") lines.push(`rejected: ${event.label}`);
  }
  for (const { label, step } of entered) lines.push(`${label} is running${step > 0 ? `, step ${step}` : ""}`);
  return lines.slice(-maxPhases);
}
