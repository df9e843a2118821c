/**
 * Compact rows store a sparse array [rows, width], such as the gradient of an embedding. They have one slot for each index entry. The first
 * entry that selects a row owns it, and its slot holds the row. A row map has the slot of each row, or −1.
 */

import type { Storage } from "../../runtime/index.js";

/** The rows of one table that an index selects. */
export interface IndexedTable<Memory> {
  /** i32: entries outside of 0 … rows − 1 select nothing. */
  readonly index: Memory;
  /** From an entry to the next one, in elements. */
  readonly stride: number;
  readonly count: number;
  readonly rows: number;
}

/**
 * The row maps of several tables. Entries are numbered through all tables, in order. The owner of a row is the first entry that selects it,
 * and its number is the row's position. So the compact rows have one row for each entry, of which only those of owners are used.
 */
export interface RowMapProblem {
  readonly tables: readonly IndexedTable<Storage>[];
  /** i32 [rows of all tables]: the position of a row, or −1 for a row that no entry selects. */
  readonly map: Storage;
  /** i32 [entries of all tables]: the owner of the entry's row, numbered in its own table; −1 if the entry selects nothing. */
  readonly owners: Storage;
}
