/** Sizes of generated models: any from 1 to 300, as long as the whole stays small. */

import type { Choices } from "../random-programs/choices.js";

/** A value's axes without the batch. */
export type Sizes = readonly number[];

export const maxSize = 300;
/** The maximal elements of a value for each sample. */
export const maxElements = 900;

/** Any size from 1 to `max`; half of them are small. */
export function randomSize(choices: Choices, max = maxSize): number {
  const limit = Math.max(1, Math.floor(Math.min(max, maxSize)));
  return 1 + choices.below(Math.min(limit, choices.of([8, 32, 100, maxSize])));
}

export function elementsOf(sizes: Sizes): number {
  return sizes.reduce((count, size) => count * size, 1);
}

export function divisorsOf(size: number): readonly number[] {
  return Array.from({ length: size }, (_, index) => index + 1).filter((divisor) => size % divisor === 0);
}

/** A divisor of a size, at most `max`; the smallest comes first. */
export function randomDivisor(choices: Choices, size: number, max = size): number {
  return choices.of(divisorsOf(size).filter((divisor) => divisor <= max));
}
