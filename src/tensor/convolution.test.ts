/** Convolution windows and pooling: their elements, first maxima, NaN, sums in f32, rejections. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { openDevice, openStrictDevice } from "../../test/support/devices.js";
import { checkElements } from "../../test/support/element-reference.js";
import { convolutionCases } from "../../test/support/op-cases/convolution.js";
import { rejects } from "../../test/support/rejects.js";
import * as ops from "../ops/index.js";
import {
  autograd,
  avgPool1d,
  avgPool2d,
  conv1d,
  conv2d,
  conv3d,
  convTranspose1d,
  convTranspose2d,
  convTranspose3d,
  maxPool1d,
  maxPool2d,
  ones,
  tensor,
  zeros,
} from "./index.js";

openDevice();
const strictCpu = openStrictDevice();
const perAxis = (value: ops.PerAxis | undefined, axis: number, defaultValue: number): number =>
  (typeof value === "number" ? value : value?.[axis]) ?? defaultValue;

test("windows have the elements under them", () => {
  checkElements(strictCpu, convolutionCases, ops.windows, ({ kernel, stride, dilation }, x) => {
    const rank = kernel.length;
    const rest = x!.shape.slice(0, x!.shape.length - rank);
    const count = x!.shape.slice(rest.length).map((size, axis) => {
      const width = perAxis(dilation, axis, 1) * (kernel[axis]! - 1) + 1;
      return Math.floor((size - width) / perAxis(stride, axis, 1)) + 1;
    });
    return {
      shape: [...rest, ...count, ...kernel],
      at: (position) => {
        const [window, inside] = [position.slice(rest.length), position.slice(rest.length + rank)];
        const under = kernel.map(
          (_, axis) => window[axis]! * perAxis(stride, axis, 1) + inside[axis]! * perAxis(dilation, axis, 1),
        );
        return x!.at(...position.slice(0, rest.length), ...under);
      },
    };
  });
});

test("max pooling returns the largest element of each window, and never the padding", () => {
  for (const op of [ops.maxPool1d, ops.maxPool2d]) {
    checkElements(strictCpu, convolutionCases, op, ({ kernel, stride = kernel, ceilMode, ...options }, x) => {
      const { padding, dilation } = options;
      const sizes = kernel as readonly number[];
      const rest = x!.shape.slice(0, x!.shape.length - sizes.length);
      const spatial = x!.shape.slice(rest.length);
      const count = spatial.map((size, axis) => {
        const width = perAxis(dilation, axis, 1) * (sizes[axis]! - 1) + 1;
        const [border, step] = [perAxis(padding, axis, 0), perAxis(stride, axis, 1)];
        const steps = (size + 2 * border - width) / step;
        if (!ceilMode) return Math.floor(steps) + 1;
        // As PyTorch's pooling_output_shape: the last window begins inside the input or the padding before it.
        const last = Math.ceil(steps);
        return last * step >= size + border ? last : last + 1;
      });
      /** The input indices of a window along an axis. */
      const under = (window: number, axis: number): number[] =>
        Array.from(
          { length: sizes[axis]! },
          (_, offset) =>
            window * perAxis(stride, axis, 1) +
            offset * perAxis(dilation, axis, 1) -
            perAxis(padding, axis, 0),
        ).filter((input) => input >= 0 && input < spatial[axis]!);
      return {
        shape: [...rest, ...count],
        at: (position) => {
          const [rows = [], columns] = position.slice(rest.length).map(under);
          const all = rows.flatMap((row) => (columns ? columns.map((column) => [row, column]) : [[row]]));
          return Math.max(...all.map((input) => x!.at(...position.slice(0, rest.length), ...input)));
        },
      };
    });
  }
});

test("the gradient of a maximum goes to the first of equal elements, even if all are -Infinity", () => {
  const low = Number.NEGATIVE_INFINITY;
  const x = tensor([[3, 3, 1, low, low, low]], { requiresGrad: true });
  const y = maxPool1d(x, 3);
  assert.deepEqual(y.tolist(), [[3, low]]);
  y.backward(tensor([[10, 20]]));
  assert.deepEqual(x.grad!.tolist(), [[10, 0, 0, 20, 0, 0]]);
});

test("an average pool of half floats with another divisor is rounded once", () => {
  const x = tensor([[1, 1, 1 + 2 ** -7]], { dtype: "bf16" });
  // The sum 3 + 2⁻⁷ has no bf16; a third of it rounds to 1.
  assert.deepEqual(avgPool1d(x, 4, { ceilMode: true }).tolist(), [[1]]);
  const pooled = avgPool1d(x, 3, { padding: 1, stride: 1, countIncludePad: false });
  assert.deepEqual(pooled.tolist(), [[1, 1, 1]]);
  assert.equal(pooled.dtype, "bf16");
});

test("a convolution of half floats with a bias is rounded once, and so is a transposed one", () => {
  const convolutions = [conv1d, conv2d, conv3d, convTranspose1d, convTranspose2d, convTranspose3d];
  for (const [dtype, even] of [
    ["bf16", 256],
    ["f16", 2048],
  ] as const) {
    for (const [index, convolve] of convolutions.entries()) {
      // Between `even` and the next number there are only even ones: even + 1 would round to even, and even + 1 + 1 is exact.
      const ones = new Array<number>((index % 3) + 1).fill(1);
      const images = (values: readonly number[]) =>
        tensor(values, { dtype, requiresGrad: true }).reshape([1, 1, ...ones.with(-1, values.length)]);
      const [x, weight, bias] = [
        images([1, even]),
        images([1, 1]),
        tensor([1], { dtype, requiresGrad: true }),
      ];
      const y = convolve(x, weight, bias);
      assert.equal(y.dtype, dtype);
      assert.deepEqual(y.flatten().tolist(), index < 3 ? [even + 2] : [2, even + 2, even]);
      y.sum().backward();
      assert.deepEqual(bias.grad!.tolist(), [index < 3 ? 1 : 3]);
      const [gradient] = autograd.grad(convolve(x, weight, tensor([1], { dtype })).sum(), [x]);
      assert.deepEqual(gradient!.flatten().tolist(), index < 3 ? [1, 1] : [2, 2]);
      assert.equal(gradient!.dtype, dtype);
    }
  }
  const wide = conv1d(
    tensor([[[1, 256]]], { dtype: "bf16" }),
    tensor([[[1, 1]]], { dtype: "bf16" }),
    tensor([1]),
  );
  assert.deepEqual([wide.dtype, wide.tolist()], ["bf16", [[[258]]]]);
});

test("the gradient finds the last element of a window of any size", () => {
  // Offsets in windows of up to 255 elements are bytes.
  for (const size of [255, 256, 300]) {
    const values = Array.from({ length: 2 * size }, (_, at) => at);
    const x = tensor([values], { requiresGrad: true });
    const pooled = maxPool1d(x, size);
    assert.deepEqual(pooled.tolist(), [[size - 1, 2 * size - 1]]);
    pooled.sum().backward();
    const isLast = values.map((at) => Number((at + 1) % size === 0));
    assert.deepEqual(x.grad!.tolist(), [isLast], `windows of ${size}`);
  }
});

test("a NaN is the maximum of every window that contains it, and gets the gradient", () => {
  const x = tensor([[1, Number.NaN, 5, 2, 4]], { requiresGrad: true });
  const y = maxPool1d(x, 2, { stride: 1 });
  assert.deepEqual(y.tolist(), [[Number.NaN, Number.NaN, 5, 4]]);
  y.backward(tensor([[1, 2, 4, 8]]));
  assert.deepEqual(x.grad!.tolist(), [[0, 3, 4, 0, 8]]);
});

test("the gradient of an element in many windows is accumulated in f32 for every dtype", () => {
  for (const dtype of ["f32", "bf16", "f16"] as const) {
    const x = zeros([1, 330], { dtype, requiresGrad: true });
    conv1d(x, ones([1, 1, 320], { dtype }), null, { padding: 160 })
      .sum()
      .backward();
    // A sum in bf16 would stop at 256.
    assert.equal(x.grad!.slice(0, 165).item(), 320, dtype);
  }
});

test("invalid arguments are rejected, with the valid ones", () => {
  const [x, weight] = [zeros([2, 4, 5, 5]), zeros([6, 4, 3, 3])];
  rejects(
    "BAD_SHAPE",
    () => conv2d(zeros([2, 3, 5, 5]), weight),
    /3 channels must be groups times the weight's 4/,
  );
  rejects("BAD_SHAPE", () => conv2d(x, weight, null, { groups: 2 }), /with 2 groups/);
  rejects("BAD_SHAPE", () => conv2d(x, zeros([6, 4, 3])), /the weight \[out, C \/ groups, kH, kW\]/);
  rejects("BAD_SHAPE", () => conv1d(x, zeros([6, 4, 3])), /\[N, C, L\] or \[C, L\]/);
  rejects("BAD_SHAPE", () => conv2d(x, weight, zeros([5])), /bias \[5\]: it must be \[6\]/);
  rejects(
    "BAD_SHAPE",
    () => conv2d(x, zeros([6, 4, 7, 1]), null),
    /a window of 7 over axis -2 of \[2, 4, 5, 5\]/,
  );
  rejects("BAD_SHAPE", () => conv2d(x, weight, null, { stride: 0 }), /stride is 0/);
  rejects("BAD_SHAPE", () => conv2d(x, weight, null, { padding: [1, 1, 1] }), /each of 2 axes/);
  rejects("BAD_DTYPE", () => conv2d(x.to("i32"), weight.to("i32")), /a matrix product needs floats/);
  rejects("BAD_DTYPE", () => maxPool2d(x.to("i32"), 2), /maxPool2d of i32/);
  rejects("BAD_ARGUMENT", () => avgPool2d(x, 2, { divisorOverride: 0 }), /divisorOverride is 0/);
  rejects("BAD_SHAPE", () => maxPool2d(x, 2, { padding: 2 }), /at most half of the kernel/);
  rejects("BAD_SHAPE", () => avgPool2d(zeros([5, 5]), 2), /\[N, C, H, W\] or \[C, H, W\]/);
});
