/** Rejects settings that are not numbers or outside their range, by name. */

import { HoldfastError } from "../errors/index.js";

export interface NumberRange {
  readonly from?: number;
  readonly above?: number;
  readonly below?: number;
  readonly upTo?: number;
}

export function requireNumber(owner: string, name: string, value: number, range: NumberRange): void {
  const { from = -Infinity, above = -Infinity, below = Infinity, upTo = Infinity } = range;
  const fits = Number.isFinite(value) && value >= from && value > above && value < below && value <= upTo;
  if (fits) return;
  const words = { from: "at least", above: "above", below: "below", upTo: "at most" } as const;
  const bounds = Object.entries(range).map(
    ([bound, limit]) => `${words[bound as keyof NumberRange]} ${limit}`,
  );
  throw new HoldfastError(
    "BAD_ARGUMENT",
    `${owner}: ${name} is ${value}; it must be a number${bounds.length > 0 ? ` ${bounds.join(" and ")}` : ""}.`,
    { numbers: { [name]: value } },
  );
}

/** A number of steps: whole, and at least `from`. */
export function requireCount(owner: string, name: string, value: number, from = 1): void {
  if (Number.isSafeInteger(value) && value >= from) return;
  throw new HoldfastError(
    "BAD_ARGUMENT",
    `${owner}: ${name} is ${value}; it must be a whole number of at least ${from}.`,
    { numbers: { [name]: value } },
  );
}
