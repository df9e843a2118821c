/** The arena's figures, read and written by name. They live on the board, where a watcher can see them. */

import { type ArenaFigure, arenaFigures, type Board } from "./board.js";

const indexOf = Object.fromEntries(arenaFigures.map((name, index) => [name, index])) as Record<
  ArenaFigure,
  number
>;

export class ArenaFigures {
  readonly #cells: Float64Array;

  constructor(board: Board) {
    this.#cells = board.arena;
  }

  get(name: ArenaFigure): number {
    return this.#cells[indexOf[name]] ?? 0;
  }

  set(name: ArenaFigure, value: number): void {
    this.#cells[indexOf[name]] = value;
  }

  add(name: ArenaFigure, value: number): void {
    const index = indexOf[name];
    this.#cells[index] = (this.#cells[index] ?? 0) + value;
  }

  clear(): void {
    this.#cells.fill(0);
  }
}
