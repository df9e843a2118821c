/** Cases without oracle values and central differences: half floats, extremes, views, and errors. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { openStrictDevice } from "../../../test/support/devices.js";
import { issuedBy } from "../../../test/support/issued-work.js";
import { rejects } from "../../../test/support/rejects.js";
import { layerNorm } from "./layer-norm.js";
import { normalize } from "./normalize.js";
import { rmsNorm } from "./rms-norm.js";

const cpu = openStrictDevice();
type Tensor = ReturnType<typeof cpu.fromHost>;
const { POSITIVE_INFINITY: infinity } = Number;

function tensor(values: ArrayLike<number>, shape: readonly number[], dtype: Tensor["dtype"] = "f32"): Tensor {
  return cpu.fromHost(values, shape, dtype);
}

const waves = (length: number, scale = 1): Float64Array =>
  Float64Array.from({ length }, (_, index) => Math.fround(scale * Math.sin(index * 1.3)));

function requireNear(actual: Tensor, expected: Tensor, tolerance: number, name: string): void {
  assert.deepEqual(actual.shape, expected.shape, name);
  const expectedValues = expected.dataSync();
  for (const [index, value] of actual.dataSync().entries()) {
    const expectedValue = expectedValues[index]!;
    const isNear = Math.abs(value - expectedValue) <= tolerance * (1 + Math.abs(expectedValue));
    assert.ok(isNear, `${name}: element ${index} is ${value}, expected ${expectedValue}`);
  }
}

describe("softmax", () => {
  test("an element of -∞ has probability 0 and gradient 0", () => {
    cpu.step(() => {
      const x = tensor([0, -infinity, 0, 700, 700, -700], [2, 3]);
      x.requiresGrad = true;
      const y = x.softmax(1);
      assert.deepEqual(y.tolist(), [
        [0.5, 0, 0.5],
        [0.5, 0.5, 0],
      ]);
      y.backward(tensor([1, 5, 2, 0, 0, 1], [2, 3]));
      assert.deepEqual(x.grad?.tolist(), [
        [-0.25, 0, 0.25],
        [0, 0, 0],
      ]);
    });
  });

  test("logSoftmax keeps values that underflow in softmax", () => {
    cpu.step(() => {
      const y = tensor([0, 200], [2]).logSoftmax(0);
      assert.deepEqual(y.tolist(), [-200, 0]);
      assert.equal(tensor([0, 200], [2]).softmax(0).log().tolist()?.toString(), "-Infinity,0");
    });
  });

  test("any axis of any layout gives the same result as contiguous rows", () => {
    cpu.step(() => {
      const x = tensor(waves(60, 3), [3, 4, 5], "f64");
      for (const axis of [0, 1, -3]) {
        const index = axis < 0 ? axis + 3 : axis;
        const order = [0, 1, 2].filter((other) => other !== index).concat(index);
        const inverse = order.map((_, position) => order.indexOf(position));
        const expected = x.permute(order).mul(1).softmax(-1).permute(inverse);
        requireNear(x.softmax(axis), expected, 0, `axis ${axis}`);
      }
    });
  });

  test("integers and missing axes are rejected", () => {
    cpu.step(() => {
      rejects("BAD_DTYPE", () => tensor([1, 2], [2], "i32").softmax(0), /softmax of i32.*to\("f32"\)/);
      rejects("BAD_SHAPE", () => tensor([1, 2], [1, 2]).softmax(2), /softmax: axis 2 .*-2 to 1/);
    });
  });
});

describe("layerNorm and rmsNorm", () => {
  const shape = [6, 40];

  test("statistics of half floats are f32, and only the result is rounded", () => {
    cpu.step(() => {
      const values = waves(240, 30);
      const weight = waves(40);
      for (const [dtype, tolerance] of [
        ["bf16", 2 ** -8],
        ["f16", 2 ** -11],
      ] as const) {
        const rounded = tensor(values, shape, dtype);
        const exact = tensor(rounded.dataSync(), shape, "f64");
        const [w, b] = [tensor(weight, [40], "f64"), tensor(waves(40, 2), [40], "f64")];
        const [narrowW, narrowB] = [tensor(weight, [40]), tensor(waves(40, 2), [40])];
        requireNear(
          cpu.apply(layerNorm, [rounded, narrowW, narrowB]),
          cpu.apply(layerNorm, [exact, w, b]),
          1.01 * tolerance,
          `layerNorm ${dtype}`,
        );
        const normalized = cpu.apply(rmsNorm, [rounded, narrowW]);
        assert.equal(normalized.dtype, dtype);
        requireNear(normalized, cpu.apply(rmsNorm, [exact, w]), 1.01 * tolerance, `rmsNorm ${dtype}`);
      }
    });
  });

  test("the gradients of an f32 weight and bias are f32 sums even if x is a half float", () => {
    cpu.step(() => {
      // 600 rows of 1: bf16 alone would stay at 256.
      const x = tensor(
        Array.from({ length: 1200 }, (_, index) => (index % 2 === 0 ? 1 : -1)),
        [600, 2],
        "bf16",
      );
      const [weight, bias] = [tensor([1, 1], [2]), tensor([0, 0], [2])];
      for (const parameter of [weight, bias]) parameter.requiresGrad = true;
      cpu
        .apply(layerNorm, [x, weight, bias], { eps: 0 })
        .backward(tensor(new Float32Array(1200).fill(1), [600, 2], "bf16"));
      assert.equal(weight.grad?.dtype, "f32");
      assert.deepEqual(weight.grad?.tolist(), [600, -600]);
      assert.deepEqual(bias.grad?.tolist(), [600, 600]);
    });
  });

  test("the gradients of weight and bias take one pass over the rows, and have the same bits as each alone", () => {
    cpu.step(() => {
      const [x, upstream] = [tensor(waves(60), [12, 5]), tensor(waves(60, 2), [12, 5])];
      const gradientsOf = (needs: readonly boolean[]): { gradients: unknown[]; launched: string[] } => {
        const affine = [tensor([1, 2, 3, 4, 5], [5]), tensor([0, 1, 0, 1, 0], [5])];
        for (const [index, parameter] of affine.entries()) parameter.requiresGrad = needs[index]!;
        const y = cpu.apply(layerNorm, [x, ...affine]);
        const ops = issuedBy(cpu.runtime, () => y.backward(upstream)).flatMap((command) =>
          command.kind === "launch" ? [command.request.op] : [],
        );
        const launched = ops.filter((op) => op.startsWith(layerNorm.name));
        return { gradients: affine.map(({ grad }) => grad?.tolist()), launched };
      };
      const both = gradientsOf([true, true]);
      const [ofWeight, ofBias] = [gradientsOf([true, false]), gradientsOf([false, true])];
      assert.deepEqual(both.launched, ["layerNormAffineGradient"]);
      assert.deepEqual(ofWeight.launched, ["layerNormWeightGradient"]);
      assert.deepEqual(ofBias.launched, ["layerNormBiasGradient"]);
      assert.deepEqual(both.gradients, [ofWeight.gradients[0], ofBias.gradients[1]]);
      assert.ok(both.gradients.every((gradient) => gradient !== undefined));
    });
  });

  test("normalizedShape defaults to the weight's shape, or to the last axis without a weight", () => {
    cpu.step(() => {
      const x = tensor(waves(24), [2, 3, 4], "f64");
      const weight = tensor(new Float64Array(12).fill(1), [3, 4], "f64");
      const over2 = cpu.apply(layerNorm, [x], { normalizedShape: [3, 4] });
      requireNear(cpu.apply(layerNorm, [x, weight]), over2, 0, "the weight's shape");
      const flat = cpu.apply(layerNorm, [x.reshape([2, 12])]);
      requireNear(over2, flat.reshape([2, 3, 4]), 0, "two axes as one");
      const over1 = cpu.apply(layerNorm, [x], { normalizedShape: [4] });
      requireNear(cpu.apply(layerNorm, [x]), over1, 0, "the last axis");
    });
  });

  test("a transposed view is normalised like its copy", () => {
    cpu.step(() => {
      const x = tensor(waves(24), [4, 6], "f64");
      const transposed = x.permute([1, 0]);
      requireNear(
        cpu.apply(layerNorm, [transposed]),
        cpu.apply(layerNorm, [transposed.mul(1)]),
        0,
        "layerNorm",
      );
      requireNear(cpu.apply(rmsNorm, [transposed]), cpu.apply(rmsNorm, [transposed.mul(1)]), 0, "rmsNorm");
    });
  });

  test("operands that do not fit are rejected, with the expected shapes", () => {
    cpu.step(() => {
      const x = tensor(waves(12), [3, 4]);
      rejects(
        "BAD_SHAPE",
        () => cpu.apply(layerNorm, [x], { normalizedShape: [3] }),
        /normalizedShape \[3\] of a tensor \[3, 4\].*\[4\]/,
      );
      rejects(
        "BAD_SHAPE",
        () => cpu.apply(rmsNorm, [x, tensor([1, 1, 1], [3])], { normalizedShape: [4] }),
        /the weight is \[3\].*\[4\]/,
      );
      rejects(
        "BAD_ARGUMENT",
        () => cpu.apply(rmsNorm, [x, tensor(waves(4), [4]), tensor(waves(4), [4])]),
        /rmsNorm takes at most 2 operands/,
      );
    });
  });
});

describe("normalize", () => {
  test("every vector has length 1, and a vector of zeros stays zero", () => {
    cpu.step(() => {
      const y = cpu.apply(normalize, [tensor([3, 4, 0, 0, 1e-3, 0], [3, 2])], { axis: 1 });
      requireNear(y, tensor([0.6, 0.8, 0, 0, 1, 0], [3, 2]), 1e-7, "normalize");
    });
  });

  test("the gradient of a vector of zeros is the upstream gradient divided by eps", () => {
    cpu.step(() => {
      const x = tensor([0, 0], [1, 2]);
      x.requiresGrad = true;
      cpu.apply(normalize, [x], { axis: 1, eps: 0.25 }).backward(tensor([1, -2], [1, 2]));
      assert.deepEqual(x.grad?.tolist(), [[4, -8]]);
    });
  });
});
