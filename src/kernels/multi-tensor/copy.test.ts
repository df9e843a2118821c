/** Multi-tensor copy: every byte is copied, no other byte changes, and there are few launches. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { cudaMissing, openCudaKernelRuntime, put } from "../../../test/support/kernel-runtime.js";
import { sameBytes } from "../../../test/support/same-bytes.js";
import { backendOf } from "../backend.js";
import { submit } from "../submit.js";
import { isInWords } from "./copy.js";

const skip = cudaMissing;
const runtime = skip ? undefined! : openCudaKernelRuntime();

interface RandomCopy {
  readonly words: number;
  /** Words before the source's first, and the target's: 4 of them are 16 bytes. */
  readonly from: number;
  readonly to: number;
}

/** Runs all copies, and returns the number of launches. */
function prove(copies: readonly RandomCopy[]): number {
  return runtime.step(() => {
    const placed = copies.map(({ words, from, to }, index) => {
      const source = Uint32Array.from({ length: from + words + 3 }, (_, word) => 7919 * (index + 1) + word);
      const target = new Uint32Array(to + words + 3).fill(0xdead_0000 + index);
      const [sourceMemory, targetMemory] = [put(runtime, source, "source"), put(runtime, target, "target")];
      const expected = target.slice();
      expected.set(source.subarray(from, from + words), to);
      return {
        whole: targetMemory,
        expected,
        copy: {
          source: runtime.view(sourceMemory, 4 * from, 4 * words),
          target: runtime.view(targetMemory, 4 * to, 4 * words),
        },
      };
    });
    const work = backendOf(runtime).lowerCopies(placed.map(({ copy }) => copy));
    submit(runtime, work);
    for (const [index, { whole, expected }] of placed.entries())
      sameBytes(runtime.read(whole), expected, `copy ${index} of ${copies.length}`);
    assert.ok(work.every(({ kind }) => kind === "launch"));
    return work.length;
  });
}

describe("multi-tensor copy on CUDA", { skip }, () => {
  test("copies any number of ranges of any size and address, and writes nothing else", () => {
    const words = fc.oneof(
      { arbitrary: fc.integer({ min: 1, max: 24 }), weight: 8 },
      { arbitrary: fc.constantFrom(1020, 4095, 4096, 4097, 8192, 8195), weight: 1 },
    );
    const copy = fc.record({ words, from: fc.nat(5), to: fc.nat(5) });
    fc.assert(
      fc.property(fc.array(copy, { minLength: 1, maxLength: 130, size: "max" }), (copies) => {
        assert.equal(prove(copies), Math.ceil(copies.length / 64));
      }),
      { numRuns: 12 },
    );
  });

  for (const count of [1, 16, 17, 64, 65, 128, 130]) {
    test(`${count} copies are ${Math.ceil(count / 64)} launches`, () => {
      const copies = Array.from({ length: count }, (_, index) => ({
        words: 1 + (index % 9),
        from: index % 4,
        to: 0,
      }));
      assert.equal(prove(copies), Math.ceil(count / 64));
    });
  }

  test("no copies are no launch", () => {
    assert.deepEqual(backendOf(runtime).lowerCopies([]), []);
  });

  test("needs sizes and addresses in whole words", () => {
    runtime.step(() => {
      const memory = runtime.arena.allocate(64, "memory");
      const at = (offset: number, size: number) => runtime.view(memory, offset, size);
      assert.equal(isInWords({ source: at(0, 8), target: at(12, 8) }), true);
      assert.equal(isInWords({ source: at(2, 8), target: at(12, 8) }), false);
      assert.equal(isInWords({ source: at(0, 8), target: at(13, 8) }), false);
      assert.equal(isInWords({ source: at(0, 6), target: at(12, 6) }), false);
    });
  });
});
