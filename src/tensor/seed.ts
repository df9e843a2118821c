/**
 * The seed: one 64-bit number that drives initialisation, shuffling and dropout. Every draw on the host has a number of
 * its own, so that what is drawn follows from the seed and the order of drawing alone.
 */

import { HoldfastError } from "../errors/index.js";
import type { Seed } from "../kernels/index.js";

let seed = 0n;
let draws = 0;
const listeners = new Set<(seed: bigint) => void>();

/**
 * Sets the seed of everything random from here on: weights, shuffles and dropout on every open device.
 *
 * @example
 * ```ts
 * import { device, manualSeed, randn } from "holdfast";
 * const cpu = await device("cpu");
 * manualSeed(42);
 * const first = randn([3]).tolist();
 * manualSeed(42);
 * console.log(String(first) === String(randn([3]).tolist())); // → true
 * cpu.close();
 * ```
 */
export function manualSeed(value: Seed): void {
  const isWhole =
    typeof value === "bigint" ? value >= 0n && value < 2n ** 64n : Number.isSafeInteger(value) && value >= 0;
  if (!isWhole) {
    throw new HoldfastError("BAD_ARGUMENT", `The seed ${value} is not a whole number from 0 to 2⁶⁴ − 1.`);
  }
  seed = BigInt(value);
  draws = 0;
  for (const listener of listeners) listener(seed);
}

export function currentSeed(): bigint {
  return seed;
}

let rejection: (() => never) | undefined;

/** Runs a function that may not draw on the host: what it drew would be the same each time. */
export function rejectingDraws<T>(reject: () => never, body: () => T): T {
  rejection = reject;
  try {
    return body();
  } finally {
    rejection = undefined;
  }
}

/** The seed, and a number that no draw before had. */
export function nextDraw(): { readonly seed: bigint; readonly id: number } {
  rejection?.();
  draws += 1;
  return { seed, id: draws };
}

/** Where the draws on the host stand. Those on a device stand in its own `randomState`. */
export interface DrawPosition {
  readonly seed: bigint;
  /** How many draws there were. */
  readonly draws: number;
}

/** Where the draws on the host stand, for a checkpoint. */
export function drawPosition(): DrawPosition {
  return { seed, draws };
}

/** Goes on drawing from a position. Every open device is seeded anew: write its own `randomState` after this. */
export function restoreDrawPosition(position: DrawPosition): void {
  if (!Number.isSafeInteger(position.draws) || position.draws < 0) {
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `The number of draws is ${position.draws}; it must be a whole number, 0 or more.`,
    );
  }
  manualSeed(position.seed);
  draws = position.draws;
}

/** Hears of every new seed until the returned function is called. */
export function onNewSeed(listener: (seed: bigint) => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}
