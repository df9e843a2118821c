/** Functions of nn.functional: values, all gradients and updated operands equal PyTorch's, in f64 and in f32, eager and compiled. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { noGrad, type Tensor } from "holdfast";
import { openStrictDevice } from "./support/devices.js";
import { isThorough } from "./support/effort.js";
import { layerCalls, moduleCalls } from "./support/layer-calls.js";
import { readRepositoryFile } from "./support/repository.js";
import { sameBytes } from "./support/same-bytes.js";
import { isNear, type Tolerance, tolerances } from "./tolerances.js";

interface Listed {
  readonly shape: readonly number[];
  readonly dtype: "float" | "i32" | "bool";
  readonly values: readonly number[];
}

interface LayerCase {
  readonly op: string;
  readonly attrs: Readonly<Record<string, unknown>>;
  readonly inputs: readonly (Listed | null)[];
  readonly output: Listed;
  readonly upstream: Listed | null;
  readonly grads: readonly (Listed | null)[];
  readonly updated: Readonly<Record<string, Listed>>;
}

interface ModuleCase extends Omit<LayerCase, "output" | "updated"> {
  readonly parameters: readonly Listed[];
  readonly outputs: readonly Listed[];
  /** The sum of the gradient of each parameter. */
  readonly gradientSums: readonly number[];
}

const floats = ["f64", "f32"] as const;
const cpu = openStrictDevice();
const { cases, modules } = JSON.parse(readRepositoryFile("test/oracle/layers.json")) as {
  readonly cases: readonly LayerCase[];
  readonly modules: readonly ModuleCase[];
};

test("the oracle has a case of each function with a call, and no other", () => {
  assert.deepEqual([...new Set(cases.map(({ op }) => op))].sort(), Object.keys(layerCalls).sort());
});

for (const [index, layerCase] of cases.entries()) {
  const { op, attrs, inputs } = layerCase;
  const shapes = inputs.map((input) => (input ? `[${input.shape.join(", ")}]` : "none")).join(", ");
  test(`${index}, ${op} of ${shapes} ${JSON.stringify(attrs)}: value and gradients`, () => {
    // In a quick run the cases have f64 and f32 in turn.
    for (const float of isThorough ? floats : [floats[index % floats.length]!])
      cpu.step(() => check(layerCase, float));
  });
}

test("compiled and eager calls have the same bits", () => {
  const sample = cases.filter((_, index) => isThorough || index % 5 === 0);
  const run = (): Tensor[] => sample.flatMap((layerCase) => runCase(layerCase, "f32").results);
  const eager = cpu.step(() => run().map((tensor) => tensor.dataSync()));
  const step = cpu.compile(run, { passes: { verticalFusion: false } });
  for (const [index, tensor] of [...step()].entries())
    sameBytes(tensor.dataSync(), eager[index]!, `result ${index}`);
  step.close();
});

test("red proof: a gradient that is off by 1e-8 is found", () => {
  const [first] = cases;
  const wrong = {
    ...first!,
    grads: first!.grads.map((grad) => grad && { ...grad, values: grad.values.map((v) => v + 1e-8) }),
  };
  cpu.step(() => assert.throws(() => check(wrong, "f64"), /the gradient of operand 0/));
});

for (const moduleCase of modules) {
  test(`${moduleCase.op} ${JSON.stringify(moduleCase.attrs)}: results, and gradients of inputs and parameters`, () => {
    const { op, attrs, inputs, parameters, outputs, upstream, grads, gradientSums } = moduleCase;
    const { module, call } = moduleCalls[op]?.(attrs) ?? assert.fail(`no call stands for ${op}`);
    const named = [...module.to(cpu, "f64").eval().namedParameters()];
    assert.equal(named.length, parameters.length);
    for (const [index, [, parameter]] of named.entries()) {
      assert.deepEqual(parameter.shape, parameters[index]!.shape);
      parameter.initialize(() => parameters[index]!.values);
    }
    cpu.step(() => {
      const operands = inputs.map((input, index) => {
        const dtype = input!.dtype === "float" ? "f64" : input!.dtype;
        const operand = cpu.fromHost(input!.values, input!.shape, dtype);
        if (grads[index]) operand.requiresGrad = true;
        return operand;
      });
      const results = call(operands);
      for (const [index, output] of outputs.entries())
        requireNear(results[index]!, output, tolerances["oracle value"].f64, `result ${index}`);
      results[0]!.backward(cpu.fromHost(upstream!.values, upstream!.shape, "f64"));
      for (const [index, gradient] of grads.entries()) {
        if (!gradient) continue;
        requireNear(operands[index]!.grad!, gradient, tolerances["oracle gradient"].f64, `gradient ${index}`);
      }
      for (const [index, [name, parameter]] of named.entries()) {
        const sum = parameter.grad!.sum().item();
        assert.ok(Math.abs(sum - gradientSums[index]!) < 1e-9, `the gradient of ${name}`);
      }
    });
  });
}

interface CaseRun {
  readonly operands: readonly (Tensor | null)[];
  readonly output: Tensor;
  /** The output, the gradients and the updated operands. */
  readonly results: readonly Tensor[];
}

function runCase({ op, attrs, inputs, upstream, grads, updated }: LayerCase, float: "f32" | "f64"): CaseRun {
  const upload = ({ values, shape, dtype }: Listed): Tensor =>
    cpu.fromHost(values, shape, dtype === "float" ? float : dtype);
  const operands = inputs.map((input, index) => {
    if (!input) return null;
    const operand = upload(input);
    if (grads[index]) operand.requiresGrad = true;
    return operand;
  });
  const call = layerCalls[op] ?? assert.fail(`no call stands for ${op}`);
  const given = operands.map((operand) => operand ?? undefined) as unknown as [Tensor];
  const output = upstream ? call(given, attrs) : noGrad(() => call(given, attrs));
  if (upstream) output.backward(upload(upstream));
  const gradients = operands.flatMap((operand, index) => (grads[index] ? (operand?.grad ?? []) : []));
  const written = Object.keys(updated).flatMap((index) => operands[Number(index)] ?? []);
  return { operands, output, results: [output, ...gradients, ...written] };
}

function check(layerCase: LayerCase, float: "f32" | "f64"): void {
  const { operands, output } = runCase(layerCase, float);
  requireNear(output, layerCase.output, tolerances["oracle value"][float], "the value");
  for (const [index, gradient] of layerCase.grads.entries()) {
    if (!gradient) continue;
    const actual = operands[index]?.grad ?? assert.fail(`operand ${index} has no gradient`);
    requireNear(actual, gradient, tolerances["oracle gradient"][float], `the gradient of operand ${index}`);
  }
  for (const [index, written] of Object.entries(layerCase.updated))
    requireNear(operands[Number(index)]!, written, tolerances["oracle value"][float], `operand ${index}`);
}

function requireNear(actual: Tensor, { shape, values }: Listed, tolerance: Tolerance, what: string): void {
  assert.deepEqual(actual.shape, shape, `the shape of ${what}`);
  const elements = actual.dataSync();
  const finite = values.filter(Number.isFinite).map(Math.abs);
  const scale = actual.dtype === "f32" ? Math.max(1, ...finite) : 1;
  for (const [at, expected] of values.entries()) {
    if (isNear(elements[at]!, expected, tolerance, scale)) continue;
    assert.fail(`${what} at element ${at} is ${elements[at]}; PyTorch has ${expected}`);
  }
}
