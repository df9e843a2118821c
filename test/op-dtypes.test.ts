/**
 * Every op in f32, f16 and bf16 compared with f64, on the same numbers: values and gradients agree within the
 * dtype's precision. The narrow dtypes run through other kernels, in vectors, with conversions.
 */

import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { dtypes } from "../src/ir/index.js";
import { contiguous, mul, type Op } from "../src/ops/index.js";
import { openDevice } from "./support/devices.js";
import { effort, isThorough } from "./support/effort.js";
import { drawCalls } from "./support/op-cases/draw-calls.js";
import { opCases, testedOps } from "./support/op-cases/index.js";
import { type CaseCall, type CaseOperand, nameOf, type OpCase } from "./support/op-cases/op-case.js";
import { type CaseRun, describeCall, runCase, uploadOperand } from "./support/op-runs.js";
import { type FloatDtype, isNear, tolerances } from "./tolerances.js";

const seed = 20_240_611;
const elements = 120;
const floats = ["f32", "f16", "bf16"] as const satisfies readonly FloatDtype[];
const cpu = openDevice({ threads: 1 });

for (const [index, op] of [...new Set(testedOps.map(([, op]) => op))].entries()) {
  for (const [place, opCase] of opCases.filter((candidate) => candidate.op === op).entries()) {
    // In a quick run each case has one dtype, and the next case another.
    const own = isThorough ? floats : [floats[(index + place) % floats.length]!];
    test(`${nameOf(opCase)}: ${own.join(", ")} and f64 agree`, () => {
      const calls = drawCalls(opCase, { elements, seed, count: effort({ quick: 1, thorough: 8 }) });
      for (const call of calls) for (const float of own) compare(opCase, call, float);
    });
  }
}

test("red proof: an op that is a ten-thousandth off only in f32 is found", () => {
  const wrong: Op = {
    kind: "composite",
    name: "wrong in f32",
    infer: (operands, attributes) => contiguous.infer(operands, attributes),
    compose: ({ apply, typeOf }, [x = 0]) => [apply(mul, [x, typeOf(x).dtype === "f32" ? 1.0001 : 1])],
  };
  const [copyCase] = opCases.filter(({ op }) => op === contiguous);
  const calls = fc.sample(copyCase!.draw(elements), { seed, numRuns: 8 });
  assert.throws(() => {
    for (const call of calls) compare({ ...copyCase!, op: wrong }, call, "f32");
  }, assert.AssertionError);
});

function compare({ op, gradients }: OpCase, call: CaseCall, float: FloatDtype): void {
  cpu.step(() => {
    const rounded = { ...call, operands: call.operands.map((operand) => round(operand, float)) };
    const requiresGrad = gradients === "none" ? [] : gradients;
    const exact = runCase(cpu, op, rounded, { float: "f64", wanted: requiresGrad });
    const actual = runCase(cpu, op, rounded, { float, wanted: requiresGrad });
    const text = `${describeCall(op, call)} in ${float}`;
    for (const [index, type] of actual.outputTypes.entries()) {
      assert.deepEqual(type.shape, exact.outputTypes[index]?.shape, `${text}: the shape of output ${index}`);
      assert.equal(
        dtypes[type.dtype].kind,
        dtypes[exact.outputTypes[index]!.dtype].kind,
        `${text}: the dtype`,
      );
    }
    requireNear(actual, exact, "outputs", float, text);
    requireNear(actual, exact, "gradients", float, text);
  });
}

function requireNear(
  actual: CaseRun,
  exact: CaseRun,
  what: "outputs" | "gradients",
  float: FloatDtype,
  text: string,
): void {
  for (const [index, expected] of exact[what].entries()) {
    if (!expected) continue;
    const values = actual[what][index] ?? assert.fail(`${text}: ${what} ${index} is missing`);
    assert.equal(values.length, expected.length, `${text}: the length of ${what} ${index}`);
    // Sums of large terms cancel to less than the terms' rounding errors.
    const scale = Math.max(1, ...Array.from(expected, Math.abs).filter(Number.isFinite));
    for (const [at, value] of expected.entries()) {
      if (isNear(values[at]!, value, tolerances["against f64"][float], scale)) continue;
      assert.fail(`${text}: ${what} ${index} at element ${at} is ${values[at]}; f64 has ${value}`);
    }
  }
}

/** An operand's numbers, rounded to the dtype. */
function round(operand: CaseOperand, float: FloatDtype): CaseOperand {
  if (typeof operand !== "object" || operand.dtype !== "float") return operand;
  return { ...operand, values: [...uploadOperand(cpu, operand, float).tensor.dataSync()] };
}
