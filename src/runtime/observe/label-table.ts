/**
 * Interns short texts (op names, tensor names) as small numbers in shared memory. The engine writes a number; a watcher
 * in another thread can print the text even if the engine hangs.
 */

const maxLabels = 8192;
const maxLabelBytes = 96;
const poolBytes = 256 * 1024;
const tableBytes = 4 * (2 + 2 * maxLabels);

/** Used when the table is full: labels are only for messages, and a run must not end for lack of one. */
const otherLabels = "(other)";

const encoder = new TextEncoder();
const decoder = new TextDecoder();

export class LabelTable {
  readonly memory: SharedArrayBuffer;
  /** [count, pool bytes used, then start and length of each label]. */
  readonly #table: Int32Array;
  readonly #pool: Uint8Array;
  readonly #ids = new Map<string, number>();

  constructor(memory = new SharedArrayBuffer(tableBytes + poolBytes)) {
    this.memory = memory;
    this.#table = new Int32Array(memory, 0, tableBytes / 4);
    this.#pool = new Uint8Array(memory, tableBytes);
    if (this.count === 0) {
      this.idOf("");
      this.idOf(otherLabels);
    }
  }

  get count(): number {
    return Atomics.load(this.#table, 0);
  }

  /** Returns the number of a text; equal texts have equal numbers. Only the engine's thread may call this. */
  idOf(text: string): number {
    const existing = this.#ids.get(text);
    if (existing !== undefined) return existing;
    const id = this.count;
    const start = Atomics.load(this.#table, 1);
    if (id === maxLabels || start + maxLabelBytes > poolBytes) return 1;
    const target = this.#pool.subarray(start, start + maxLabelBytes);
    const { written } = encoder.encodeInto(text, target);
    this.#table[2 + 2 * id] = start;
    this.#table[3 + 2 * id] = written;
    Atomics.store(this.#table, 1, start + written);
    Atomics.store(this.#table, 0, id + 1);
    this.#ids.set(text, id);
    return id;
  }

  textOf(id: number): string {
    if (id < 0 || id >= this.count) return otherLabels;
    const start = this.#table[2 + 2 * id] ?? 0;
    const length = this.#table[3 + 2 * id] ?? 0;
    return decoder.decode(this.#pool.slice(start, start + length));
  }
}
