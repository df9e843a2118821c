/** Decimal digits: the fewest that identify a float, rounded to even. */

import assert from "node:assert/strict";
import { it } from "node:test";
import fc from "fast-check";
import { effort } from "../../../test/support/effort.js";
import { widenBf16, widenF16 } from "../../ir/index.js";
import { type Decimal, roundedDecimal, roundTo, shortestDecimal, writeOut } from "./decimal.js";

const numberOf = ({ digits, exponent }: Decimal): number =>
  Number(`${digits}e${exponent - digits.length + 1}`);

/** The two numbers with one digit less around the value. */
function shorter(value: number, { digits }: Decimal): number[] {
  if (digits.length === 1) return [];
  const fewer = roundedDecimal(value, digits.length - 1);
  const step = 10 ** (fewer.exponent - fewer.digits.length + 1);
  return [numberOf(fewer), numberOf(fewer) - step, numberOf(fewer) + step];
}

const step = effort({ quick: 9, thorough: 1 });

/** Every value, or some of every exponent, with those around each power of two. */
const isTried = (bits: number): boolean => bits % step === 0 || (bits + 1) % 128 < 3;

for (const [dtype, widen] of [
  ["f16", widenF16],
  ["bf16", widenBf16],
] as const) {
  it(`the shortest digits of ${step === 1 ? "every" : "an"} ${dtype} read back as that value, and no shorter digits do`, () => {
    const round = roundTo[dtype];
    const all = Uint16Array.from({ length: 0x8000 }, (_, bits) => bits);
    for (const value of widen(all.filter(isTried))) {
      if (!Number.isFinite(value)) continue;
      const shortest = shortestDecimal(value, dtype);
      assert.equal(round(numberOf(shortest)), value);
      for (const other of shorter(value, shortest)) assert.notEqual(round(other), value);
    }
  });
}

it("the shortest digits of an f32 read back as that value, and no shorter digits do", () => {
  fc.assert(
    fc.property(fc.float({ noNaN: true, noDefaultInfinity: true, min: 0 }), (value) => {
      const shortest = shortestDecimal(value, "f32");
      assert.equal(Math.fround(numberOf(shortest)), value);
      for (const other of shorter(value, shortest)) assert.notEqual(Math.fround(other), value);
    }),
    { numRuns: effort({ quick: 1000, thorough: 5000 }) },
  );
});

it("above a power of two, the next decimal up is used if the nearest reads back as the float below", () => {
  assert.deepEqual(shortestDecimal(2 ** 90, "f32"), { digits: "12379401", exponent: 27 });
  assert.equal(roundedDecimal(2 ** 90, 8).digits, "12379400");
});

it("an exact tie is rounded to even, and anything above it up", () => {
  assert.deepEqual(roundedDecimal(0.125, 2), { digits: "12", exponent: -1 });
  assert.deepEqual(roundedDecimal(0.375, 2), { digits: "38", exponent: -1 });
  assert.deepEqual(roundedDecimal(0.125 + 2 ** -50, 2), { digits: "13", exponent: -1 });
  assert.deepEqual(roundedDecimal(-99.96, 3), { digits: "100", exponent: 2 });
  assert.deepEqual(roundedDecimal(0, 3), { digits: "000", exponent: 0 });
});

it("digits are split before and after the decimal point", () => {
  assert.deepEqual(writeOut({ digits: "125", exponent: 0 }), { whole: "1", fraction: "25" });
  assert.deepEqual(writeOut({ digits: "125", exponent: 4 }), { whole: "12500", fraction: "" });
  assert.deepEqual(writeOut({ digits: "125", exponent: -2 }), { whole: "0", fraction: "0125" });
});
