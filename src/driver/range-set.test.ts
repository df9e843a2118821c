/** Merged ranges against a plain set of numbers. */

import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { span } from "../units/index.js";
import { RangeSet } from "./range-set.js";

const size = 24;

test("a range set equals a set of its addresses, for any order of insertion", () => {
  const ranges = fc.array(fc.tuple(fc.nat(size - 1), fc.integer({ min: 1, max: 5 })));
  fc.assert(
    fc.property(ranges, (added) => {
      const set = new RangeSet();
      const model = new Array<boolean>(size + 5).fill(false);
      for (const [start, length] of added) {
        const range = span(start, length);
        const isFree = !model.slice(start, start + length).includes(true);
        assert.equal(set.firstOverlap(range) === undefined, isFree);
        if (!isFree) continue;
        set.add(range);
        model.fill(true, start, start + length);
      }
      assert.equal(set.totalBytes, model.filter(Boolean).length);
      for (let start = 0; start < size; start++) {
        for (let length = 1; length <= 5; length++) {
          assert.equal(set.covers(span(start, length)), !model.slice(start, start + length).includes(false));
        }
      }
    }),
  );
});
