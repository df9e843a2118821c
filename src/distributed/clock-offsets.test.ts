/** Clocks that are apart, with messages that take uneven times. */

import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { clockOffsets } from "./clock-offsets.js";

/** Runs the function for one rank after the other, on a made-up world: what the others pass is known once they have run. */
function offsetsOf(clocks: readonly number[], delays: readonly number[]): readonly (readonly number[])[] {
  let next = 0;
  const delay = (): number => delays[next++ % delays.length] ?? 0;
  const rounds = 10;
  // The true times at which each rank begins and ends each round.
  const begun: number[][] = [];
  const ended: number[][] = [];
  for (let round = 0; round < rounds; round++) {
    begun.push(clocks.map((_, rank) => (ended[round - 1]?.[rank] ?? 1000) + delay()));
    const all = Math.max(...(begun[round] ?? []));
    ended.push(clocks.map(() => all + delay()));
  }
  const reading = (rank: number, round: number): [number, number] => [
    (begun[round]?.[rank] ?? 0) + (clocks[rank] ?? 0),
    (ended[round]?.[rank] ?? 0) + (clocks[rank] ?? 0),
  ];
  return clocks.map((_, rank) => {
    let [round, reads] = [0, 0];
    const exchange = <T>(_name: string, _value: T): readonly T[] => {
      const values = clocks.map((_, other) => (round === 0 ? null : reading(other, round - 1)));
      round++;
      return values as unknown as readonly T[];
    };
    const now = (): number => reading(rank, Math.floor(reads / 2))[reads++ % 2] ?? 0;
    return clockOffsets({ exchange }, now);
  });
}

test("all ranks find the differences of their clocks, up to the time of a message", () => {
  fc.assert(
    fc.property(
      fc.array(fc.integer({ min: -100_000, max: 100_000 }), { minLength: 2, maxLength: 5 }),
      fc.array(fc.integer({ min: 0, max: 20 }), { minLength: 40, maxLength: 60 }),
      (clocks, delays) => {
        const [found = [], ...others] = offsetsOf(clocks, delays);
        for (const other of others) assert.deepEqual(other, found);
        for (const [rank, ms] of found.entries()) {
          const error = Math.abs(ms - ((clocks[rank] ?? 0) - (clocks[0] ?? 0)));
          assert.ok(error <= 60, `rank ${rank}: ${ms} of ${clocks.join()}`);
        }
      },
    ),
  );
});

test("ranks with one clock find no difference, whatever messages take", () => {
  fc.assert(
    fc.property(fc.array(fc.integer({ min: 0, max: 1000 }), { minLength: 1, maxLength: 30 }), (delays) => {
      for (const found of offsetsOf([5, 5, 5], delays)) assert.deepEqual(found, [0, 0, 0]);
    }),
  );
});
