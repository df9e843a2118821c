/** Random lifetimes for the planner's tests, and the check that no two overlapping ones share bytes. */

import fc from "fast-check";
import type { Plan } from "../../src/compile/program/program.js";
import type { Lifetime } from "../../src/compile/schedule/liveness.js";
import { randomFrom } from "./op-cases/arbitraries.js";

/**
 * Lifetimes at few positions and of few sizes, so that they overlap, nest, equal each other and are empty. Some begin or end between two
 * positions, as those of calls on side streams do.
 */
export const someLifetimes: fc.Arbitrary<readonly Lifetime[]> = fc
  .array(
    fc.record({
      first: fc.nat(48).map(halved),
      length: fc.oneof(fc.nat(6), fc.nat(48)).map(halved),
      bytes: fc.oneof(fc.constantFrom(0, 1, 256, 257, 4096), fc.nat(10_000)),
    }),
    { maxLength: 40 },
  )
  .map((entries) =>
    entries.map(({ first, length, bytes }, id) => lifetime(id, first, first + length, bytes)),
  );

function halved(count: number): number {
  return count / 2;
}

export function lifetime(id: number, first: number, last: number, bytes: number): Lifetime {
  return { buffer: { id, bytes, label: `buffer ${id}` }, first, last };
}

/** `count` lifetimes of random sizes; half of them end within `typicalLength` positions. */
export function randomLifetimes(count: number, typicalLength: number, seed: number): Lifetime[] {
  const random = randomFrom(seed);
  return Array.from({ length: count }, (_, id) => {
    const first = Math.floor(count * random());
    const length = Math.floor(-typicalLength * Math.log2(1 - random()));
    return lifetime(id, first, first + length, Math.ceil(1e7 ** random()));
  });
}

/** Two buffers that are live together and share bytes, as a sentence, or an invalid offset. */
export function findClash(lifetimes: readonly Lifetime[], { bytes, offsets }: Plan): string | undefined {
  for (const [index, lifetime] of lifetimes.entries()) {
    const start = offsets.get(lifetime.buffer);
    if (start === undefined) return `${lifetime.buffer.label} has no offset`;
    if (start % 256 !== 0) return `${lifetime.buffer.label} is at ${start}, which is not aligned`;
    if (start < 0 || start + lifetime.buffer.bytes > bytes)
      return `${lifetime.buffer.label} is outside the plan`;
    for (const other of lifetimes.slice(index + 1)) {
      const otherStart = offsets.get(other.buffer) ?? 0;
      const overlap = lifetime.first <= other.last && other.first <= lifetime.last;
      const share = start < otherStart + other.buffer.bytes && otherStart < start + lifetime.buffer.bytes;
      const bothHaveBytes = lifetime.buffer.bytes > 0 && other.buffer.bytes > 0;
      if (overlap && share && bothHaveBytes)
        return `${lifetime.buffer.label} and ${other.buffer.label} share bytes`;
    }
  }
  return undefined;
}
