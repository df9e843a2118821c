/**
 * Row N10: bf16 was compared with a tolerance that bf16 can't meet, and the test was switched off. Every
 * dtype has its own tolerance, which the device meets.
 */

import assert from "node:assert/strict";
import { openStrictDevice } from "../support/devices.js";
import { regressionRow } from "../support/regressions.js";
import { type FloatDtype, isNear, type Tolerance, tolerances } from "../tolerances.js";

const device = openStrictDevice();
const [rows, inner, columns] = [9, 33, 7] as const;

/** gelu(x · w) of the same numbers, exact in every dtype, computed in one of them. */
function computeIn(dtype: FloatDtype): number[] {
  const wave = (size: number, phase: number): number[] =>
    Array.from({ length: size }, (_, at) => Math.round(16 * Math.sin(at * 1.7 + phase)) / 16);
  return device.step(() => {
    const x = device.fromHost(wave(rows * inner, 1), [rows, inner], dtype);
    const w = device.fromHost(wave(inner * columns, 2), [inner, columns], dtype);
    return [...x.matmul(w).gelu().dataSync()];
  });
}

regressionRow<Readonly<Record<FloatDtype, Tolerance>>>({
  row: "N10",
  rule: "a product and an activation are within each dtype's own tolerance of f64",
  sound: tolerances["against f64"],
  faults: {
    "bf16 is compared at 1e-3": {
      ...tolerances["against f64"],
      bf16: { relative: 1e-3, absolute: 1e-3 },
    },
    "f32 is compared like f64": { ...tolerances["against f64"], f32: tolerances["against f64"].f64 },
  },
  check(table) {
    const expected = computeIn("f64");
    const scale = Math.max(1, ...expected.map(Math.abs));
    for (const dtype of ["f32", "f16", "bf16"] as const) {
      for (const [at, value] of computeIn(dtype).entries()) {
        const { relative, absolute } = table[dtype];
        assert.ok(
          isNear(value, expected[at]!, table[dtype], scale),
          `${dtype}: ${value} instead of ${expected[at]} at ${at}, within ${relative} and ${absolute}`,
        );
      }
    }
  },
});
