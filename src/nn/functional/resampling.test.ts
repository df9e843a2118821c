/** Enlarging by whole numbers: the elements that a gather selects, sums as gradients, and the layout of the input. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { openStrictDevice } from "../../../test/support/devices.js";
import { rejects } from "../../../test/support/rejects.js";
import { autograd, fromTyped, type Tensor, tensor } from "../../tensor/index.js";
import { type InterpolateOptions, interpolate } from "./resampling.js";

const device = openStrictDevice();

function numbered(shape: readonly number[]): Tensor {
  const size = shape.reduce((product, length) => product * length, 1);
  return fromTyped(
    Float32Array.from({ length: size }, (_, index) => index % 11),
    shape,
    { device },
  );
}

/** The elements at `floor(index / scale)` along each of the last axes. */
function gathered(x: Tensor, scales: readonly number[]): Tensor {
  return scales.reduce((result, scale, index) => {
    const axis = index + 2;
    const size = result.shape[axis]!;
    const indices = Array.from({ length: Math.floor(size * scale) }, (_, at) => Math.floor(at / scale));
    return result.indexSelect(axis, tensor(indices, { dtype: "i32", device }));
  }, x);
}

const cases: readonly (readonly [shape: readonly number[], scales: readonly number[], InterpolateOptions])[] =
  [
    [[2, 3, 5], [3], { scaleFactor: 3 }],
    [[2, 3, 4, 3], [2, 2], { scaleFactor: 2 }],
    [[1, 2, 3, 2], [4, 5], { size: [12, 10] }],
    [[1, 2, 2, 3], [49, 1], { scaleFactor: [49, 1] }],
    [[1, 2, 2, 4], [3, 1.5], { scaleFactor: [3, 1.5] }],
    [[2, 1, 2, 3, 2], [1, 2, 3], { scaleFactor: [1, 2, 3] }],
  ];

describe("nearest interpolation by whole numbers", () => {
  for (const [shape, scales, options] of cases) {
    test(`has the elements and the gradients of a gather: ${shape.join("×")} by ${scales.join("×")}`, () => {
      device.step(() => {
        const results = [(x: Tensor) => interpolate(x, options), (x: Tensor) => gathered(x, scales)].map(
          (enlarge) => {
            const x = numbered(shape);
            x.requiresGrad = true;
            const y = enlarge(x);
            const weights = numbered(y.shape);
            weights.requiresGrad = true;
            const [gradient] = autograd.grad(y.mul(weights).sum(), [x], { createGraph: true });
            const [ofWeights] = autograd.grad(gradient!.square().sum(), [weights]);
            return [y.tolist(), gradient!.tolist(), ofWeights!.tolist()];
          },
        );
        assert.deepEqual(results[0], results[1]);
      });
    });
  }

  test("keeps channels last, and so does its gradient", () => {
    device.step(() => {
      const x = numbered([2, 4, 3, 5]).permute([0, 3, 1, 2]);
      x.requiresGrad = true;
      const y = interpolate(x, { scaleFactor: 2 });
      assert.deepEqual(y.stride(), [8 * 6 * 5, 1, 6 * 5, 5]);
      const upstream = numbered([2, 8, 6, 5]).permute([0, 3, 1, 2]);
      const [gradient] = autograd.grad(y.mul(upstream).sum(), [x]);
      assert.deepEqual(gradient!.stride(), x.stride());
      const expected = upstream.unfold(2, 2, 2).unfold(3, 2, 2).sum([4, 5]);
      assert.deepEqual(gradient!.tolist(), expected.tolist());
    });
  });
});

test("an unknown mode, and antialiasing of another mode, are rejected", () => {
  const x = numbered([1, 1, 2, 2]);
  rejects("BAD_ARGUMENT", () => interpolate(x, { size: 3, mode: "lanczos" as never }), /mode is "lanczos"/);
  rejects(
    "BAD_ARGUMENT",
    () => interpolate(x, { size: 3, antialias: true }),
    /antialias is for .* not "nearest"/,
  );
});
