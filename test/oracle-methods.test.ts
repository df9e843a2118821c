/** Methods of tensors and functions against PyTorch's results and gradients, in f64 and f32: elementwise functions, shapes, selections. */

import assert from "node:assert/strict";
import { test } from "node:test";
import type { Tensor } from "../src/tensor/index.js";
import { openDevice } from "./support/devices.js";
import {
  callMethod,
  type MethodCase,
  type MethodNumeral,
  type MethodOperand,
  methodCases,
  methodFiles,
} from "./support/method-calls.js";
import { isNear, type Tolerance, tolerances } from "./tolerances.js";

const cpu = openDevice({ threads: 1 });

for (const file of methodFiles) {
  const cases = methodCases(file);
  for (const name of new Set(cases.map((oracleCase) => oracleCase.name))) {
    test(`${name} gives PyTorch's values and gradients`, () => {
      for (const oracleCase of cases) if (oracleCase.name === name) check(oracleCase);
    });
  }
}

test("red proof: a value that is off by 1e-9 in f64 is found, and so is a zero of the other sign", () => {
  const oracleCase: MethodCase = {
    ...{ name: "red", method: "mul", inputs: [array([1, -0])], args: [1] },
    outputs: [array([1 + 1e-9, "-0"])],
  };
  assert.throws(() => check(oracleCase), /red: output 0, element 0/);
  assert.throws(() => check({ ...oracleCase, outputs: [array([1, 0])] }), /red: output 0, element 1/);
  check({ ...oracleCase, outputs: [array([1, "-0"])] });
});

function array(values: readonly MethodNumeral[]): MethodOperand {
  return { dtype: "f64", shape: [values.length], values };
}

function check(oracleCase: MethodCase): void {
  cpu.step(() => {
    const inputs = oracleCase.inputs.map(({ values, shape, dtype }, index) => {
      const input = cpu.fromHost(values.map(Number), shape, dtype, `input ${index}`);
      if (oracleCase.grads?.[index]) input.requiresGrad = true;
      return input;
    });
    const outputs = callMethod(oracleCase, inputs);
    const float = oracleCase.inputs.some(({ dtype }) => dtype === "f32") ? "f32" : "f64";
    assert.equal(outputs.length, oracleCase.outputs.length, "the number of outputs");
    for (const [index, expected] of oracleCase.outputs.entries()) {
      requireNear(outputs[index]!, expected, tolerances["oracle value"][float], `output ${index}`);
    }
    if (!oracleCase.grads) return;
    for (const output of outputs) {
      if (!output.requiresGrad) continue;
      const upstream = Float64Array.from({ length: output.numel }, (_, index) => Math.cos(index + 1));
      output.backward(cpu.fromHost(upstream, output.shape, output.dtype, "upstream"), { retainGraph: true });
    }
    for (const [index, expected] of oracleCase.grads.entries()) {
      if (!expected) continue;
      const gradient =
        inputs[index]!.grad ?? assert.fail(`${oracleCase.name}: no gradient of input ${index}`);
      requireNear(gradient, expected, tolerances["oracle gradient"][float], `gradient ${index}`);
    }
  });

  function requireNear(actual: Tensor, expected: MethodOperand, tolerance: Tolerance, what: string): void {
    const where = `${oracleCase.name}: ${what}`;
    assert.deepEqual(actual.shape, expected.shape, `${where}, the shape`);
    assert.equal(actual.dtype, expected.dtype, `${where}, the dtype`);
    const elements = actual.dataSync();
    for (const [at, numeral] of expected.values.entries()) {
      const value = Number(numeral);
      const element = elements[at]!;
      const isOtherZero =
        what.startsWith("output") && element === 0 && value === 0 && !Object.is(element, value);
      if (!isOtherZero && isNear(element, value, tolerance)) continue;
      const operands = oracleCase.inputs.map(({ values }) => values[at]).join(", ");
      assert.fail(`${where}, element ${at} of (${operands}) is ${element}; PyTorch has ${value}`);
    }
  }
}
