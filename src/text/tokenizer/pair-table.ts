/** A hash table from pairs of whole numbers to a whole number, in typed arrays: merges of BPE, edges of a trie. */

const absent = -1;

export class PairTable {
  #first: Int32Array;
  #second: Int32Array;
  #values: Int32Array;
  #mask: number;
  #size = 0;

  constructor(expectedSize = 16) {
    const capacity = 2 ** Math.ceil(Math.log2(Math.max(16, expectedSize * 2)));
    this.#mask = capacity - 1;
    this.#first = new Int32Array(capacity).fill(absent);
    this.#second = new Int32Array(capacity);
    this.#values = new Int32Array(capacity);
  }

  get size(): number {
    return this.#size;
  }

  /** The value of a pair, or −1. */
  get(first: number, second: number): number {
    const slot = this.#slotOf(first, second);
    return this.#first[slot] === absent ? absent : (this.#values[slot] ?? absent);
  }

  /** Numbers must not be negative. */
  set(first: number, second: number, value: number): void {
    if (this.#size * 2 > this.#mask) this.#grow();
    const slot = this.#slotOf(first, second);
    if (this.#first[slot] === absent) this.#size += 1;
    this.#first[slot] = first;
    this.#second[slot] = second;
    this.#values[slot] = value;
  }

  #slotOf(first: number, second: number): number {
    const [firsts, seconds] = [this.#first, this.#second];
    let hash = Math.imul(first, 0x9e3779b1) ^ Math.imul(second, 0x85ebca77);
    hash = Math.imul(hash ^ (hash >>> 15), 0xc2b2ae3d);
    let slot = (hash ^ (hash >>> 13)) & this.#mask;
    while (firsts[slot] !== absent && (firsts[slot] !== first || seconds[slot] !== second))
      slot = (slot + 1) & this.#mask;
    return slot;
  }

  #grow(): void {
    const [firsts, seconds, values] = [this.#first, this.#second, this.#values];
    const capacity = firsts.length * 2;
    this.#mask = capacity - 1;
    this.#first = new Int32Array(capacity).fill(absent);
    this.#second = new Int32Array(capacity);
    this.#values = new Int32Array(capacity);
    this.#size = 0;
    for (const [slot, first] of firsts.entries())
      if (first !== absent) this.set(first, seconds[slot] ?? 0, values[slot] ?? 0);
  }
}
