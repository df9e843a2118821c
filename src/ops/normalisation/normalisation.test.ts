/** What oracle values and central differences don't reach: half floats, extremes, views, and what is rejected. */

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

function place(values: ArrayLike<number>, shape: readonly number[], dtype: Tensor["dtype"] = "f32"): Tensor {
  return cpu.fromHost(values, shape, dtype);
}

const waves = (length: number, scale = 1): Float64Array =>
  Float64Array.from({ length }, (_, index) => Math.fround(scale * Math.sin(index * 1.3)));

function requireNear(found: Tensor, expected: Tensor, size: number, what: string): void {
  assert.deepEqual(found.shape, expected.shape, what);
  const [own, other] = [found.dataSync(), expected.dataSync()];
  for (const [index, value] of own.entries()) {
    const difference = Math.abs(value - other[index]!);
    const isNear = difference <= size * (1 + Math.abs(other[index]!));
    assert.ok(isNear, `${what}: element ${index} is ${value}, expected ${other[index]}`);
  }
}

describe("softmax", () => {
  test("-∞ has no share, and its gradient is 0", () => {
    cpu.step(() => {
      const x = place([0, -infinity, 0, 700, 700, -700], [2, 3]);
      x.requiresGrad = true;
      const y = x.softmax(1);
      assert.deepEqual(y.tolist(), [
        [0.5, 0, 0.5],
        [0.5, 0.5, 0],
      ]);
      y.backward(place([1, 5, 2, 0, 0, 1], [2, 3]));
      assert.deepEqual(x.grad?.tolist(), [
        [-0.25, 0, 0.25],
        [0, 0, 0],
      ]);
    });
  });

  test("logSoftmax keeps what a softmax has lost", () => {
    cpu.step(() => {
      const y = place([0, 200], [2]).logSoftmax(0);
      assert.deepEqual(y.tolist(), [-200, 0]);
      assert.equal(place([0, 200], [2]).softmax(0).log().tolist()?.toString(), "-Infinity,0");
    });
  });

  test("any axis of any layout gives what the same rows side by side give", () => {
    cpu.step(() => {
      const x = place(waves(60, 3), [3, 4, 5], "f64");
      for (const axis of [0, 1, -3]) {
        const place = axis < 0 ? axis + 3 : axis;
        const order = [0, 1, 2].filter((one) => one !== place).concat(place);
        const back = order.map((_, one) => order.indexOf(one));
        const expected = x.permute(order).mul(1).softmax(-1).permute(back);
        requireNear(x.softmax(axis), expected, 0, `axis ${axis}`);
      }
    });
  });

  test("integers are rejected, and axes that are not there", () => {
    cpu.step(() => {
      rejects("BAD_DTYPE", () => place([1, 2], [2], "i32").softmax(0), /softmax of i32.*to\("f32"\)/);
      rejects("BAD_SHAPE", () => place([1, 2], [1, 2]).softmax(2), /softmax: axis 2 .*-2 to 1/);
    });
  });
});

describe("layerNorm and rmsNorm", () => {
  const shape = [6, 40];

  test("half floats have their statistics in f32: only the result is rounded", () => {
    cpu.step(() => {
      const values = waves(240, 30);
      const weight = waves(40);
      for (const [dtype, size] of [
        ["bf16", 2 ** -8],
        ["f16", 2 ** -11],
      ] as const) {
        const rounded = place(values, shape, dtype);
        const wide = place(rounded.dataSync(), shape, "f64");
        const [w, b] = [place(weight, [40], "f64"), place(waves(40, 2), [40], "f64")];
        const [narrowW, narrowB] = [place(weight, [40]), place(waves(40, 2), [40])];
        requireNear(
          cpu.apply(layerNorm, [rounded, narrowW, narrowB]),
          cpu.apply(layerNorm, [wide, w, b]),
          1.01 * size,
          `layerNorm ${dtype}`,
        );
        const found = cpu.apply(rmsNorm, [rounded, narrowW]);
        assert.equal(found.dtype, dtype);
        requireNear(found, cpu.apply(rmsNorm, [wide, w]), 1.01 * size, `rmsNorm ${dtype}`);
      }
    });
  });

  test("the gradients of an f32 weight and bias are f32 sums also where x is a half float", () => {
    cpu.step(() => {
      // 600 rows of 1: bf16 alone would stay at 256.
      const x = place(
        Array.from({ length: 1200 }, (_, index) => (index % 2 === 0 ? 1 : -1)),
        [600, 2],
        "bf16",
      );
      const [weight, bias] = [place([1, 1], [2]), place([0, 0], [2])];
      for (const one of [weight, bias]) one.requiresGrad = true;
      cpu
        .apply(layerNorm, [x, weight, bias], { eps: 0 })
        .backward(place(new Float32Array(1200).fill(1), [600, 2], "bf16"));
      assert.equal(weight.grad?.dtype, "f32");
      assert.deepEqual(weight.grad?.tolist(), [600, -600]);
      assert.deepEqual(bias.grad?.tolist(), [600, 600]);
    });
  });

  test("the gradients of a weight and a bias are one pass over the rows, and the same to the bit as each alone", () => {
    cpu.step(() => {
      const [x, upstream] = [place(waves(60), [12, 5]), place(waves(60, 2), [12, 5])];
      const gradientsOf = (wanted: readonly boolean[]): { found: unknown[]; launched: string[] } => {
        const affine = [place([1, 2, 3, 4, 5], [5]), place([0, 1, 0, 1, 0], [5])];
        for (const [index, one] of affine.entries()) one.requiresGrad = wanted[index]!;
        const y = cpu.apply(layerNorm, [x, ...affine]);
        const ops = issuedBy(cpu.runtime, () => y.backward(upstream)).flatMap((one) =>
          one.kind === "launch" ? [one.request.op] : [],
        );
        const launched = ops.filter((op) => op.startsWith(layerNorm.name));
        return { found: affine.map(({ grad }) => grad?.tolist()), launched };
      };
      const both = gradientsOf([true, true]);
      const [ofWeight, ofBias] = [gradientsOf([true, false]), gradientsOf([false, true])];
      assert.deepEqual(both.launched, ["layerNormAffineGradient"]);
      assert.deepEqual(ofWeight.launched, ["layerNormWeightGradient"]);
      assert.deepEqual(ofBias.launched, ["layerNormBiasGradient"]);
      assert.deepEqual(both.found, [ofWeight.found[0], ofBias.found[1]]);
      assert.ok(both.found.every((one) => one !== undefined));
    });
  });

  test("normalizedShape is the weight's shape unless given, and the last axis where there is none", () => {
    cpu.step(() => {
      const x = place(waves(24), [2, 3, 4], "f64");
      const weight = place(new Float64Array(12).fill(1), [3, 4], "f64");
      const over2 = cpu.apply(layerNorm, [x], { normalizedShape: [3, 4] });
      requireNear(cpu.apply(layerNorm, [x, weight]), over2, 0, "the weight's shape");
      const flat = cpu.apply(layerNorm, [x.reshape([2, 12])]);
      requireNear(over2, flat.reshape([2, 3, 4]), 0, "two axes as one");
      const over1 = cpu.apply(layerNorm, [x], { normalizedShape: [4] });
      requireNear(cpu.apply(layerNorm, [x]), over1, 0, "the last axis");
    });
  });

  test("a view is normalised as what it shows", () => {
    cpu.step(() => {
      const x = place(waves(24), [4, 6], "f64");
      const turned = x.permute([1, 0]);
      requireNear(cpu.apply(layerNorm, [turned]), cpu.apply(layerNorm, [turned.mul(1)]), 0, "layerNorm");
      requireNear(cpu.apply(rmsNorm, [turned]), cpu.apply(rmsNorm, [turned.mul(1)]), 0, "rmsNorm");
    });
  });

  test("what does not fit is rejected with what would", () => {
    cpu.step(() => {
      const x = place(waves(12), [3, 4]);
      rejects(
        "BAD_SHAPE",
        () => cpu.apply(layerNorm, [x], { normalizedShape: [3] }),
        /normalizedShape \[3\] of a tensor \[3, 4\].*\[4\]/,
      );
      rejects(
        "BAD_SHAPE",
        () => cpu.apply(rmsNorm, [x, place([1, 1, 1], [3])], { normalizedShape: [4] }),
        /the weight is \[3\].*\[4\]/,
      );
      rejects(
        "BAD_ARGUMENT",
        () => cpu.apply(rmsNorm, [x, place(waves(4), [4]), place(waves(4), [4])]),
        /rmsNorm takes at most 2 operands/,
      );
    });
  });
});

describe("normalize", () => {
  test("every vector has length 1, and a vector of zeros stays one", () => {
    cpu.step(() => {
      const y = cpu.apply(normalize, [place([3, 4, 0, 0, 1e-3, 0], [3, 2])], { axis: 1 });
      requireNear(y, place([0.6, 0.8, 0, 0, 1, 0], [3, 2]), 1e-7, "normalize");
    });
  });

  test("a vector of zeros has the upstream gradient over eps", () => {
    cpu.step(() => {
      const x = place([0, 0], [1, 2]);
      x.requiresGrad = true;
      cpu.apply(normalize, [x], { axis: 1, eps: 0.25 }).backward(place([1, -2], [1, 2]));
      assert.deepEqual(x.grad?.tolist(), [[4, -8]]);
    });
  });
});
