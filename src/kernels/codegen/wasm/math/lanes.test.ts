/** Four lanes that know nothing of each other, and two ways to use a function that give the same bits. */

import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { sameBytes } from "../../../../../test/support/same-bytes.js";
import { overArrays } from "../../../../../test/support/vector-math.js";
import { encodeModule } from "../../../../driver/index.js";
import { type VectorMathName, vectorMath, withNeeds } from "./table.js";

const names = Object.keys(vectorMath) as VectorMathName[];

/** Any float, with the ones that make trouble more often than chance has them. */
const anyFloat = fc.oneof(
  fc.float(),
  fc.float({ min: -20, max: 20 }),
  fc.constantFrom(0, -0, 1, -1, 1e30, -1e30, Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY),
);
const fourFloats = fc.tuple(anyFloat, anyFloat, anyFloat, anyFloat);

test("a value's result is the same in every lane, whatever the neighbours are", () => {
  for (const name of names) {
    const apply = overArrays(name);
    fc.assert(
      fc.property(anyFloat, anyFloat, fourFloats, fourFloats, (x, y, otherX, otherY) => {
        const alone = apply(new Float32Array(4).fill(x), new Float32Array(4).fill(y))[0]!;
        for (const lane of [0, 1, 2, 3]) {
          const xs = new Float32Array(otherX.with(lane, x));
          const ys = new Float32Array(otherY.with(lane, y));
          const found = apply(xs, ys)[lane]!;
          // Object.is takes any NaN for any other, and a zero for one of its own sign only.
          assert.ok(Object.is(found, alone), `${name}(${x}) in lane ${lane} is ${found}, alone ${alone}`);
        }
      }),
      { numRuns: 300 },
    );
  }
});

test("a function written in place gives the bits of the function called", () => {
  const xs = Float32Array.from({ length: 4096 }, (_, index) => (index - 2048) / 100);
  const ys = xs.toReversed();
  const absolute = xs.map(Math.abs);
  for (const name of names) {
    const bases = ["log", "log1p", "rsqrt", "pow"].includes(name) ? absolute : xs;
    sameBytes(overArrays(name, "inline")(bases, ys), overArrays(name)(bases, ys), name);
  }
});

test("a module holds each function that it needs once, and behind what it calls", () => {
  assert.deepEqual(
    withNeeds(["cos", "exp", "sin", "exp"]).map((fn) => fn.name),
    ["reduceHuge", "cos", "exp", "sin"],
  );
  assert.deepEqual(withNeeds([]), []);
  assert.ok(WebAssembly.validate(encodeModule(withNeeds(names))));
});

test("each function stands in the table under the name by which it is called", () => {
  for (const name of names) assert.equal(vectorMath[name].name, name);
});
