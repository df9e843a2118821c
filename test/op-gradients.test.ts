/**
 * Every entry of the op table with a gradient, compared with central differences in f64: over random shapes,
 * layouts and attributes, with a random upstream gradient. Entries without a gradient are marked.
 */

import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { HoldfastError } from "holdfast";
import { type KernelOp, opTable } from "../src/ops/index.js";
import { checkGradients } from "./support/central-differences.js";
import { openDevice } from "./support/devices.js";
import { effort } from "./support/effort.js";
import { drawCalls } from "./support/op-cases/draw-calls.js";
import { opCases, testedOps } from "./support/op-cases/index.js";
import { nameOf, type OpCase } from "./support/op-cases/op-case.js";
import { describeCall, runCase } from "./support/op-runs.js";
import { sameBytes } from "./support/same-bytes.js";

const elements = effort({ quick: 12, thorough: 24 });
const seed = 20_240_611;
const callsOfAnOp = effort({ quick: 1, thorough: 36 });

const cpu = openDevice({ threads: 1 });

for (const [name, op] of testedOps) {
  const cases = opCases.filter((opCase) => opCase.op === op);

  if (cases.length === 0) {
    test(`${name} has a case in test/support/op-cases`, () => {
      assert.fail(
        `${name} is in the op table, and no case generates operands for it: add a case to its family's file`,
      );
    });
    continue;
  }

  const hasGradient = op.kind === "composite" ? op.noGradient === undefined : op.gradient !== undefined;
  const differentiable = cases.filter(({ gradients }) => gradients !== "none");

  if (hasGradient && differentiable.length === 0 && op.kind !== "composite") {
    test(`${name}, which has a gradient, has a case that differentiates it`, () => {
      assert.fail(`all cases of ${name} say gradients: "none"`);
    });
  }

  for (const opCase of differentiable) {
    test(`${nameOf(opCase)}: the gradient is what central differences give`, () => {
      const requiresGrad = opCase.gradients as readonly number[];
      const count = Math.ceil(callsOfAnOp / differentiable.length);
      let checked = 0;
      for (const call of drawCalls(opCase, { elements, seed, count })) {
        checked += checkGradients(cpu, opCase.op, call, requiresGrad);
        if (requiresGrad.length > 1) checkAlone(opCase, call);
      }
      assert.ok(checked > 0, "no call has an element");
    });
  }

  for (const opCase of cases.filter(({ gradients }) => gradients === "none")) {
    test(`${nameOf(opCase)}: there is no gradient, and requesting one is rejected or leaves the result without`, () => {
      fc.assert(
        fc.property(opCase.draw(elements), (call) => {
          const floats = call.operands.flatMap((operand, index) =>
            typeof operand === "object" && operand.dtype === "float" ? [index] : [],
          );
          cpu.step(() => {
            try {
              const { upstreams } = runCase(cpu, opCase.op, call, { float: "f64", wanted: floats });
              assert.ok(
                upstreams.every((upstream) => upstream === undefined),
                "an output takes a gradient",
              );
            } catch (error) {
              if (!(error instanceof HoldfastError) || error.code !== "NO_GRADIENT") throw error;
              assert.match(error.message, /has no gradient: \w/, "the rejection has a reason");
            }
          });
        }),
        { seed, numRuns: effort({ quick: 2, thorough: 5 }) },
      );
    });
  }
}

test("a NaN propagates the gradient through relu, maximum and minimum, as in PyTorch", () => {
  const gradientsOf = (name: "relu" | "maximum" | "minimum", ...values: readonly number[]): unknown[] =>
    cpu.step(() => {
      const operands = values.map((value) => cpu.fromHost([value], [1], "f64", "x"));
      for (const operand of operands) operand.requiresGrad = true;
      const y = cpu.apply(opTable[name] as KernelOp, operands, {});
      assert.ok(Number.isNaN(y.item()));
      y.backward(cpu.fromHost([3], [1], "f64", "upstream"));
      return operands.flatMap(({ grad }) => grad?.tolist());
    });
  assert.deepEqual(gradientsOf("relu", Number.NaN), [3]);
  for (const name of ["maximum", "minimum"] as const) {
    assert.deepEqual(gradientsOf(name, Number.NaN, 1), [3, 3]);
    assert.deepEqual(gradientsOf(name, 1, Number.NaN), [3, 3]);
  }
});

/** The saved values depend on the requested gradients: each gradient alone must equal the one among all. */
function checkAlone({ op, gradients }: OpCase, call: Parameters<typeof describeCall>[1]): void {
  const requiresGrad = gradients as readonly number[];
  cpu.step(() => {
    const all = runCase(cpu, op, call, { float: "f64", wanted: requiresGrad });
    for (const index of requiresGrad) {
      const alone = runCase(cpu, op, call, { float: "f64", wanted: [index] });
      const what = `${describeCall(op, call)}: the gradient of operand ${index} requested alone`;
      sameBytes(alone.gradients[index]!, all.gradients[index]!, what);
    }
  });
}
