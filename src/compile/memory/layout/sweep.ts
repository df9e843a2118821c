/**
 * A best-fit sweep from the peak: boxes that are live there are stacked without gaps; then one sweep goes forwards and one backwards and
 * reuses the memory of dead boxes. The two sides share only boxes across the peak. It takes O(n log n), and is tight at the peak.
 */

import { beat } from "../../../units/index.js";
import { type Box, type Boxes, isLiveAt, type Layout, largestFirst, lengthOf } from "./boxes.js";

export function sweepFromPeak({ boxes, peak }: Boxes): Layout {
  const offsets = new Float64Array(boxes.length);
  // The longest live range gets the lowest offset: saved tensors die in the reverse order of their birth and free the stack from its top.
  const ranks = largestFirst(boxes, lengthOf, ({ size }) => size);
  const stacked = ranks.filter((rank) => isLiveAt(boxes[rank] as Box, peak.position));
  let stackBytes = 0;
  for (const rank of stacked) {
    offsets[rank] = stackBytes;
    stackBytes += boxes[rank]?.size ?? 0;
  }
  const after = sweep(boxes, peak.position, stackBytes, offsets);
  const mirrored = boxes.map(({ first, last, size }) => ({ first: -last, last: -first, size }));
  const before = sweep(mirrored, -peak.position, stackBytes, offsets);
  return {
    offsets,
    bytes: Math.max(after.bytes, before.bytes),
    steps: boxes.length + after.steps + before.steps,
  };
}

/** Places the boxes that are born after the peak, in the order of birth, each into the smallest gap that holds it. */
function sweep(
  boxes: readonly Box[],
  peak: number,
  stackBytes: number,
  offsets: Float64Array,
): { readonly bytes: number; readonly steps: number } {
  const ranked = boxes.map((box, rank) => ({ ...box, rank }));
  const born = ranked.filter(({ first }) => first > peak);
  born.sort((a, b) => a.first - b.first || b.size - a.size || a.rank - b.rank);
  const dying = ranked.filter(({ last }) => last >= peak).sort((a, b) => a.last - b.last || a.rank - b.rank);
  const gaps = new Gaps(stackBytes);
  let bytes = stackBytes;
  let dead = 0;
  for (const { first, size, rank } of born) {
    beat();
    for (let next = dying[dead]; next !== undefined && next.last < first; next = dying[++dead]) {
      gaps.free(offsets[next.rank] ?? 0, next.size);
    }
    const offset = gaps.take(size);
    offsets[rank] = offset;
    bytes = Math.max(bytes, offset + size);
  }
  return { bytes, steps: gaps.steps + born.length + dying.length };
}

interface Gap {
  readonly start: number;
  readonly end: number;
}

/** The free ranges above and between live boxes; the highest has no end. */
class Gaps {
  steps = 0;
  /** Smallest first; equal sizes by offset. */
  readonly #bySize: Gap[] = [];
  readonly #byStart = new Map<number, Gap>();
  readonly #byEnd = new Map<number, Gap>();

  constructor(start: number) {
    this.#insert({ start, end: Number.POSITIVE_INFINITY });
  }

  /** Takes `size` bytes from the smallest gap that has them; returns their offset. */
  take(size: number): number {
    const gap = this.#bySize[this.#rankOf(size, 0)] as Gap;
    this.#remove(gap);
    if (gap.end > gap.start + size) this.#insert({ start: gap.start + size, end: gap.end });
    return gap.start;
  }

  /** Frees a range and merges it with adjacent gaps. */
  free(offset: number, size: number): void {
    const below = this.#byEnd.get(offset);
    const above = this.#byStart.get(offset + size);
    if (below !== undefined) this.#remove(below);
    if (above !== undefined) this.#remove(above);
    this.#insert({ start: below?.start ?? offset, end: above?.end ?? offset + size });
  }

  #insert(gap: Gap): void {
    this.#bySize.splice(this.#rankOf(gap.end - gap.start, gap.start), 0, gap);
    this.#byStart.set(gap.start, gap);
    this.#byEnd.set(gap.end, gap);
  }

  #remove(gap: Gap): void {
    this.#bySize.splice(this.#rankOf(gap.end - gap.start, gap.start), 1);
    this.#byStart.delete(gap.start);
    this.#byEnd.delete(gap.end);
  }

  /** The index of the first gap that is larger, or as large and starts at `start` or above. */
  #rankOf(size: number, start: number): number {
    let low = 0;
    let high = this.#bySize.length;
    while (low < high) {
      this.steps++;
      const middle = (low + high) >>> 1;
      const gap = this.#bySize[middle] as Gap;
      const gapSize = gap.end - gap.start;
      if (gapSize < size || (gapSize === size && gap.start < start)) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}
