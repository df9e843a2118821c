/** The basic kernels against float64: odd lengths, offset views, several blocks, any number of threads. */

import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { sameBytes } from "../../../test/support/same-bytes.js";
import { basicKernels, blockCount, elementsPerBlock } from "./basic-kernels.js";
import { compileKernel } from "./kernel.js";

const memory = new WebAssembly.Memory({ initial: 4, maximum: 65_536, shared: true });
const floats = new Float32Array(memory.buffer);

const loaded = Object.fromEntries(
  Object.values(basicKernels).map((source) => [source.name, compileKernel(source, memory).run]),
);

function run(name: keyof typeof basicKernels, first: number, end: number, ...args: number[]): void {
  loaded[name]!(first, end, ...args);
}

/** Sizes around the ends of vectors and blocks. */
const sizes = fc.oneof(
  fc.integer({ min: 0, max: 9 }),
  fc.integer({ min: elementsPerBlock - 5, max: elementsPerBlock + 5 }),
  fc.integer({ min: 2 * elementsPerBlock - 5, max: 3 * elementsPerBlock + 5 }),
);

/** Three disjoint arrays at odd offsets, in elements. */
const places = fc
  .tuple(fc.nat(7), fc.nat(7), fc.nat(7))
  .map(([a, b, c]) => [64 + a, 20_064 + b, 40_064 + c] as const);

const guard = 12345;

/** Fills the memory with the guard value, writes two arrays, runs, and returns the memory. */
function withData(
  a: number,
  b: number,
  n: number,
  seed: number,
  act: () => void,
): { a: Float32Array; b: Float32Array } {
  floats.fill(guard);
  const value = (i: number) => Math.fround(Math.sin(i * 1.7 + seed) * 100);
  for (let i = 0; i < n; i++) {
    floats[a + i] = value(i);
    floats[b + i] = value(i + n);
  }
  const before = { a: floats.slice(a, a + n), b: floats.slice(b, b + n) };
  act();
  return before;
}

function assertOnlyWrote(
  start: number,
  expected: ArrayLike<number>,
  untouched: readonly (readonly [number, number])[],
): void {
  sameBytes(floats.slice(start, start + expected.length), Float32Array.from(expected), "what was written");
  const isAccessed = (i: number) =>
    (i >= start && i < start + expected.length) ||
    untouched.some(([from, length]) => i >= from && i < from + length);
  const stray = floats.findIndex((value, i) => !isAccessed(i) && value !== guard);
  assert.equal(stray, -1, `element ${stray} was overwritten`);
}

const settings = { numRuns: 40 };

test("a launch needs one block per 4096 elements, rounded up", () => {
  assert.deepEqual([0, 1, 4096, 4097].map(blockCount), [0, 1, 1, 2]);
});

test("fill writes its value to every element and to nothing else", () => {
  fc.assert(
    fc.property(places, sizes, fc.float({ noNaN: true }), ([out], n, value) => {
      withData(out, out, 0, 0, () => run("fill", 0, blockCount(n), out * 4, value, n));
      assertOnlyWrote(out, new Float32Array(n).fill(value), []);
    }),
    settings,
  );
});

test("copy copies every element and nothing else", () => {
  fc.assert(
    fc.property(places, sizes, fc.nat(99), ([a, b, out], n, seed) => {
      const data = withData(a, b, n, seed, () => run("copy", 0, blockCount(n), a * 4, out * 4, n));
      assertOnlyWrote(out, data.a, [
        [a, n],
        [b, n],
      ]);
    }),
    settings,
  );
});

test("add gives the rounded float64 sum of every pair, also in place", () => {
  fc.assert(
    fc.property(places, sizes, fc.nat(99), fc.boolean(), ([a, b, c], n, seed, isInPlace) => {
      const out = isInPlace ? a : c;
      const data = withData(a, b, n, seed, () => run("add", 0, blockCount(n), a * 4, b * 4, out * 4, n));
      const expected = data.a.map((value, i) => value + data.b[i]!);
      assertOnlyWrote(out, expected, [
        [a, n],
        [b, n],
      ]);
    }),
    settings,
  );
});

test("scale multiplies by the factor in memory, also in place", () => {
  fc.assert(
    fc.property(places, sizes, fc.nat(99), fc.boolean(), ([a, factor, c], n, seed, isInPlace) => {
      const out = isInPlace ? a : c;
      const data = withData(a, factor, n, seed, () => {
        floats[factor] = 2.5;
        run("scale", 0, blockCount(n), a * 4, out * 4, factor * 4, n);
      });
      const expected = data.a.map((value) => value * 2.5);
      assertOnlyWrote(out, expected, [
        [a, n],
        [factor, Math.max(n, 1)],
      ]);
    }),
    settings,
  );
});

test("sum writes one partial per block, close to the float64 sum", () => {
  fc.assert(
    fc.property(places, sizes, fc.nat(99), ([a, b, out], n, seed) => {
      const data = withData(a, b, n, seed, () => run("sum", 0, blockCount(n), a * 4, out * 4, n));
      const partials = floats.slice(out, out + blockCount(n));
      for (const [block, partial] of partials.entries()) {
        const elements = data.a.slice(block * elementsPerBlock, (block + 1) * elementsPerBlock);
        const exact = elements.reduce((total, value) => total + value, 0);
        const magnitude = elements.reduce((total, value) => total + Math.abs(value), 0);
        // n/4 additions per lane, each with an error of at most half an ulp.
        const bound = magnitude * (elements.length / 4 + 6) * 2 ** -24;
        assert.ok(Math.abs(partial - exact) <= bound, `block ${block}: ${partial} for ${exact}`);
      }
      assertOnlyWrote(out, partials, [
        [a, n],
        [b, n],
      ]);
    }),
    settings,
  );
});

test("blocks run one by one in reverse order give the same bits as one call", () => {
  const n = 3 * elementsPerBlock + 7;
  withData(64, 20_064, n, 3, () => {
    run("sum", 0, 4, 64 * 4, 40_064 * 4, n);
    for (const block of [3, 2, 1, 0]) run("sum", block, block + 1, 64 * 4, 40_100 * 4, n);
  });
  const bits = new Uint32Array(memory.buffer);
  assert.deepEqual(bits.slice(40_064, 40_068), bits.slice(40_100, 40_104));
});

test("blocks far past the end write nothing, even with large indices", () => {
  withData(64, 64, 0, 0, () => {
    run("fill", 1, 2 ** 20 + 1, 64 * 4, 1, 5);
    run("fill", 2 ** 20, 2 ** 20 + 1, 64 * 4, 1, 5);
    run("fill", 2 ** 31 - 2, 2 ** 31 - 1, 64 * 4, 1, 5);
  });
  assertOnlyWrote(64, [], []);
});
