/**
 * What a stall is: a phase or a driver call is open, and for the limit no phase or driver call has begun or ended, and there
 * was no heartbeat. Pure logic over the board and the heartbeat. Only time between the detector's own checks counts, so time
 * in which it could not check is not a stall.
 */

import { type Clock, heartbeatIn } from "../../units/index.js";
import type { Board, CallReading, PhaseReading } from "../board.js";
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

export class StallDetector {
  readonly #board: Board;
  readonly #limitMs: number;
  readonly #clock: Clock;
  readonly #beats: () => number;
  readonly #time: WatchedTime;
  /** The state of the board and the heartbeat at the last look. */
  #movedMs = Number.NaN;
  #beaten = Number.NaN;
  #stillMs = 0;
  /** The same stall is told once. */
  #isTold = false;
  #activity: Activity | undefined;

  constructor(board: Board, limitMs: number, clock: Clock, beats: () => number = heartbeatIn()) {
    this.#board = board;
    this.#limitMs = limitMs;
    this.#clock = clock;
    this.#beats = beats;
    this.#time = new WatchedTime(clock, 2 * lookEveryMs(limitMs));
  }

  /** Looks at the engine and tells the stall that has begun, once. To be called every `lookEveryMs`. */
  examine(): Stall | undefined {
    const activity = this.#look();
    this.#activity = activity;
    const { stillMs, phases, call, lookedMs } = activity;
    const isIdle = phases.length === 0 && call === undefined;
    if (stillMs < this.#limitMs || this.#isTold || isIdle || !this.isStill) return undefined;
    this.#isTold = true;
    return { ...activity, call: this.#stuck(call, lookedMs), limitMs: this.#limitMs };
  }

  /** What the last look has seen. */
  get activity(): Activity | undefined {
    return this.#activity;
  }

  /** Has nothing moved since the last look? */
  get isStill(): boolean {
    return this.#board.movedMs === this.#movedMs && this.#beats() === this.#beaten;
  }

  #look(): Activity {
    // The clock is read before the board: the other way round, a late reader would see stalls.
    const nowMs = this.#clock.nowMs();
    const tickMs = this.#time.tick();
    const [movedMs, beaten] = [this.#board.movedMs, this.#beats()];
    if (this.#activity && movedMs === this.#movedMs && beaten === this.#beaten) this.#stillMs += tickMs;
    else {
      const sinceMoveMs = Math.max(0, nowMs - movedMs);
      // A stall may be older than this detector. Two more looks have to confirm that, in case the process was stopped.
      if (!this.#activity)
        this.#stillMs = Math.min(sinceMoveMs, this.#limitMs - 2 * lookEveryMs(this.#limitMs));
      else this.#stillMs = beaten === this.#beaten ? Math.min(sinceMoveMs, tickMs) : 0;
      this.#isTold = false;
    }
    [this.#movedMs, this.#beaten] = [movedMs, beaten];
    const { op, step } = this.#board;
    return {
      ...{ lookedMs: nowMs, phases: this.#board.openPhases(), call: this.#board.openCall() },
      ...{ op, step, stillMs: this.#stillMs },
    };
  }

  /** Counts anew from here: someone holds the engine, and knows it. */
  restart(): void {
    this.#stillMs = 0;
    this.#isTold = false;
  }

  /** A call that is asked again and again may be open at this very moment and yet is not what stands still. */
  #stuck(call: CallReading | undefined, nowMs: number): CallReading | undefined {
    return call && nowMs - call.enteredMs >= this.#limitMs ? call : undefined;
  }
}
