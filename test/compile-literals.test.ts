/** Literal numbers in compiled steps: every special value in every dtype has the bits that eager code gives it. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { type Dtype, dtypes, type Tensor, tensor } from "holdfast";
import { isFloat8 } from "../src/ir/index.js";
import { openDevice } from "./support/devices.js";
import { isThorough } from "./support/effort.js";
import { specialValues } from "./support/special-values.js";

const device = openDevice();

/** The expressions with a literal; each is its own kernel, where fusion could combine it with others. */
const uses: Readonly<Record<string, (x: Tensor, value: number) => Tensor>> = {
  mul: (x, value) => x.mul(value),
  add: (x, value) => x.add(value),
  "mul, then add": (x, value) => x.mul(value).add(value),
  maximum: (x, value) => x.maximum(value),
};

const bitsOf = (result: Tensor): string =>
  Buffer.from(result.device.runtime.read(result.array.storage!)).toString("hex");

function inputOf(dtype: Dtype): Tensor {
  const values =
    dtype === "bool"
      ? [0, 1]
      : dtypes[dtype].kind === "integer"
        ? [0, 3, dtype === "i8" ? -128 : 255]
        : [1, -1, 0, -0, 0.5];
  return tensor(values, { device, dtype });
}

/** The result of a function, or the code of its error. */
function tried(run: () => Tensor): string {
  try {
    return bitsOf(run());
  } catch (error) {
    return (error as { code?: string }).code ?? String(error);
  }
}

/** A quick run tries each value in one expression per dtype; the expression changes with the dtype. */
function valuesFor(dtype: number, use: number): readonly number[] {
  const count = Object.keys(uses).length;
  return specialValues.filter((_, index) => isThorough || (index + dtype) % count === use);
}

/** Integers do not support all of them. */
const minTaken = { float: 1, integer: 1 / specialValues.length, boolean: 0, storage: 0 } as const;

const computed = (Object.keys(dtypes) as Dtype[]).filter((dtype) => !isFloat8(dtype));
for (const [dtypeIndex, dtype] of computed.entries()) {
  for (const [useIndex, [name, use]] of Object.entries(uses).entries()) {
    test(`${name} of ${dtype} with special values: compiled bits are eager bits`, () => {
      const x = inputOf(dtype);
      device.keep(x);
      const values = valuesFor(dtypeIndex, useIndex);
      const eager = values.map((value) => device.step(() => tried(() => use(x, value))));
      const accepted = values.filter((_, index) => !/^[A-Z]/.test(eager[index]!));
      const step = device.compile((input: Tensor) => accepted.map((value) => use(input, value)));
      const compiled = step(x).map(bitsOf);
      const expected = eager.filter((result) => !/^[A-Z]/.test(result));
      for (const [index, bits] of compiled.entries())
        assert.equal(bits, expected[index], `${name}(${accepted[index]}) of ${dtype}`);
      assert.ok(
        accepted.length >= minTaken[dtypes[dtype].kind] * values.length,
        `${accepted.length} values were accepted`,
      );
      step.close();
      x.release();
    });
  }
}
