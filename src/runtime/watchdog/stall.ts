/**
 * What a stall is: something is open (a phase or a driver call) and nothing has moved for the limit. Pure logic over
 * the board. Time counts from what the engine itself wrote, so a detector that starts late still sees the stall.
 */

import type { Clock } from "../../units/index.js";
import type { Board, CallReading, PhaseReading } from "../board.js";

/** What the engine is at, in one look. */
export interface Activity {
  readonly lookedMs: number;
  /** The phases that have not ended, outermost first. */
  readonly phases: readonly PhaseReading[];
  readonly call: CallReading | undefined;
  /** The op's number in the label table. */
  readonly op: number;
  readonly step: number;
  /** How long no phase and no driver call has been entered or left. */
  readonly stillMs: number;
}

export interface Stall extends Activity {
  readonly limitMs: number;
}

/** `nowMs` must be older than the look at the board: read the other way round, a late reader sees stalls. */
export function readActivity(board: Board, nowMs: number): Activity {
  const stillMs = Math.max(0, nowMs - board.movedMs);
  return {
    lookedMs: nowMs,
    phases: board.openPhases(),
    call: board.openCall(),
    op: board.op,
    step: board.step,
    stillMs,
  };
}

export class StallDetector {
  readonly #board: Board;
  readonly #limitMs: number;
  readonly #clock: Clock;
  /** The movement after which the last reported stall began: the same stall is told once. */
  #toldMs = Number.NaN;
  #countsFromMs = Number.NEGATIVE_INFINITY;

  constructor(board: Board, limitMs: number, clock: Clock) {
    this.#board = board;
    this.#limitMs = limitMs;
    this.#clock = clock;
  }

  /** The stall that has begun since the last look, if any. */
  examine(): Stall | undefined {
    const nowMs = this.#clock.nowMs();
    const movedMs = this.#board.movedMs;
    const stillMs = nowMs - Math.max(movedMs, this.#countsFromMs);
    if (stillMs < this.#limitMs || movedMs === this.#toldMs) return undefined;

    const activity = readActivity(this.#board, nowMs);
    const isIdle = activity.phases.length === 0 && activity.call === undefined;
    const hasMovedMeanwhile = this.#board.movedMs !== movedMs;
    if (isIdle || hasMovedMeanwhile) return undefined;

    this.#toldMs = movedMs;
    return { ...activity, call: this.#stuck(activity.call, nowMs), stillMs, limitMs: this.#limitMs };
  }

  /** Doesn't count a time in which the whole process was stopped, this watcher with it. */
  leaveOut(absentMs: number): void {
    const startMs = Math.max(this.#board.movedMs, this.#countsFromMs);
    this.#countsFromMs = Math.min(this.#clock.nowMs(), startMs + absentMs);
  }

  /** A call that is asked again and again may be open at this very moment and yet is not what stands still. */
  #stuck(call: CallReading | undefined, nowMs: number): CallReading | undefined {
    return call && nowMs - call.enteredMs >= this.#limitMs ? call : undefined;
  }
}
