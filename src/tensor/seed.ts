/**
 * The seed: one 64-bit number that determines initialisation, shuffling and dropout. Draws on the host are numbered, so drawn
 * values depend only on the seed and the order of the draws.
 */

import { HoldfastError } from "../errors/index.js";
import type { Seed } from "../kernels/index.js";

let seed = 0n;
let draws = 0;
const listeners = new Set<(seed: bigint) => void>();

/**
 * Sets the seed of all random numbers: weights, shuffles, and dropout on every open device.
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

/** Runs a function that must not draw on the host: a replay would repeat the same numbers. */
export function rejectingDraws<T>(reject: () => never, body: () => T): T {
  rejection = reject;
  try {
    return body();
  } finally {
    rejection = undefined;
  }
}

/** The seed and the number of a draw, which determine the drawn values. */
export interface Draw {
  readonly seed: bigint;
  readonly id: number;
}

/** The seed and the number of a new draw. */
export function nextDraw(): Draw {
  rejection?.();
  draws += 1;
  return { seed, id: draws };
}

/** The position of the draws on the host. A device has its position in `randomState`. */
export interface DrawPosition {
  readonly seed: bigint;
  /** Number of draws so far. */
  readonly draws: number;
}

/** The position of the draws on the host, for a checkpoint. */
export function drawPosition(): DrawPosition {
  return { seed, draws };
}

/** Runs a function with draws on the host from an earlier position. Devices keep their random states. */
export function withDrawPosition<T>(position: DrawPosition, body: () => T): T {
  const latest = drawPosition();
  ({ seed, draws } = position);
  try {
    return body();
  } finally {
    ({ seed, draws } = latest);
  }
}

/** Restores a position. This reseeds every open device, so write its `randomState` afterwards. */
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

/** Calls the listener with every new seed, until the returned function is called. */
export function onNewSeed(listener: (seed: bigint) => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}
