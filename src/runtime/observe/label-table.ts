/**
 * Short texts (op names, tensor names) as small numbers, in shared memory: the engine writes a number, and a
 * watcher in another thread can still print the text when the engine itself no longer answers.
 */

const maximumLabels = 8192;
const maximumLabelBytes = 96;
const poolBytes = 256 * 1024;
const tableBytes = 4 * (2 + 2 * maximumLabels);

/** What is written when the table is full: labels are for people, and a run must not end for want of one. */
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

  /** The number of a text; the same text always has the same number. Only the engine's thread may call this. */
  idOf(text: string): number {
    const known = this.#ids.get(text);
    if (known !== undefined) return known;
    const id = this.count;
    const start = Atomics.load(this.#table, 1);
    if (id === maximumLabels || start + maximumLabelBytes > poolBytes) return 1;
    const room = this.#pool.subarray(start, start + maximumLabelBytes);
    const { written } = encoder.encodeInto(text, room);
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
