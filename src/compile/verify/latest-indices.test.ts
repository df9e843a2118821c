/** The tree of latest positions against a simple model: one row of positions for each byte. */

import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { boundsOf, indexOf, LatestIndices } from "./latest-indices.js";
import { none } from "./streams.js";

const streams = 3;

const range = fc
  .tuple(fc.integer({ min: 0, max: 40 }), fc.integer({ min: 1, max: 40 }))
  .map(([start, size]) => ({ start, end: start + size }));

const visit = fc.record({
  range,
  queried: range,
  stream: fc.nat({ max: streams - 1 }),
  position: fc.nat({ max: 99 }),
});

test("it returns the latest position on each stream for any bytes, after any updates in any order", () => {
  fc.assert(
    fc.property(fc.array(visit, { maxLength: 40 }), (visits) => {
      const ranges = visits.flatMap(({ range: noted, queried }) => [noted, queried]);
      const positions = new LatestIndices(
        boundsOf(ranges.flatMap(({ start, end }) => [start, end])),
        streams,
      );
      const model = Array.from({ length: 80 }, () => new Array<number>(streams).fill(none));
      for (const { range: noted, queried, stream, position } of visits) {
        positions.note(noted.start, noted.end, stream, position);
        for (const byte of model.slice(noted.start, noted.end))
          byte[stream] = Math.max(byte[stream]!, position);
        const seen = model.slice(queried.start, queried.end);
        const expected = [0, 1, 2].map((index) => Math.max(...seen.map((byte) => byte[index]!)));
        assert.deepEqual([...positions.latest(queried.start, queried.end)], expected);
      }
    }),
    { numRuns: 500 },
  );
});

test("bounds are unique and ascending, and indexOf finds each", () => {
  const bounds = boundsOf([2 ** 47 + 256, 512, 0, 512, 2 ** 47]);
  assert.deepEqual([...bounds], [0, 512, 2 ** 47, 2 ** 47 + 256]);
  assert.deepEqual(
    [...bounds].map((position) => indexOf(bounds, position)),
    [0, 1, 2, 3],
  );
});
