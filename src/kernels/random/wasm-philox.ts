/** Philox in WebAssembly, and the range of elements of a launch, for the random kernels. */

import type { Code, Local } from "../../driver/index.js";
import { keySteps, multipliers, rounds } from "./philox.js";

export const wordsPerCounter = 4;

export type FourLocals = readonly [Local, Local, Local, Local];

/** The values that all counters of a launch share. */
export interface PhiloxInput {
  /** Counter word 1. */
  readonly use: number;
  readonly key: readonly [Local, Local];
  /** Counter words 2 and 3. */
  readonly counter: readonly [Local, Local];
  /** As i64, of `printMultipliers`. */
  readonly multipliers: readonly [Local, Local];
}

/** The multipliers in locals, set once before a loop. */
export function printMultipliers(code: Code): readonly [Local, Local] {
  const widen = (value: number): Local => {
    const wide = code.local("i64");
    code.i32(value).op("i64.extend_i32_u").set(wide);
    return wide;
  };
  return [widen(multipliers[0]), widen(multipliers[1])];
}

/**
 * Computes the four words of a counter whose word 0 is `block` in the locals `x`, and returns these in order. The rounds are unrolled and
 * scalar: a vectorised version of four counters was measured slower, because of widening multiplications and transposition.
 */
export function printPhilox(
  code: Code,
  { use, key, counter, multipliers }: PhiloxInput,
  block: Local,
  x: FourLocals,
): FourLocals {
  let [x0, x1, x2, x3] = x;
  code.get(block).set(x0);
  code.i32(use).set(x1);
  code.get(counter[0]).set(x2);
  code.get(counter[1]).set(x3);
  for (let round = 0; round < rounds; round++) {
    const [growth0, growth1] = [Math.imul(round, keySteps[0]), Math.imul(round, keySteps[1])];
    printHalfRound(code, { multiplied: x2, by: multipliers[1], mixed: x1, key: key[0], growth: growth0 });
    printHalfRound(code, { multiplied: x0, by: multipliers[0], mixed: x3, key: key[1], growth: growth1 });
    // The new words 0 to 3 are in the locals of the old 1, 2, 3 and 0: rename instead of moving values.
    [x0, x1, x2, x3] = [x1, x2, x3, x0];
  }
  return [x0, x1, x2, x3];
}

interface HalfRound {
  readonly multiplied: Local;
  readonly by: Local;
  readonly mixed: Local;
  readonly key: Local;
  /** The key's increment over the previous rounds. */
  readonly growth: number;
}

/** `mixed` ^= the product's upper half ^ the round's key; `multiplied` = the product's lower half. */
function printHalfRound(code: Code, { multiplied, by, mixed, key, growth }: HalfRound): void {
  const product = code.local("i64");
  code.get(multiplied).op("i64.extend_i32_u").get(by).op("i64.mul").tee(product);
  code.i32(32).op("i64.extend_i32_u").op("i64.shr_u").op("i32.wrap_i64");
  // The key is combined first, while the multiplication is still in flight.
  code.get(mixed).get(key).i32(growth).op("i32.add").op("i32.xor").op("i32.xor").set(mixed);
  code.get(product).op("i32.wrap_i64").set(multiplied);
}

interface BlockRange {
  readonly firstBlock: Local;
  readonly endBlock: Local;
  readonly count: Local;
  /** A block has 2^blockShift elements. */
  readonly blockShift: number;
}

/** Sets the first element of a range of blocks and the element after its last one. */
export function printRange(
  code: Code,
  { firstBlock, endBlock, count, blockShift }: BlockRange,
  at: Local,
  end: Local,
): void {
  for (const [block, element] of [
    [firstBlock, at],
    [endBlock, end],
  ] as const) {
    // A block beyond the end begins at the end.
    code.get(block).i32(blockShift).op("i32.shl").get(count);
    code.get(block).get(count).i32(blockShift).op("i32.shr_u").op("i32.le_u").op("select").set(element);
  }
}
