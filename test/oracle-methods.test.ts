/** Methods of tensors and functions against PyTorch's results and gradients, in f64 and f32: elementwise functions, shapes, selections. */

import assert from "node:assert/strict";
import { test } from "node:test";
import * as holdfast from "holdfast";
import type { Dtype } from "../src/ir/index.js";
import type { Tensor } from "../src/tensor/index.js";
import { openDevice } from "./support/devices.js";
import { readRepositoryFile } from "./support/repository.js";
import { isNear, type Tolerance, tolerances } from "./tolerances.js";

type Numeral = number | "NaN" | "Infinity" | "-Infinity" | "-0";
interface OracleArray {
  readonly dtype: Dtype;
  readonly shape: readonly number[];
  readonly values: readonly Numeral[];
}
interface Case {
  readonly name: string;
  readonly method?: string;
  readonly function?: string;
  readonly inputs: readonly OracleArray[];
  readonly args: readonly unknown[];
  readonly outputs: readonly OracleArray[];
  readonly grads?: readonly (OracleArray | null)[];
}
type AnyFunction = (this: unknown, ...args: readonly unknown[]) => unknown;

const cpu = openDevice({ threads: 1 });

for (const file of ["elementwise", "shapes", "selections"]) {
  const cases = JSON.parse(readRepositoryFile(`test/oracle/${file}.json`)) as readonly Case[];
  for (const name of new Set(cases.map((oracleCase) => oracleCase.name))) {
    test(`${name} gives PyTorch's values and gradients`, () => {
      for (const oracleCase of cases) if (oracleCase.name === name) check(oracleCase);
    });
  }
}

test("red proof: a value that is off by 1e-9 in f64 is found, and so is a zero of the other sign", () => {
  const oracleCase: Case = {
    ...{ name: "red", method: "mul", inputs: [array([1, -0])], args: [1] },
    outputs: [array([1 + 1e-9, "-0"])],
  };
  assert.throws(() => check(oracleCase), /red: output 0, element 0/);
  assert.throws(() => check({ ...oracleCase, outputs: [array([1, 0])] }), /red: output 0, element 1/);
  check({ ...oracleCase, outputs: [array([1, "-0"])] });
});

function array(values: readonly Numeral[]): OracleArray {
  return { dtype: "f64", shape: [values.length], values };
}

function check(oracleCase: Case): void {
  cpu.step(() => {
    const inputs = oracleCase.inputs.map(({ values, shape, dtype }, index) => {
      const input = cpu.fromHost(values.map(Number), shape, dtype, `input ${index}`);
      if (oracleCase.grads?.[index]) input.requiresGrad = true;
      return input;
    });
    const outputs = call(oracleCase, inputs);
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

  function requireNear(actual: Tensor, expected: OracleArray, tolerance: Tolerance, what: string): void {
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

function call(oracleCase: Case, inputs: readonly Tensor[]): readonly Tensor[] {
  const args = oracleCase.args.map((arg) => resolve(arg, inputs));
  const [self] = inputs;
  const name = oracleCase.method ?? oracleCase.function ?? "";
  const owner = (oracleCase.method ? self : holdfast) as unknown as Readonly<Record<string, AnyFunction>>;
  const result = (owner[name] ?? assert.fail(`there is no ${name}`)).call(self, ...args);
  if (Array.isArray(result)) return result as readonly Tensor[];
  return result instanceof holdfast.Tensor ? [result] : (Object.values(result as object) as Tensor[]);
}

/** "$n" is input n, also inside of lists. */
function resolve(arg: unknown, inputs: readonly Tensor[]): unknown {
  if (Array.isArray(arg)) return arg.map((item) => resolve(item, inputs));
  if (typeof arg === "object" && arg !== null) {
    return Object.fromEntries(Object.entries(arg).map(([key, item]) => [key, resolve(item, inputs)]));
  }
  const index = typeof arg === "string" && /^\$(\d+)$/.exec(arg)?.[1];
  return index ? (inputs[Number(index)] ?? assert.fail(`no input ${index}`)) : arg;
}
