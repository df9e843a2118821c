/**
 * The shared status: shared memory with the engine's current activity (phases, open driver call, op) and its figures
 * (budget by label, arena). The engine writes it. A watcher in another thread reads it at any time, independently of
 * the engine's thread. The figures live only here, so a report shows what is in use.
 */

import { type DriverCall, driverCalls } from "../../driver/index.js";
import { fileWorks } from "../../units/index.js";

/** The engine's phases. A step has a number in addition to the name. */
export const phaseNames = [
  "init",
  "upload",
  "compile",
  "plan",
  "capture",
  "step",
  "read-back",
  "close",
  "audit",
  ...fileWorks,
] as const;
export type PhaseName = (typeof phaseNames)[number];

/** The labels of the budget's charges. */
export const budgetLabels = [
  "weights",
  "gradients",
  "moments",
  "scalars",
  "data set",
  "step arena",
  "staging",
  "graph",
  "library workspace",
] as const;
/** The purpose of a charge to the budget. */
export type BudgetLabel = (typeof budgetLabels)[number];

export const arenaFigures = [
  "capacity",
  "committed",
  "offset",
  "highWater",
  "live",
  "pinned",
  "pins",
  "generation",
  "hits",
  "misses",
  "reuses",
  "allocationsThisStep",
  "bytesThisStep",
  "allocations",
  "bytes",
  "resetsByStep",
  "resetsByCall",
] as const;
export type ArenaFigure = (typeof arenaFigures)[number];

/** Phases may nest (a read-back inside a step); deeper levels are counted but not stored. */
const maxDepth = 8;
const phaseFields = 3;

/** Polling an event is not progress: an engine that polls for ever is stalled. */
const polling = driverCalls.indexOf("isReached");

/** Start of each section, in f64s. */
const at = (() => {
  const step = 0;
  const op = 1;
  const call = 2; // index + 1 of the driver call, its entry time, the number of calls so far
  const moved = 5;
  const depth = 6;
  const phases = 7; // index, number, entry time, per level
  const budgetLimit = phases + maxDepth * phaseFields;
  const budget = budgetLimit + 1;
  const arena = budget + budgetLabels.length;
  return {
    step,
    op,
    call,
    moved,
    depth,
    phases,
    budgetLimit,
    budget,
    arena,
    end: arena + arenaFigures.length,
  };
})();

export interface PhaseReading {
  readonly phase: PhaseName;
  /** The step's number; 0 if the phase has none. */
  readonly number: number;
  readonly enteredMs: number;
}

export interface CallReading {
  readonly call: DriverCall;
  readonly enteredMs: number;
}

export class SharedStatus {
  readonly memory: SharedArrayBuffer;
  readonly #cells: Float64Array;
  /** The budget's bytes in use, in the order of `budgetLabels`. */
  readonly budgetUsed: Float64Array;
  /** The arena's figures, in the order of `arenaFigures`. */
  readonly arena: Float64Array;

  constructor(memory = new SharedArrayBuffer(8 * at.end)) {
    this.memory = memory;
    this.#cells = new Float64Array(memory);
    this.budgetUsed = this.#cells.subarray(at.budget, at.budget + budgetLabels.length);
    this.arena = this.#cells.subarray(at.arena, at.end);
  }

  enterPhase(phase: PhaseName, number: number, nowMs: number): void {
    const depth = this.#read(at.depth);
    if (depth < maxDepth) {
      const cell = at.phases + depth * phaseFields;
      this.#cells[cell] = phaseNames.indexOf(phase);
      this.#cells[cell + 1] = number;
      this.#cells[cell + 2] = nowMs;
    }
    this.#cells[at.moved] = nowMs;
    this.#cells[at.depth] = depth + 1;
  }

  exitPhase(nowMs: number): void {
    this.#cells[at.moved] = nowMs;
    this.#cells[at.depth] = Math.max(0, this.#read(at.depth) - 1);
  }

  /** `call` is its index in `driverCalls`. */
  enterCall(call: number, nowMs: number): void {
    this.#cells[at.call + 1] = nowMs;
    this.#cells[at.call + 2] = this.#read(at.call + 2) + 1;
    if (call !== polling) this.#cells[at.moved] = nowMs;
    this.#cells[at.call] = call + 1;
  }

  exitCall(nowMs: number): void {
    if (this.#read(at.call) !== polling + 1) this.#cells[at.moved] = nowMs;
    this.#cells[at.call] = 0;
  }

  /** When a phase or a driver call was last entered or left: a watcher measures inactivity from it. */
  get movedMs(): number {
    return this.#read(at.moved);
  }

  /** The open phases, outermost first. */
  openPhases(): PhaseReading[] {
    const depth = Math.min(maxDepth, this.#read(at.depth));
    return Array.from({ length: depth }, (_, level) => {
      const cell = at.phases + level * phaseFields;
      return {
        phase: phaseNames[this.#read(cell)] ?? "init",
        number: this.#read(cell + 1),
        enteredMs: this.#read(cell + 2),
      };
    });
  }

  /** The open driver call, if any. */
  openCall(): CallReading | undefined {
    const call = driverCalls[this.#read(at.call) - 1];
    return call && { call, enteredMs: this.#read(at.call + 1) };
  }

  get driverCallsMade(): number {
    return this.#read(at.call + 2);
  }

  get step(): number {
    return this.#read(at.step);
  }

  set step(step: number) {
    this.#cells[at.step] = step;
  }

  /** The label number of the current op, in the run's `LabelTable`. */
  get op(): number {
    return this.#read(at.op);
  }

  set op(label: number) {
    this.#cells[at.op] = label;
  }

  get budgetLimit(): number {
    return this.#read(at.budgetLimit);
  }

  set budgetLimit(limit: number) {
    this.#cells[at.budgetLimit] = limit;
  }

  readBudget(): Record<BudgetLabel, number> {
    return Object.fromEntries(
      budgetLabels.map((label, index) => [label, this.budgetUsed[index] ?? 0]),
    ) as Record<BudgetLabel, number>;
  }

  readArena(): Record<ArenaFigure, number> {
    return Object.fromEntries(arenaFigures.map((name, index) => [name, this.arena[index] ?? 0])) as Record<
      ArenaFigure,
      number
    >;
  }

  #read(cell: number): number {
    return this.#cells[cell] ?? 0;
  }
}
