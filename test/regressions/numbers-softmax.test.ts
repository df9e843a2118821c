/** Row N2: a softmax whose exponentials overflowed gave NaN on a row with values from -29 to 122. */

import assert from "node:assert/strict";
import type { Tensor } from "holdfast";
import { openStrictDevice } from "../support/devices.js";
import { effort } from "../support/effort.js";
import { randomFrom } from "../support/op-cases/arbitraries.js";
import { regressionRow } from "../support/regressions.js";

const [rows, width] = [effort({ quick: 260, thorough: 2000 }), 257] as const;
const [lowest, highest] = [-29, 122] as const;

/** [rows, width], each row from the lowest value to the highest. */
function wideRows(): Float32Array {
  const random = randomFrom(2);
  const values = Float32Array.from({ length: rows * width }, () => lowest + (highest - lowest) * random());
  for (let row = 0; row < rows; row++) {
    values[row * width + (row % width)] = highest;
    values[row * width + ((row + 1) % width)] = lowest;
  }
  return values;
}

/** The softmax of one row in doubles, which can represent e¹²² and much more. */
function softmaxInDoubles(row: Float32Array): Float64Array {
  const powers = Float64Array.from(row, Math.exp);
  const sum = powers.reduce((total, power) => total + power, 0);
  return powers.map((power) => power / sum);
}

/** The difference to the row's maximum is rounded to f32, at up to 151: 7.6e-6 in the exponent. */
const tolerance = 2e-5;

regressionRow<(x: Tensor) => Tensor>({
  row: "N2",
  rule: "softmax of many wide rows from -29 to 122 equals float64, in every element",
  sound: (x) => x.softmax(-1),
  faults: {
    "the row's maximum is not subtracted": (x) => {
      const powers = x.exp();
      return powers.div(powers.sum(-1, { keepdim: true }));
    },
  },
  check(softmax) {
    const cpu = openStrictDevice();
    const values = wideRows();
    const actual = cpu.step(() => softmax(cpu.fromHost(values, [rows, width], "f32")).dataSync());
    for (let row = 0; row < rows; row++) {
      const expected = softmaxInDoubles(values.subarray(row * width, (row + 1) * width));
      for (const [column, share] of expected.entries()) {
        const value = actual[row * width + column]!;
        if (Math.abs(value - share) <= tolerance * share + 1e-38) continue;
        assert.fail(`row ${row}, column ${column} is ${value}; float64 gives ${share}`);
      }
    }
  },
});
