/** Constants and scalar arguments of kernels: every special value keeps its bits, in every compute type. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { kernelDevices } from "../../test/support/kernel-runtime.js";
import { specialValues } from "../../test/support/special-values.js";
import type { Expression, RowKernel } from "../ir/index.js";
import { iterateRows, term } from "../ir/index.js";
import type { Runtime } from "../runtime/index.js";
import { rowCalls } from "./kernel-call.js";
import { submit } from "./submit.js";

const arrays = { f32: Float32Array, f64: Float64Array, i32: Int32Array } as const;
type Type = keyof typeof arrays;
const isWhole = (value: number): boolean => (value | 0) === value;

/** The output of a kernel that stores the n-th value at its n-th element. */
function storedBy(
  runtime: Runtime,
  type: Type,
  valueAt: (index: number) => Expression,
  scalars: readonly number[],
  count: number,
): ArrayLike<number> {
  let value = valueAt(0);
  for (let index = 1; index < count; index++)
    value = term.select(term.eq(term.position, index), valueAt(index), value);
  const kernel: RowKernel = {
    ...{ name: "specialNumbers", inputs: [], outputs: [{ dtype: type, per: "element" }] },
    ...{ scalars: scalars.map(() => type), stages: [{ kind: "store", output: 0, value }] },
  };
  const bytes = runtime.step(() => {
    const output = runtime.arena.allocate(count * arrays[type].BYTES_PER_ELEMENT, "stored");
    submit(
      runtime,
      rowCalls({ kernel, iteration: iterateRows([count], [[1]], 1), operands: [output], scalars }),
    );
    return runtime.read(output);
  });
  return new arrays[type](bytes.buffer);
}

for (const { device, skip, open } of kernelDevices) {
  describe(`on ${device}`, { skip }, () => {
    const runtime = open();

    for (const type of Object.keys(arrays) as Type[]) {
      const values = type === "i32" ? specialValues.filter(isWhole) : specialValues;
      const expected = arrays[type].from(values);

      test(`constants of ${type} are printed exactly`, () => {
        const actual = storedBy(
          runtime,
          type,
          (index) => term.constant(values[index]!, type),
          [],
          values.length,
        );
        for (const [index, value] of expected.entries())
          assert.ok(Object.is(actual[index], value), `${values[index]} is ${actual[index]}`);
      });

      test(`scalars of ${type} are passed exactly`, () => {
        const actual = storedBy(runtime, type, (index) => term.scalar(index, type), values, values.length);
        for (const [index, value] of expected.entries())
          assert.ok(Object.is(actual[index], value), `${values[index]} is ${actual[index]}`);
      });
    }
  });
}
