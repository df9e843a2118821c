/**
 * Decides which texts share a row: best fit, longest texts first. A text goes into the row with the least room that is enough. Rows are
 * in the order of their first texts.
 */

export interface RowPlan {
  readonly rows: number;
  /** The row of each text. */
  readonly rowOf: Uint32Array;
}

/** Each text in a row of its own. */
export function planSingleRows(texts: number): RowPlan {
  return { rows: texts, rowOf: Uint32Array.from({ length: texts }, (_, text) => text) };
}

/** Packs texts of these lengths into rows of `rowLength` tokens. No text may be longer than a row. */
export function planPackedRows(lengths: Uint32Array, rowLength: number): RowPlan {
  const order = byLength(lengths, rowLength);
  const room = new RoomIndex(rowLength);
  const rowOf = new Uint32Array(lengths.length);
  let rows = 0;
  for (const text of order) {
    const length = lengths[text] ?? 0;
    const found = room.take(length);
    const row = found?.row ?? rows++;
    rowOf[text] = row;
    room.put(row, (found?.room ?? rowLength) - length);
  }
  return { rows, rowOf: inOrder(rowOf, rows) };
}

/** The texts, longest first; equal lengths in their order. */
function byLength(lengths: Uint32Array, rowLength: number): Uint32Array {
  const next = new Uint32Array(rowLength + 2);
  for (const length of lengths) next[rowLength - length + 1] = (next[rowLength - length + 1] ?? 0) + 1;
  for (let index = 1; index < next.length; index++) next[index] = (next[index] ?? 0) + (next[index - 1] ?? 0);
  const order = new Uint32Array(lengths.length);
  for (const [text, length] of lengths.entries()) {
    const at = next[rowLength - length] ?? 0;
    next[rowLength - length] = at + 1;
    order[at] = text;
  }
  return order;
}

/** Numbers the rows by their first texts. */
function inOrder(rowOf: Uint32Array, rows: number): Uint32Array {
  const numbers = new Int32Array(rows).fill(-1);
  let next = 0;
  return rowOf.map((row) => {
    if (numbers[row] === -1) numbers[row] = next++;
    return numbers[row] ?? 0;
  });
}

/** Rows by their room. A bit for each amount of room finds the least that is enough, 32 amounts at a time. */
class RoomIndex {
  readonly #rows: number[][];
  readonly #bits: Uint32Array;

  constructor(maxRoom: number) {
    this.#rows = Array.from({ length: maxRoom + 1 }, () => []);
    this.#bits = new Uint32Array((maxRoom >>> 5) + 1);
  }

  put(row: number, room: number): void {
    this.#rows[room]?.push(row);
    this.#bits[room >>> 5] = (this.#bits[room >>> 5] ?? 0) | (1 << (room & 31));
  }

  /** Removes a row with the least room of at least `min`. */
  take(min: number): { readonly row: number; readonly room: number } | undefined {
    for (let word = min >>> 5; word < this.#bits.length; word++) {
      const mask = word === min >>> 5 ? -1 << (min & 31) : -1;
      const bits = (this.#bits[word] ?? 0) & mask;
      if (bits === 0) continue;
      const bit = 31 - Math.clz32(bits & -bits);
      const room = word * 32 + bit;
      const rows = this.#rows[room] ?? [];
      const row = rows.pop();
      if (rows.length === 0) this.#bits[word] = (this.#bits[word] ?? 0) & ~(1 << bit);
      return row === undefined ? undefined : { row, room };
    }
    return undefined;
  }
}
