/**
 * A radix sort of rows in JavaScript, for devices whose memory is host memory. Keys become unsigned words whose order is that of the keys: equal keys
 * keep their order, −0 equals 0, and NaN is the largest number.
 */

import type { KernelSource } from "../../driver/index.js";

/** The dtypes of keys that are sorted without a conversion. */
export const hostSortDtypes = ["f32", "f64", "i32", "i64"] as const;
export type HostSortDtype = (typeof hostSortDtypes)[number];

/** Rows up to this length are sorted faster by the kernels of a merge sort. */
export const maxMergedRow = 32;

const kernels = new Map<string, KernelSource>();

/** Parameters: keys, sorted keys, the indices of the sorted keys in their row as i32, and the length of a row. A block is a row. */
export function hostSortKernel(dtype: HostSortDtype, isDescending: boolean): KernelSource {
  const name = `radix sort ${dtype}${isDescending ? " descending" : ""}`;
  const known = kernels.get(name);
  if (known) return known;
  const kernel: KernelSource = {
    name,
    parameters: ["in", "out", "out", "f64"],
    host: (memory, firstRow = 0, endRow = 0, keys = 0, sorted = 0, order = 0, length = 0) => {
      const sorter = new RowSorter(length);
      const bytes = rowBytes(dtype, length);
      for (let row = firstRow; row < endRow; row++) {
        const [source, target] = [keys, sorted].map((array) => array + row * bytes) as [number, number];
        const indices = new Int32Array(memory, order + 4 * row * length, length);
        sorter.load(wordsOf(dtype, memory, source, length, isDescending));
        indices.set(sorter.order());
        gather(dtype, memory, source, target, indices);
      }
    },
  };
  kernels.set(name, kernel);
  return kernel;
}

const isWide = (dtype: HostSortDtype): boolean => dtype === "f64" || dtype === "i64";
const rowBytes = (dtype: HostSortDtype, length: number): number => (isWide(dtype) ? 8 : 4) * length;

/** Moves keys as bits. */
function gather(
  dtype: HostSortDtype,
  memory: ArrayBufferLike,
  source: number,
  target: number,
  indices: Int32Array,
): void {
  const words = isWide(dtype) ? 2 : 1;
  const [from, to] = [source, target].map((at) => new Int32Array(memory, at, words * indices.length)) as [
    Int32Array,
    Int32Array,
  ];
  let at = 0;
  for (let place = 0; place < indices.length; place++) {
    const start = words * (indices[place] ?? 0);
    for (let word = 0; word < words; word++) to[at++] = from[start + word] ?? 0;
  }
}

/** The words of each key, the least significant list first. */
function wordsOf(
  dtype: HostSortDtype,
  memory: ArrayBufferLike,
  address: number,
  length: number,
  isDescending: boolean,
): readonly Uint32Array[] {
  const words = isWide(dtype) ? 2 : 1;
  const bits = new Int32Array(memory, address, words * length);
  const lists = Array.from({ length: words }, () => new Uint32Array(length));
  const flip = isDescending ? -1 : 0;
  const numbers =
    dtype === "f32"
      ? new Float32Array(memory, address, length)
      : dtype === "f64"
        ? new Float64Array(memory, address, length)
        : undefined;
  const signBit = -(2 ** 31);
  for (const [list, result] of lists.entries()) {
    const isHigh = list === words - 1;
    for (let index = 0; index < length; index++) {
      const word = bits[words * index + list] ?? 0;
      let key = isHigh ? word ^ signBit : word;
      const number = numbers ? (numbers[index] ?? 0) : 1;
      if (Number.isNaN(number)) key = -1;
      else if (number === 0) key = isHigh ? signBit : 0;
      else if (numbers && number < 0) key = ~word;
      result[index] = key ^ flip;
    }
  }
  return lists;
}

/** Sorts the indices of one row after the other, in the same memory. */
class RowSorter {
  readonly #digitBits: number;
  readonly #counts: Uint32Array;
  #order: Uint32Array;
  #next: Uint32Array;
  #words: readonly Uint32Array[] = [];

  constructor(length: number) {
    this.#digitBits = length < 4096 ? 8 : 11;
    this.#counts = new Uint32Array(2 ** this.#digitBits);
    this.#order = new Uint32Array(length);
    this.#next = new Uint32Array(length);
  }

  load(words: readonly Uint32Array[]): void {
    this.#words = words;
    for (let index = 0; index < this.#order.length; index++) this.#order[index] = index;
  }

  order(): Uint32Array {
    for (const words of this.#words)
      for (let shift = 0; shift < 32; shift += this.#digitBits) this.#sortByDigit(words, shift);
    return this.#order;
  }

  /** A stable counting sort by one digit. A digit that all keys share moves none. */
  #sortByDigit(words: Uint32Array, shift: number): void {
    const [counts, order, next] = [this.#counts, this.#order, this.#next];
    const [length, mask] = [order.length, counts.length - 1];
    counts.fill(0);
    for (let index = 0; index < length; index++) {
      const digit = ((words[index] ?? 0) >>> shift) & mask;
      counts[digit] = (counts[digit] ?? 0) + 1;
    }
    if (counts[((words[0] ?? 0) >>> shift) & mask] === length) return;
    let start = 0;
    for (let digit = 0; digit <= mask; digit++) {
      const count = counts[digit] ?? 0;
      counts[digit] = start;
      start += count;
    }
    for (let place = 0; place < length; place++) {
      const index = order[place] ?? 0;
      const digit = ((words[index] ?? 0) >>> shift) & mask;
      const target = counts[digit] ?? 0;
      counts[digit] = target + 1;
      next[target] = index;
    }
    this.#order = next;
    this.#next = order;
  }
}
