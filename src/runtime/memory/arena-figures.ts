/** The arena's figures, read and written by cell. They live in the shared status, where a watcher can read them. */

import { type ArenaFigure, arenaFigures, type SharedStatus } from "../observe/shared-status.js";

/** The cell index of each figure. Lookups by name would cost an allocation a third of its time. */
export const cell = Object.fromEntries(arenaFigures.map((name, index) => [name, index])) as Readonly<
  Record<ArenaFigure, number>
>;

export class ArenaFigures {
  readonly #cells: Float64Array;

  constructor(sharedStatus: SharedStatus) {
    this.#cells = sharedStatus.arena;
  }

  get(figure: number): number {
    return this.#cells[figure] ?? 0;
  }

  set(figure: number, value: number): void {
    this.#cells[figure] = value;
  }

  add(figure: number, value: number): void {
    this.#cells[figure] = (this.#cells[figure] ?? 0) + value;
  }

  /** Counts an allocation that was a hit, a reuse or a miss. `top` is the end of the highest block, in bytes. */
  countAllocation(source: number, size: number, extent: number, top: number): void {
    this.add(source, 1);
    this.add(cell.allocationsThisStep, 1);
    this.add(cell.bytesThisStep, size);
    this.add(cell.allocations, 1);
    this.add(cell.bytes, size);
    this.add(cell.live, extent);
    this.set(cell.offset, top);
    if (top > this.get(cell.highWater)) this.set(cell.highWater, top);
  }

  clear(): void {
    this.#cells.fill(0);
  }
}
