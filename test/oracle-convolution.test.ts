/** Convolutions and pools: values and all gradients equal PyTorch's, in f64 and in f32. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { avgPool1d, avgPool2d, conv1d, conv2d, maxPool1d, maxPool2d, type Tensor } from "holdfast";
import { openStrictDevice } from "./support/devices.js";
import type { ConvolutionCase, Listed } from "./support/oracle-records.js";
import { readRepositoryFile } from "./support/repository.js";
import { isNear, type Tolerance, tolerances } from "./tolerances.js";

const cpu = openStrictDevice();
const { cases } = JSON.parse(readRepositoryFile("test/oracle/convolution.json")) as {
  readonly cases: readonly ConvolutionCase[];
};

const convolutions: Readonly<Record<string, typeof conv1d>> = { conv1d, conv2d };
const pools: Readonly<Record<string, typeof avgPool1d>> = {
  max_pool1d: maxPool1d,
  max_pool2d: maxPool2d,
  avg_pool1d: avgPool1d,
  avg_pool2d: avgPool2d,
};

test("the oracle has 14 cases, of every convolution and pool", () => {
  assert.equal(cases.length, 14);
  const ops = new Set(cases.map(({ op }) => op));
  assert.deepEqual([...ops], [...Object.keys(convolutions), ...Object.keys(pools)]);
});

for (const { op, attrs, inputs, output, upstream, grads } of cases) {
  const shapes = inputs.map((input) => (input ? `[${input.shape.join(", ")}]` : "none")).join(", ");
  for (const float of ["f64", "f32"] as const) {
    test(`${op} of ${shapes} ${JSON.stringify(attrs)}: value and gradients in ${float}`, () => {
      cpu.step(() => {
        const upload = ({ values, shape }: Listed): Tensor => cpu.fromHost(values, shape, float);
        const operands = inputs.map((input) => {
          if (!input) return null;
          const operand = upload(input);
          operand.requiresGrad = true;
          return operand;
        });
        const result = callOp(op, attrs, operands);
        requireNear(result, output, tolerances["oracle value"][float], "the value");
        result.backward(upload(upstream));
        for (const [index, gradient] of grads.entries()) {
          if (!gradient) continue;
          const tolerance = tolerances["oracle gradient"][float];
          requireNear(operands[index]!.grad!, gradient, tolerance, `the gradient of operand ${index}`);
        }
      });
    });
  }
}

function callOp(
  op: string,
  { kernel_size, ...options }: ConvolutionCase["attrs"],
  [x, weight, bias]: readonly (Tensor | null | undefined)[],
): Tensor {
  const convolution = convolutions[op];
  if (convolution) return convolution(x!, weight!, bias ?? null, options);
  return pools[op]!(x!, kernel_size!, options);
}

function requireNear(actual: Tensor, { shape, values }: Listed, tolerance: Tolerance, what: string): void {
  assert.deepEqual(actual.shape, shape, `the shape of ${what}`);
  const elements = actual.dataSync();
  const scale = actual.dtype === "f32" ? Math.max(1, ...values.map(Math.abs)) : 1;
  for (const [at, expected] of values.entries()) {
    if (isNear(elements[at]!, expected, tolerance, scale)) continue;
    assert.fail(`${what} at element ${at} is ${elements[at]}; PyTorch has ${expected}`);
  }
}
