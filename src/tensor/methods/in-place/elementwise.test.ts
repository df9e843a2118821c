/** Every in-place form of an elementwise method: its values, its dtype and its gradient are those of the method. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { openStrictDevice } from "../../../../test/support/devices.js";
import { rejects } from "../../../../test/support/rejects.js";
import { tensor } from "../../index.js";
import type { Tensor } from "../../tensor.js";
import { inPlaceElementwiseMethods } from "./elementwise.js";

openStrictDevice();

type Method = (...args: readonly unknown[]) => Tensor;
const other = [0.25, 0.5, 0.75];
/** The arguments of methods that take more than one tensor. */
const args: Readonly<Record<string, () => readonly unknown[]>> = {
  ...{
    mvlgamma: () => [1],
    logit: () => [],
    nanToNum: () => [{ nan: 1 }],
    clampMin: () => [0.5],
    clampMax: () => [0.5],
  },
  ...{ lerp: () => [tensor(other), 0.25], addcdiv: () => [tensor(other), tensor(other)] },
  addcmul: () => [tensor(other), tensor(other)],
};

for (const name of Object.keys(inPlaceElementwiseMethods)) {
  test(`${name} overwrites the tensor with the result of the method, and keeps its dtype`, () => {
    const isOfIntegers = /^(bitwise|gcd|lcm)/.test(name);
    const values = isOfIntegers ? [5, 6, 7] : [0.3, 0.6, 0.9];
    const dtype = isOfIntegers ? "i32" : "f32";
    const method = name.slice(0, -1);
    const call = (x: Tensor, which: string): Tensor => {
      const methods = x as unknown as Record<string, Method>;
      const isUnary = methods[method]?.length === 0;
      const operand = isOfIntegers ? tensor([1, 2, 3], { dtype }) : tensor(other);
      return methods[which]!.call(x, ...(args[method]?.() ?? (isUnary ? [] : [operand])));
    };
    const x = tensor(values, { dtype });
    const expected = call(x, method).to(dtype).tolist();
    const address = x.array.storage?.span.address;
    assert.equal(call(x, name), x);
    assert.equal(x.array.storage?.span.address, address);
    assert.deepEqual(x.tolist(), expected);
    assert.equal(x.dtype, dtype);
  });
}

test("the gradient flows through an in-place form to the earlier values", () => {
  const w = tensor([0.5, 2], { requiresGrad: true });
  const y = w.mul(2);
  y.remainder_(3);
  y.sum().backward();
  assert.deepEqual(w.grad?.tolist(), [2, 2]);
});

test("a float result does not overwrite integers, and a larger one nothing", () => {
  rejects("BAD_DTYPE", () => tensor([1, 2], { dtype: "i32" }).atan_(), /the result is f32, and .* holds i32/);
  rejects("BAD_SHAPE", () => tensor([1, 2]).atan2_(tensor([[1], [2]])), /expand/);
});
