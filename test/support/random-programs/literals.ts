/** Literals that kernels, keys and JSON are most likely to get wrong, and JSON that keeps them. */

import type { Choices } from "./choices.js";

/** ±Infinity, NaN, ±0, denormals of f32 and of f64, and integers that f32 or i32 can't represent. */
export const specialLiterals: readonly number[] = [
  ...[Infinity, -Infinity, Number.NaN, 0, -0],
  ...[2 ** -149, -(2 ** -130), 2 ** -126 - 2 ** -149, Number.MIN_VALUE, 2 ** -1030],
  ...[2 ** 24 + 1, -(2 ** 24 + 3), 2 ** 31, 2 ** 32 + 1, 2 ** 53 - 1, -(2 ** 53)],
];

/** One of the usual numbers, or sometimes a special one. */
export function randomLiteral(choices: Choices, usual: readonly number[]): number {
  return choices.isOneIn(5) ? choices.of(specialLiterals) : choices.of(usual);
}

export function isSpecialLiteral(value: unknown): boolean {
  return typeof value === "number" && specialLiterals.some((literal) => Object.is(literal, value));
}

/** Marks a number that JSON can't represent; no name of a value begins with it. */
const prefix = "#";

/** JSON that keeps NaN, the infinities and −0. */
export function toJson(value: unknown, space?: number): string {
  return JSON.stringify(
    value,
    (_, entry: unknown) => {
      if (typeof entry !== "number") return entry;
      return Number.isFinite(entry) && !Object.is(entry, -0)
        ? entry
        : `${prefix}${Object.is(entry, -0) ? "-0" : entry}`;
    },
    space,
  );
}

export function fromJson<T>(text: string): T {
  return JSON.parse(text, (_, entry: unknown) =>
    typeof entry === "string" && entry.startsWith(prefix) ? Number(entry.slice(prefix.length)) : entry,
  ) as T;
}

/** True if it contains a special number. */
export function hasSpecialLiteral(value: unknown): boolean {
  if (typeof value !== "object" || value === null) return isSpecialLiteral(value) && value !== 0;
  return Object.values(value).some(hasSpecialLiteral);
}

/** True if it contains a finite special number so large that others vanish next to it. */
export function hasHugeLiteral(value: unknown): boolean {
  if (typeof value !== "object" || value === null)
    return isSpecialLiteral(value) && Number.isFinite(value) && Math.abs(value as number) > 2 ** 24;
  return Object.values(value).some(hasHugeLiteral);
}
