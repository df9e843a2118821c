/**
 * What a stall is: a phase, a driver call or work on a file is open, and for the limit none of them has begun or ended, and
 * there was no heartbeat. Where nothing is open, the program is at work itself: it stands still if its event loop does not turn
 * for the limit. Pure logic over the board and the heartbeat. Only time between the detector's own checks counts, less the
 * time in which the watched thread waited for a processor: time in which it could not check or move is not a stall.
 */

import { type Clock, type FileWork, heartbeatIn } from "../../../units/index.js";
import type { CallReading, PhaseReading, SharedStatus } from "../shared-status.js";
import { lookEveryMs } from "./messages.js";
import { WatchedTime } from "./watched-time.js";

/** What the engine is at, in one look. */
export interface Activity {
  readonly lookedMs: number;
  /** The phases that have not ended, outermost first. */
  readonly phases: readonly PhaseReading[];
  readonly call: CallReading | undefined;
  /** The op's number in the label table. */
  readonly op: number;
  readonly step: number;
  /** How long nothing has moved, as far as it was watched. */
  readonly stillMs: number;
}

export interface Stall extends Activity {
  readonly limitMs: number;
}

/** What is known of the watched thread beyond the board. */
export interface ThreadSigns {
  /** How many beats there were. */
  readonly beats?: () => number;
  /** How often its event loop has turned; without it a program outside of all phases is never stalled. */
  readonly turns?: () => number;
  /** The work on a file that has not ended. */
  readonly fileWork?: () => { readonly work: FileWork; readonly enteredMs: number } | undefined;
  /** How long it has waited for a processor since this was last asked. */
  readonly waitedMs?: () => number;
}

/** The share of time that counts on a machine however crowded, so that a busy loop is found there too. */
const minCounted = 1 / 8;

interface Signs {
  readonly movedMs: number;
  readonly beats: number;
  readonly turns: number;
}

type Open = Pick<Activity, "phases" | "call">;

/** Is the program at work itself, with nothing of the engine's open? */
export function isOutside({ phases, call }: Open): boolean {
  return phases.length === 0 && call === undefined;
}

export class StallDetector {
  readonly #sharedStatus: SharedStatus;
  readonly #limitMs: number;
  readonly #clock: Clock;
  readonly #signs: Required<Omit<ThreadSigns, "turns">> & Pick<ThreadSigns, "turns">;
  readonly #time: WatchedTime;
  /** The state of the board and the heartbeat at the last look. */
  #seen: Signs = { movedMs: Number.NaN, beats: Number.NaN, turns: Number.NaN };
  /** How long nothing has moved, and for how much of that the thread waited for a processor. */
  #still = { watchedMs: 0, waitedMs: 0 };
  /** The same stall is told once. */
  #isTold = false;
  #activity: Activity | undefined;

  constructor(sharedStatus: SharedStatus, limitMs: number, clock: Clock, signs: ThreadSigns = {}) {
    this.#sharedStatus = sharedStatus;
    this.#limitMs = limitMs;
    this.#clock = clock;
    this.#signs = { beats: heartbeatIn(), fileWork: () => undefined, waitedMs: () => 0, ...signs };
    this.#time = new WatchedTime(clock, 2 * lookEveryMs(limitMs));
  }

  /** Looks at the engine and tells the stall that has begun, once. To be called every `lookEveryMs`. */
  examine(): Stall | undefined {
    const activity = this.#look();
    this.#activity = activity;
    const { stillMs, phases, call, lookedMs } = activity;
    const isIdle = isOutside({ phases, call }) && this.#signs.turns === undefined;
    if (stillMs < this.#limitMs || this.#isTold || isIdle || !this.isRowInvariant) return undefined;
    this.#isTold = true;
    return { ...activity, call: this.#stuck(call, lookedMs), limitMs: this.#limitMs };
  }

  /** What the last look has seen. */
  get activity(): Activity | undefined {
    return this.#activity;
  }

  /** Has nothing moved since the last look? */
  get isRowInvariant(): boolean {
    return this.#isSame(this.#readSigns(), this.#activity);
  }

  #look(): Activity {
    // The clock is read before the board: the other way round, a late reader would see stalls.
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
      // A stall may be older than this detector. Two more looks have to confirm that, in case the process was stopped.
      const olderMs = isOutside(open)
        ? 0
        : Math.min(sinceMoveMs, this.#limitMs - 2 * lookEveryMs(this.#limitMs));
      const newerMs = isMove ? Math.min(sinceMoveMs, tickMs) : 0;
      this.#still = { watchedMs: this.#activity ? newerMs : olderMs, waitedMs: 0 };
      this.#isTold = false;
    }
    this.#seen = signs;
    return { ...open, lookedMs: nowMs, op, step, stillMs: this.#stillMs };
  }

  get #stillMs(): number {
    const { watchedMs, waitedMs } = this.#still;
    return Math.max(watchedMs * minCounted, watchedMs - waitedMs);
  }

  /** The phases on the board, and inside them the file that is waited for. */
  #openPhases(): readonly PhaseReading[] {
    const phases = this.#sharedStatus.openPhases();
    const file = this.#signs.fileWork();
    return file ? [...phases, { phase: file.work, number: 0, enteredMs: file.enteredMs }] : phases;
  }

  #readSigns(): Signs {
    const { beats, turns } = this.#signs;
    return { movedMs: this.#sharedStatus.movedMs, beats: beats(), turns: turns?.() ?? 0 };
  }

  /** Has nothing moved? Inside a phase a turn of the event loop is no move: the phase may wait for what never comes. */
  #isSame({ movedMs, beats, turns }: Signs, open: Open | undefined): boolean {
    const isTransposed = turns !== this.#seen.turns && open !== undefined && isOutside(open);
    return movedMs === this.#seen.movedMs && beats === this.#seen.beats && !isTransposed;
  }

  /** Counts anew from here: someone holds the engine, and knows it. */
  restart(): void {
    this.#still = { watchedMs: 0, waitedMs: 0 };
    this.#isTold = false;
  }

  /** A call that is asked again and again may be open at this very moment and yet is not what stands still. */
  #stuck(call: CallReading | undefined, nowMs: number): CallReading | undefined {
    return call && nowMs - call.enteredMs >= this.#limitMs ? call : undefined;
  }
}
