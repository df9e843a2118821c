/**
 * Detects stalls. A stall is open work without progress: a phase, a driver call or file work is open, and none has
 * started or ended within the limit, nor was there a heartbeat. If nothing is open, the program itself runs; it stalls
 * if its event loop does not turn for the limit.
 *
 * Pure logic over the shared status and the heartbeat. Only time between the detector's checks counts, less the time in
 * which the watched thread waited for a processor.
 */

import { beatCounter, type Clock, type FileWork } from "../../../units/index.js";
import type { CallReading, PhaseReading, SharedStatus } from "../shared-status.js";
import { checkIntervalMs, WatchedTime } from "./watched-time.js";

/** The engine's activity at one check. */
export interface Activity {
  readonly checkedMs: number;
  /** The open phases, outermost first. */
  readonly phases: readonly PhaseReading[];
  readonly call: CallReading | undefined;
  /** The op's number in the label table. */
  readonly op: number;
  readonly step: number;
  /** Time without progress, as far as it was watched. */
  readonly stillMs: number;
}

export interface Stall extends Activity {
  readonly limitMs: number;
}

/** Signs of life of the watched thread, in addition to the shared status. */
export interface ThreadSigns {
  /** Number of heartbeats. */
  readonly beats?: () => number;
  /** Number of turns of its event loop. Without it, a program outside all phases never stalls. */
  readonly turns?: () => number;
  /** The open file work. */
  readonly fileWork?: () => { readonly work: FileWork; readonly enteredMs: number } | undefined;
  /** The time for which it waited for a processor since the last call. */
  readonly waitedMs?: () => number;
}

/** The share of time that counts even on a crowded machine, so that a busy loop is detected there too. */
const minCounted = 1 / 8;

interface Signs {
  readonly movedMs: number;
  readonly beats: number;
  readonly turns: number;
}

type Open = Pick<Activity, "phases" | "call">;

/** True if the program itself runs, with no engine work open. */
export function isOutside({ phases, call }: Open): boolean {
  return phases.length === 0 && call === undefined;
}

export class StallDetector {
  readonly #sharedStatus: SharedStatus;
  readonly #limitMs: number;
  readonly #clock: Clock;
  readonly #signs: Required<Omit<ThreadSigns, "turns">> & Pick<ThreadSigns, "turns">;
  readonly #time: WatchedTime;
  /** The shared status and the heartbeat at the last check. */
  #seen: Signs = { movedMs: Number.NaN, beats: Number.NaN, turns: Number.NaN };
  /** Time without progress, and how much of it the thread waited for a processor. */
  #still = { watchedMs: 0, waitedMs: 0 };
  /** A stall is reported once. */
  #isReported = false;
  #activity: Activity | undefined;

  constructor(sharedStatus: SharedStatus, limitMs: number, clock: Clock, signs: ThreadSigns = {}) {
    this.#sharedStatus = sharedStatus;
    this.#limitMs = limitMs;
    this.#clock = clock;
    this.#signs = { beats: beatCounter(), fileWork: () => undefined, waitedMs: () => 0, ...signs };
    this.#time = new WatchedTime(clock, 2 * checkIntervalMs(limitMs));
  }

  /** Checks the engine; returns a new stall once. Call it every `checkIntervalMs`. */
  examine(): Stall | undefined {
    const activity = this.#readActivity();
    this.#activity = activity;
    const { stillMs, phases, call, checkedMs } = activity;
    const isIdle = isOutside({ phases, call }) && this.#signs.turns === undefined;
    if (stillMs < this.#limitMs || this.#isReported || isIdle || !this.isStill) return undefined;
    this.#isReported = true;
    return { ...activity, call: this.#stuckCall(call, checkedMs), limitMs: this.#limitMs };
  }

  /** The activity at the last check. */
  get activity(): Activity | undefined {
    return this.#activity;
  }

  /** True if nothing has moved since the last check. */
  get isStill(): boolean {
    return this.#isSame(this.#readSigns(), this.#activity);
  }

  #readActivity(): Activity {
    // Read the clock before the status; otherwise a late reader would see stalls.
    const nowMs = this.#clock.nowMs();
    const tickMs = this.#time.tick();
    const waitedMs = this.#signs.waitedMs();
    const signs = this.#readSigns();
    const { op, step } = this.#sharedStatus;
    const open = { phases: this.#openPhases(), call: this.#sharedStatus.openCall() };
    if (this.#activity && this.#isSame(signs, open))
      this.#still = {
        watchedMs: this.#still.watchedMs + tickMs,
        waitedMs: this.#still.waitedMs + waitedMs,
      };
    else {
      const sinceMoveMs = Math.max(0, nowMs - signs.movedMs);
      const isMove = signs.movedMs !== this.#seen.movedMs && signs.beats === this.#seen.beats;
      // A stall may be older than this detector. Two more checks must confirm it, in case the process was stopped.
      const olderMs = isOutside(open)
        ? 0
        : Math.min(sinceMoveMs, this.#limitMs - 2 * checkIntervalMs(this.#limitMs));
      const newerMs = isMove ? Math.min(sinceMoveMs, tickMs) : 0;
      this.#still = { watchedMs: this.#activity ? newerMs : olderMs, waitedMs: 0 };
      this.#isReported = false;
    }
    this.#seen = signs;
    return { ...open, checkedMs: nowMs, op, step, stillMs: this.#stillMs };
  }

  get #stillMs(): number {
    const { watchedMs, waitedMs } = this.#still;
    return Math.max(watchedMs * minCounted, watchedMs - waitedMs);
  }

  /** The open phases, with the awaited file as the innermost. */
  #openPhases(): readonly PhaseReading[] {
    const phases = this.#sharedStatus.openPhases();
    const file = this.#signs.fileWork();
    return file ? [...phases, { phase: file.work, number: 0, enteredMs: file.enteredMs }] : phases;
  }

  #readSigns(): Signs {
    const { beats, turns } = this.#signs;
    return { movedMs: this.#sharedStatus.movedMs, beats: beats(), turns: turns?.() ?? 0 };
  }

  /**
   * True if nothing has moved. Inside a phase a turn of the event loop is no progress: the phase may wait for something
   * that never comes.
   */
  #isSame({ movedMs, beats, turns }: Signs, open: Open | undefined): boolean {
    const hasTurned = turns !== this.#seen.turns && open !== undefined && isOutside(open);
    return movedMs === this.#seen.movedMs && beats === this.#seen.beats && !hasTurned;
  }

  /** Restarts the count, after a pause that is not a stall. */
  restart(): void {
    this.#still = { watchedMs: 0, waitedMs: 0 };
    this.#isReported = false;
  }

  /** The open call, if it has been open for the limit. A polled call may be open only at this moment. */
  #stuckCall(call: CallReading | undefined, nowMs: number): CallReading | undefined {
    return call && nowMs - call.enteredMs >= this.#limitMs ? call : undefined;
  }
}
