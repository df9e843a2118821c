/** Lanes are independent of each other, and a function gives the same bits called and inlined. */

import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { effort } from "../../../../../test/support/effort.js";
import { sameBytes } from "../../../../../test/support/same-bytes.js";
import { overArrays } from "../../../../../test/support/vector-math.js";
import { encodeModule } from "../../../../driver/index.js";
import { type VectorMathName, vectorMath, withNeeds } from "./table.js";

const names = Object.keys(vectorMath) as VectorMathName[];

/** Any float, with special values more often than by chance. */
const anyFloat = fc.oneof(
  fc.float(),
  fc.float({ min: -20, max: 20 }),
  fc.constantFrom(0, -0, 1, -1, 1e30, -1e30, Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY),
);
const fourFloats = fc.tuple(anyFloat, anyFloat, anyFloat, anyFloat);

test("a value's result is the same in every lane and with all neighbours", () => {
  for (const name of names) {
    const apply = overArrays(name);
    fc.assert(
      fc.property(anyFloat, anyFloat, fourFloats, fourFloats, (x, y, otherX, otherY) => {
        const expected = apply(new Float32Array(4).fill(x), new Float32Array(4).fill(y))[0]!;
        for (const lane of [0, 1, 2, 3]) {
          const xs = new Float32Array(otherX.with(lane, x));
          const ys = new Float32Array(otherY.with(lane, y));
          const actual = apply(xs, ys)[lane]!;
          // Object.is takes any NaN for any other, and a zero for one of its own sign only.
          if (Object.is(actual, expected)) continue;
          assert.fail(`${name}(${x}) in lane ${lane} is ${actual}, alone ${expected}`);
        }
      }),
      { numRuns: effort({ quick: 80, thorough: 300 }) },
    );
  }
});

test("an inlined function gives the bits of a called function", () => {
  const xs = Float32Array.from({ length: 4096 }, (_, index) => (index - 2048) / 100);
  const ys = xs.toReversed();
  const absolute = xs.map(Math.abs);
  for (const name of names) {
    const bases = ["log", "log2", "log10", "log1p", "acosh", "rsqrt", "pow"].includes(name) ? absolute : xs;
    sameBytes(overArrays(name, "inline")(bases, ys), overArrays(name)(bases, ys), name);
  }
});

test("a module contains each function that it needs once, after its callees", () => {
  assert.deepEqual(
    withNeeds(["cos", "exp", "sin", "exp"]).map((fn) => fn.name),
    ["reduceHuge", "cos", "exp", "sin"],
  );
  assert.deepEqual(withNeeds([]), []);
  assert.ok(WebAssembly.validate(encodeModule(withNeeds(names))));
});

test("the table has each function under its name", () => {
  for (const name of names) assert.equal(vectorMath[name].name, name);
});
