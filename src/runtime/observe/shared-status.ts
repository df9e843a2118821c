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
  "weight copies",
  "gradients",
  "moments",
  "scalars",
  "data set",
  "step arena",
  "autotuning",
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
const offsets = (() => {
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

  constructor(memory = new SharedArrayBuffer(8 * offsets.end)) {
    this.memory = memory;
    this.#cells = new Float64Array(memory);
    this.budgetUsed = this.#cells.subarray(offsets.budget, offsets.budget + budgetLabels.length);
    this.arena = this.#cells.subarray(offsets.arena, offsets.end);
  }

  enterPhase(phase: PhaseName, number: number, nowMs: number): void {
    const depth = this.#read(offsets.depth);
    if (depth < maxDepth) {
      const cell = offsets.phases + depth * phaseFields;
      this.#cells[cell] = phaseNames.indexOf(phase);
      this.#cells[cell + 1] = number;
      this.#cells[cell + 2] = nowMs;
    }
    this.#cells[offsets.moved] = nowMs;
    this.#cells[offsets.depth] = depth + 1;
  }

  exitPhase(nowMs: number): void {
    this.#cells[offsets.moved] = nowMs;
    this.#cells[offsets.depth] = Math.max(0, this.#read(offsets.depth) - 1);
  }

  /** `call` is its index in `driverCalls`. */
  enterCall(call: number, nowMs: number): void {
    this.#cells[offsets.call + 1] = nowMs;
    this.#cells[offsets.call + 2] = this.#read(offsets.call + 2) + 1;
    if (call !== polling) this.#cells[offsets.moved] = nowMs;
    this.#cells[offsets.call] = call + 1;
  }

  exitCall(nowMs: number): void {
    if (this.#read(offsets.call) !== polling + 1) this.#cells[offsets.moved] = nowMs;
    this.#cells[offsets.call] = 0;
  }

  /** When a phase or a driver call was last entered or left: a watcher measures inactivity from it. */
  get movedMs(): number {
    return this.#read(offsets.moved);
  }

  /** The open phases, outermost first. */
  openPhases(): PhaseReading[] {
    const depth = Math.min(maxDepth, this.#read(offsets.depth));
    return Array.from({ length: depth }, (_, level) => {
      const cell = offsets.phases + level * phaseFields;
      return {
        phase: phaseNames[this.#read(cell)] ?? "init",
        number: this.#read(cell + 1),
        enteredMs: this.#read(cell + 2),
      };
    });
  }

  /** The open driver call, if any. */
  openCall(): CallReading | undefined {
    const call = driverCalls[this.#read(offsets.call) - 1];
    return call && { call, enteredMs: this.#read(offsets.call + 1) };
  }

  get driverCallsMade(): number {
    return this.#read(offsets.call + 2);
  }

  get step(): number {
    return this.#read(offsets.step);
  }

  set step(step: number) {
    this.#cells[offsets.step] = step;
  }

  /** The label number of the current op, in the run's `LabelTable`. */
  get op(): number {
    return this.#read(offsets.op);
  }

  set op(label: number) {
    this.#cells[offsets.op] = label;
  }

  get budgetLimit(): number {
    return this.#read(offsets.budgetLimit);
  }

  set budgetLimit(limit: number) {
    this.#cells[offsets.budgetLimit] = limit;
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
