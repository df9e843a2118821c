/** The TLSF allocator against a plain model: a list of allocated ranges. */

import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { TlsfAllocator } from "./tlsf-allocator.js";

const size = 4096;

test("allocated blocks never overlap, none is lost, and free neighbours always merge", () => {
  const action = fc.record({ give: fc.boolean(), pick: fc.nat(), units: fc.integer({ min: 1, max: 900 }) });
  fc.assert(
    fc.property(fc.array(action, { maxLength: 120 }), (actions) => {
      const space = new TlsfAllocator(size);
      const allocated: { slot: number; offset: number; units: number }[] = [];
      for (const { give, pick, units } of actions) {
        if (give && allocated.length > 0) {
          const [block] = allocated.splice(pick % allocated.length, 1);
          space.free(block!.slot);
        } else {
          const slot = space.allocate(units);
          const gaps = gapsBetween(allocated);
          if (slot < 0) {
            assert.ok(Math.max(...gaps) < units, `rejected ${units} with gaps ${gaps}`);
            continue;
          }
          const offset = space.slotOffset(slot);
          assert.equal(space.slotSize(slot), units);
          for (const other of allocated) {
            assert.ok(offset + units <= other.offset || other.offset + other.units <= offset);
          }
          allocated.push({ slot, offset, units });
        }
        const top = Math.max(0, ...allocated.map((block) => block.offset + block.units));
        assert.equal(space.top, top);
        assert.equal(space.largestFree, Math.max(...gapsBetween(allocated)));
      }
    }),
    { numRuns: 2000 },
  );
});

test("after everything is freed the whole range is one block again", () => {
  const space = new TlsfAllocator(size);
  const slots = Array.from({ length: 50 }, (_, index) => space.allocate(1 + (index % 7)));
  for (const slot of slots.filter((_, index) => index % 2 === 0)) space.free(slot);
  for (const slot of slots.filter((_, index) => index % 2 === 1)) space.free(slot);
  assert.equal(space.largestFree, size);
  assert.equal(space.top, 0);
});

test("the same requests after a full release get the same offsets", () => {
  const space = new TlsfAllocator(size);
  const run = (): number[] => {
    const slots = Array.from({ length: 60 }, (_, index) => space.allocate(1 + ((index * 13) % 40)));
    const offsets = slots.map((slot) => space.slotOffset(slot));
    for (const slot of slots) space.free(slot);
    return offsets;
  };
  assert.deepEqual(run(), run());
});

function gapsBetween(allocated: readonly { offset: number; units: number }[]): number[] {
  const sorted = [...allocated].sort((a, b) => a.offset - b.offset);
  const gaps: number[] = [];
  let end = 0;
  for (const block of sorted) {
    gaps.push(block.offset - end);
    end = block.offset + block.units;
  }
  return [...gaps, size - end];
}
