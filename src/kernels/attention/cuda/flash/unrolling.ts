/**
 * How far the loops of the flash attention kernels are unrolled. For an unrolled loop over a visited tile, the compiler may keep an
 * address of each copy from one tile to the next, and the fragments of many products. If it has too few registers for them, it spills.
 */

import type { FlashConfig } from "./config.js";
import { flashElements, isScalar } from "./fragments.js";

/** C++: the pragma before the loop over a thread's vectors of a tile, and before the loop over the K of two tiles. */
export interface Unrolling {
  readonly copies: string;
  readonly products: string;
}

/** What a lane keeps from one visited tile to the next. */
interface KeptRegisters {
  readonly accumulators: number;
  /** The results that the accumulators are of. */
  readonly results: number;
}

const whole: Unrolling = { copies: "#pragma unroll", products: "#pragma unroll" };
/** FMA leaves few registers. For a whole depth its products would not fit the instruction cache, and would take minutes to compile. */
const scalar: Unrolling = {
  copies: "#pragma unroll (threads % vectors == 0 ? tileRows : 4)",
  products: "#pragma unroll 2",
};
const four = "#pragma unroll 4";

/** TF32: the largest number of copies whose addresses fit (registers and spills under nvcc 13.0, for sm_80 and sm_121). */
const maxCopies = { forward: 10, backward: 12 } as const;
/** TF32: with more accumulators of two results the addresses of few copies do not fit. With dropout, neither do the fragments. */
const maxAccumulatorsOfTwo = { whole: 160, withDropout: 127 } as const;

export function unrollingOf(
  { element, tile, depth, valueDepth, dropout }: FlashConfig,
  pass: keyof typeof maxCopies,
  { accumulators, results }: KeptRegisters,
): Unrolling {
  if (isScalar(element)) return scalar;
  if (element !== "tf32") return whole;
  const threads = 32 * tile.warps;
  const vectorsOf = (width: number): number => (width * flashElements[element].bytes) / 16;
  const isWholeShare = [depth, valueDepth].every((width) => threads % vectorsOf(width) === 0);
  const isFull = (max: number): boolean => results > 1 && accumulators > max;
  const max = isWholeShare ? maxAccumulatorsOfTwo.whole : maxAccumulatorsOfTwo.withDropout;
  const boundsProducts = dropout !== "none" && isFull(max);
  // If a thread's vectors are all in one column, their addresses differ by constants: nothing is kept.
  const copies = isWholeShare ? 0 : (tile.tileN * vectorsOf(Math.max(depth, valueDepth))) / threads;
  const boundsCopies =
    copies > maxCopies[pass] || (copies > 0 && (isFull(maxAccumulatorsOfTwo.whole) || boundsProducts));
  return {
    copies: boundsCopies ? four : whole.copies,
    products: boundsProducts ? four : whole.products,
  };
}
