/** Rejects invalid sizes and probabilities when a layer is created. */

import { HoldfastError } from "../../errors/index.js";

/** Every size must be a whole number, 1 or more. */
export function requireSizes(layer: string, sizes: Readonly<Record<string, number>>): void {
  for (const [name, size] of Object.entries(sizes)) {
    if (Number.isSafeInteger(size) && size >= 1) continue;
    throw new HoldfastError("BAD_ARGUMENT", `${layer}: ${name} is ${size}; pass a whole number, 1 or more.`, {
      numbers: { [name]: size },
    });
  }
}

export function requireProbability(layer: string, p: number): void {
  if (p >= 0 && p <= 1) return;
  throw new HoldfastError("BAD_ARGUMENT", `${layer}: p is ${p}; pass a probability from 0 to 1.`, {
    numbers: { p },
  });
}

/** Rejects uneven splits, such as heads of a width or groups of channels. `unit`: the name of the divisor's units, in plural. */
export function requireDivides(
  layer: string,
  size: number,
  name: string,
  divisor: number,
  unit: string,
): void {
  if (size % divisor === 0) return;
  throw new HoldfastError(
    "BAD_ARGUMENT",
    `${layer}: ${name} is ${size}, which is not divisible by ${divisor} ${unit}. Choose a multiple of ${divisor}.`,
    { numbers: { size, divisor } },
  );
}
