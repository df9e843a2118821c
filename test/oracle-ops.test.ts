/** Every op case of the oracle: values and all gradients equal PyTorch's, in f64 and in f32; in a quick run in one of them. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { readSafetensors } from "../src/data/index.js";
import { type Dtype, viewElements } from "../src/ir/index.js";
import type { Tensor } from "../src/tensor/index.js";
import { openDevice } from "./support/devices.js";
import { isThorough } from "./support/effort.js";
import { type OracleCall, type OracleCase, oracleCalls } from "./support/oracle-calls.js";
import { readRepositoryFile, repositoryRoot } from "./support/repository.js";
import { isNear, type Tolerance, tolerances } from "./tolerances.js";

const floats = ["f64", "f32"] as const;
const cpu = openDevice({ threads: 1 });
const { cases } = JSON.parse(readRepositoryFile("test/oracle/ops.json")) as { cases: readonly OracleCase[] };
const { tensors } = readSafetensors(readFileSync(join(repositoryRoot, "test/oracle/ops.safetensors")));

test("the oracle has 152 cases, and Holdfast has a call for each of its ops", () => {
  assert.equal(cases.length, 152);
  const missing = new Set(cases.map(({ op }) => op).filter((op) => !oracleCalls[op]));
  assert.deepEqual([...missing], []);
});

for (const [index, oracleCase] of cases.entries()) {
  // In a quick run the cases have f64 and f32 in turn.
  for (const float of isThorough ? floats : [floats[index % floats.length]!]) {
    test(`${oracleCase.name}, ${oracleCase.op} ${JSON.stringify(oracleCase.attrs)}: value and gradients in ${float}`, () => {
      const call = oracleCalls[oracleCase.op] ?? assert.fail(`no call stands for ${oracleCase.op}`);
      check(oracleCase, float, call);
    });
  }
}

test("red proof: a value that is off by 1e-8 in f64 or 1e-4 in f32 is found, and so is a gradient", () => {
  const multiplication = cases.find(({ op }) => op === "mul")!;
  for (const [float, error] of [["f64", 1e-8] as const, ["f32", 1e-4] as const]) {
    const wrongValue: OracleCall = ([a, b]) => a.mul(b!).mul(1 + error);
    const wrongGradient: OracleCall = ([a, b]) => a.mul(b!).add(a.sub(a.detach()).mul(error));
    for (const call of [wrongValue, wrongGradient]) {
      assert.throws(() => check(multiplication, float, call), assert.AssertionError);
    }
    check(multiplication, float, ([a, b]) => a.mul(b!));
  }
});

function check(oracleCase: OracleCase, float: "f32" | "f64", call: OracleCall): void {
  cpu.step(() => {
    const operands = oracleCase.inputs.map((name, index) => {
      const operand = upload(name, float);
      if (oracleCase.grads[index]) operand.requiresGrad = true;
      return operand;
    });
    const result = call(operands as [Tensor, ...Tensor[]], oracleCase.attrs);
    const outputs = Array.isArray(result) ? (result as readonly Tensor[]) : [result as Tensor];
    assert.equal(outputs.length, oracleCase.outputs.length, "the number of outputs");
    for (const [index, output] of outputs.entries()) {
      requireNear(output, oracleCase.outputs[index]!, tolerances["oracle value"][float]);
    }
    if (oracleCase.grads.every((name) => !name)) return;
    for (const [index, output] of outputs.entries()) {
      output.backward(upload(oracleCase.upstream[index]!, float), { retainGraph: true });
    }
    for (const [index, name] of oracleCase.grads.entries()) {
      if (!name) continue;
      const gradient = operands[index]!.grad ?? assert.fail(`no gradient at ${oracleCase.inputs[index]}`);
      requireNear(gradient, name, tolerances["oracle gradient"][float]);
    }
  });
}

/** A tensor of the oracle: floats in the dtype under test, and its indices in Holdfast's. */
function upload(name: string, float: "f32" | "f64"): Tensor {
  const { shape, dtype, values } = find(name);
  return cpu.fromHost(values, shape, dtype === "f64" ? float : dtype, name);
}

function find(name: string): { shape: readonly number[]; dtype: Dtype; values: ArrayLike<number> } {
  const { shape, dtype, bytes } = tensors.get(name) ?? assert.fail(`the oracle has no tensor ${name}`);
  const elements = viewElements(dtype, bytes);
  const values = elements instanceof BigInt64Array ? Float64Array.from(elements, Number) : elements;
  return { shape, dtype, values };
}

function requireNear(actual: Tensor, name: string, tolerance: Tolerance): void {
  const { shape, values } = find(name);
  assert.deepEqual(actual.shape, shape, `the shape of ${name}`);
  const elements = actual.dataSync();
  // In f32 the terms of a matrix product cancel to less than their rounding errors.
  const scale = actual.dtype === "f32" ? Math.max(1, ...Array.from(values, Math.abs)) : 1;
  for (let at = 0; at < elements.length; at++) {
    if (isNear(elements[at]!, values[at]!, tolerance, scale)) continue;
    assert.fail(`${name} at element ${at} is ${elements[at]}; PyTorch has ${values[at]}`);
  }
}
