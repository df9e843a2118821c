/**
 * The check that finds a wrong gradient: an op's gradient compared with central differences in f64, element
 * by element.
 */

import assert from "node:assert/strict";
import { noGrad } from "../../src/autograd/index.js";
import type { Op } from "../../src/ops/index.js";
import type { Device } from "../../src/tensor/index.js";
import { centralDifferences, isNear } from "../tolerances.js";
import type { CaseCall } from "./op-cases/op-case.js";
import { callOp, describeCall, runCase, type UploadedOperand } from "./op-runs.js";

/**
 * Fails, and says where, unless the gradient of Σ upstream·output is right at every element of every
 * requested operand. Returns the number of these elements.
 */
export function checkGradients(
  device: Device,
  op: Op,
  call: CaseCall,
  requiresGrad: readonly number[],
): number {
  return device.step(() => {
    let checked = 0;
    const run = runCase(device, op, call, { float: "f64", wanted: requiresGrad });
    const text = describeCall(op, call);
    for (const index of requiresGrad) {
      const operand = run.uploaded[index]!;
      const { shape } = operand.tensor;
      const gradient =
        operand.tensor.grad ?? assert.fail(`${text}: no gradient has arrived at operand ${index}`);
      assert.deepEqual(gradient.shape, shape, `${text}: the shape of the gradient of operand ${index}`);
      assert.equal(gradient.dtype, "f64", `${text}: the dtype of the gradient of operand ${index}`);
    }
    const gradients = requiresGrad.map((index) => run.gradients[index]!);
    noGrad(() => {
      for (const [order, index] of requiresGrad.entries()) {
        const operand = run.uploaded[index]!;
        for (const at of new Set(operand.indices)) {
          checked += 1;
          const expected = difference(at, operand);
          const actual = operand.indices.reduce(
            (sum, other, element) => (other === at ? sum + gradients[order]![element]! : sum),
            0,
          );
          if (isNear(actual, expected, centralDifferences.f64)) continue;
          const element = operand.indices.indexOf(at);
          assert.fail(
            `${text}: the gradient of operand ${index} at element ${element} is ${actual}; differences give ${expected}`,
          );
        }
      }
    });
    return checked;

    /** d(Σ upstream·output)/dx at one element of an operand's memory. */
    function difference(place: number, operand: UploadedOperand): number {
      const before = operand.memory[place]!;
      const step = centralDifferences.step * Math.max(1, Math.abs(before));
      const sides = [before + step, before - step];
      const [above = [], below = []] = sides.map((value) => {
        operand.memory[place] = value;
        operand.rewrite();
        const outputs = callOp(device, op, call.operands, run.uploaded, call.attributes);
        const read = outputs.map((output) => output.dataSync());
        return read;
      });
      operand.memory[place] = before;
      operand.rewrite();
      let sum = 0;
      for (const [output, upstream] of run.upstreams.entries()) {
        if (!upstream) continue;
        for (const [at, weight] of upstream.entries())
          sum += weight * (above[output]![at]! - below[output]![at]!);
      }
      return sum / (sides[0]! - sides[1]!);
    }
  });
}
