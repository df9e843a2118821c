/**
 * Writes down what those see who look at a run later: every step's numbers, the plans of its compiled steps, where memory stands
 * now and then, and what went wrong. On the path of every step, so a step costs a few stores into an array.
 */

import { createHash } from "node:crypto";
import { join } from "node:path";
import { syncFolder, withFileError } from "../../data/index.js";
import { type RecordedEvent, type Runtime, runAll } from "../../runtime/index.js";
import type { ReportOptions, StepPlanReport } from "../../tensor/index.js";
import { bufferSizes, formatDuration } from "../../units/index.js";
import { type JsonRecord, toJson } from "../files/json.js";
import { type LogSizes, MetricsLog, readMetrics } from "../files/metrics-log.js";
import { inspectionFiles, type MemorySample, stepColumns, type TroubleRecord } from "./records.js";
import { lossAt, requireStepLog, StepLog, type StepRow, storeRow } from "./step-log.js";

export interface RunRecorderOptions {
  /** The run's folder. */
  readonly folder: string;
  readonly runtime: Runtime;
  /** What was written of later steps is taken out: a run that goes on writes it again. */
  readonly from?: number;
  /** The sizes that the logs had at the checkpoint, as `sync` told them: what was written after it is taken out. */
  readonly sizes?: LogSizes | undefined;
  /** Milliseconds since 1970; the system's clock unless given. */
  readonly now?: () => number;
}

/** A compiled step, of any inputs and results. */
export interface Reporting {
  report(options?: ReportOptions): readonly StepPlanReport[];
}

const width = stepColumns.length;
/** What waits is written so often, in milliseconds. */
const lookEveryMs = 2000;
/** Memory is looked at as often at first, and later once in a thousandth of the run's time: a run of weeks fills no disk with it. */
const samplesOfRun = 1000;
/** So many of the phases before a trouble are told with it. */
const phasesTold = 40;

export class RunRecorder {
  readonly #runtime: Runtime;
  readonly #now: () => number;
  readonly #steps: StepLog;
  readonly #plans: MetricsLog;
  readonly #memory: MetricsLog;
  readonly #trouble: MetricsLog;
  /** Steps whose loss is not known yet, oldest first. */
  readonly #waiting = new Waiting();
  /** Digests of the plans that stand in the file: one that is made again as it was is no news. */
  readonly #knownPlans: Set<string>;
  #step: number;
  readonly #beganMs: number;
  #lookedMs = Number.NEGATIVE_INFINITY;
  #sampledMs = Number.NEGATIVE_INFINITY;
  #isOpen = true;

  constructor({ folder, runtime, from = 0, sizes = {}, now = Date.now }: RunRecorderOptions) {
    this.#runtime = runtime;
    this.#now = now;
    this.#beganMs = now();
    this.#step = from;
    const opened: { close(): void }[] = [];
    const open = <Log extends Cuttable>(name: string, make: (path: string) => Log): Log => {
      const log = make(join(folder, name));
      opened.push(log);
      const size = sizes[name];
      if (size === undefined) log.dropAfter(from);
      else log.cutTo(size);
      return log;
    };
    try {
      this.#steps = open(inspectionFiles.steps, (path) => new StepLog(path));
      this.#plans = open(inspectionFiles.plans, (path) => new MetricsLog(path));
      this.#memory = open(inspectionFiles.memory, (path) => new MetricsLog(path));
      this.#trouble = open(inspectionFiles.trouble, (path) => new MetricsLog(path));
      const { records } = readMetrics(join(folder, inspectionFiles.plans));
      this.#knownPlans = new Set(records.map(digestOfPlan));
      withFileError(`${folder} can't be written`, folder, () => syncFolder(folder));
    } catch (error) {
      for (const log of opened) ignoring(() => log.close());
      throw error;
    }
  }

  /** Rejects a folder whose logs this recorder can't go on with; writes nothing. */
  static check(folder: string): void {
    requireStepLog(join(folder, inspectionFiles.steps));
  }

  /** A step that was sent; its loss is not looked at, and comes later. */
  noteSent(sent: StepRow): void {
    this.#waiting.push(sent);
    this.#step = sent.step;
    if (sent.time - this.#lookedMs >= lookEveryMs || sent.time < this.#lookedMs) this.#glance(sent.time);
  }

  /** The loss of the earliest step that waits for one. */
  noteLoss(loss: number): void {
    this.#waiting.shift(loss, this.#steps);
  }

  #glance(nowMs: number): void {
    this.#lookedMs = nowMs;
    const dueMs = Math.max(lookEveryMs, (nowMs - this.#beganMs) / samplesOfRun);
    if (nowMs - this.#sampledMs >= dueMs || nowMs < this.#sampledMs) this.look();
    else this.#steps.flush();
  }

  /** Writes where memory stands, and what waits to be written. */
  look(): void {
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

  /**
   * Writes what a compiled step has become; where it can't be a graph although it should, that is a trouble. A plan is written
   * once: a resumed run makes plans again that stand in the file.
   */
  notePlans(compiled: Reporting, options?: ReportOptions): void {
    const at = new Date(this.#now()).toISOString();
    for (const report of compiled.report(options)) {
      const digest = digestOfPlan({ ...report });
      if (this.#knownPlans.has(digest)) continue;
      this.#knownPlans.add(digest);
      this.#plans.append({ ...report, at, step: this.#step });
      const { name, inputs, reason, isRejected } = report;
      if (!isRejected) continue;
      this.noteTrouble(
        "capture rejected",
        `${name} for inputs ${inputs} runs call by call: ${reason ?? "no word why"}`,
      );
    }
  }

  noteTrouble(kind: TroubleRecord["kind"], message: string, details?: string): void {
    const [first = "", ...rest] = message.split("\n");
    const record: TroubleRecord = {
      ...{ kind, time: this.#now(), step: this.#step, message: first },
      details: details ?? (rest.length > 0 ? rest.join("\n") : undefined),
      phases: phasesOf(this.#runtime.recorder.recent(512)),
    };
    this.#trouble.append({ ...record });
  }

  /** Makes all that was noted so far last through a power cut; the sizes of the logs then, by name. */
  sync(): LogSizes {
    const logs = {
      [inspectionFiles.steps]: this.#steps,
      [inspectionFiles.plans]: this.#plans,
      [inspectionFiles.memory]: this.#memory,
      [inspectionFiles.trouble]: this.#trouble,
    };
    for (const log of Object.values(logs)) log.sync();
    return Object.fromEntries(Object.entries(logs).map(([name, { bytes }]) => [name, bytes]));
  }

  /** Writes the steps that wait for a loss too, without one. Harmless when repeated. */
  close(): void {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    runAll([
      () => {
        while (this.#waiting.shift(Number.NaN, this.#steps));
      },
      ...[this.#steps, this.#plans, this.#memory, this.#trouble].map((log) => () => log.close()),
    ]);
  }
}

/** What fails while an error is told must not hide that error. */
function ignoring(body: () => void): void {
  try {
    body();
  } catch {
    // The first error is told.
  }
}

/** A log that a resumed run shortens: by the size that it had, or by the steps that it tells of. */
interface Cuttable {
  close(): void;
  dropAfter(step: number): void;
  cutTo(bytes: number): void;
}

function digestOfPlan({ at: _at, step: _step, ...plan }: JsonRecord): string {
  return createHash("sha256").update(toJson("a plan", plan)).digest("base64");
}

/** What was entered and left lately, oldest first, a line each. */
function phasesOf(events: readonly RecordedEvent[]): readonly string[] {
  const entered: RecordedEvent[] = [];
  const lines: string[] = [];
  for (const event of events) {
    if (event.kind === "phase-enter") entered.push(event);
    if (event.kind === "phase-exit") {
      const begun = entered.pop();
      const took = begun ? ` took ${formatDuration(event.atMs - begun.atMs)}` : " ended";
      lines.push(`${event.label}${took}${event.step > 0 ? `, step ${event.step}` : ""}`);
    }
    if (event.kind === "reject") lines.push(`rejected: ${event.label}`);
  }
  for (const { label, step } of entered) lines.push(`${label} goes on${step > 0 ? `, step ${step}` : ""}`);
  return lines.slice(-phasesTold);
}

/** A queue of steps without losses, in one array that is used again and again. */
class Waiting {
  #rows = new Float64Array(bufferSizes.stepRows * width);
  #first = 0;
  #count = 0;

  push(row: StepRow): void {
    if (this.#count * width === this.#rows.length) this.#grow();
    storeRow(this.#rows, ((this.#first + this.#count) * width) % this.#rows.length, row);
    this.#count++;
  }

  /** Hands the earliest over, with its loss; false where none waits. */
  shift(loss: number, to: StepLog): boolean {
    if (this.#count === 0) return false;
    const at = this.#first * width;
    this.#rows[at + lossAt] = loss;
    to.appendFrom(this.#rows, at);
    this.#first = (this.#first + 1) % (this.#rows.length / width);
    this.#count--;
    return true;
  }

  #grow(): void {
    const begin = this.#first * width;
    const rows = new Float64Array(2 * this.#rows.length);
    rows.set(this.#rows.subarray(begin));
    rows.set(this.#rows.subarray(0, begin), this.#rows.length - begin);
    [this.#rows, this.#first] = [rows, 0];
  }
}
