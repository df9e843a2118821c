/** Rejects the sizes and probabilities that no layer can have, when it is made and not when it runs. */

import { HoldfastError } from "../../errors/index.js";

/** Every size has to be a whole number from 1 on. */
export function requireSizes(layer: string, sizes: Readonly<Record<string, number>>): void {
  for (const [name, size] of Object.entries(sizes)) {
    if (Number.isSafeInteger(size) && size >= 1) continue;
    throw new HoldfastError("BAD_ARGUMENT", `${layer}: ${name} is ${size}; give a whole number, 1 or more.`, {
      numbers: { [name]: size },
    });
  }
}

export function requireProbability(layer: string, p: number): void {
  if (p >= 0 && p <= 1) return;
  throw new HoldfastError("BAD_ARGUMENT", `${layer}: p is ${p}; give a probability from 0 to 1.`, {
    numbers: { p },
  });
}

/** Rejects parts that don't come out even: heads of a width, groups of channels. */
export function requireDivides(
  layer: string,
  whole: number,
  name: string,
  parts: number,
  part: string,
): void {
  if (whole % parts === 0) return;
  throw new HoldfastError(
    "BAD_ARGUMENT",
    `${layer}: ${name} is ${whole}, which ${parts} ${part} don't divide evenly. Choose a multiple of ${parts}.`,
    { numbers: { whole, parts } },
  );
}
