/**
 * Gradients of gradients: for every entry of the op table with a gradient, the derivative of its recorded gradient along a random
 * direction, compared with a central difference of that gradient in f64.
 */

import assert from "node:assert/strict";
import { test } from "node:test";
import { autograd, type Tensor } from "holdfast";
import { Value } from "../src/autograd/index.js";
import { openDevice } from "./support/devices.js";
import { effort } from "./support/effort.js";
import { randomFrom } from "./support/op-cases/arbitraries.js";
import { drawCalls } from "./support/op-cases/draw-calls.js";
import { opCases } from "./support/op-cases/index.js";
import { type CaseCall, nameOf, type OpCase } from "./support/op-cases/op-case.js";
import { callOp, describeCall, uploadOperand } from "./support/op-runs.js";

/** Below the number of cases with a second derivative other than 0. */
const minCurved = 120;

const elements = effort({ quick: 4, thorough: 12 });
const count = effort({ quick: 1, thorough: 12 });
const seed = 20_261_119;
const step = 1e-5;
const tolerance = 2e-5;

const cpu = openDevice({ threads: 1 });
const differentiable = opCases.filter(({ gradients }) => gradients !== "none");

test("the gradient of every entry's gradient is what central differences give", () => {
  const failures: string[] = [];
  /** Cases with a second derivative other than 0. */
  const curved = new Set<string>();
  for (const opCase of differentiable) {
    for (const call of drawCalls(opCase, { elements, seed, count })) {
      try {
        if (checkCall(opCase, call)) curved.add(nameOf(opCase));
      } catch (error) {
        failures.push(`${describeCall(opCase.op, call)}: ${String(error).slice(0, 300)}`);
      }
    }
  }
  assert.deepEqual(failures, []);
  assert.ok(curved.size >= minCurved, `${curved.size} cases have a second derivative other than 0`);
});

/**
 * Compares Σ weight · d(gradient)/dt along x + t · direction, which one more backward pass gives, with a difference. Returns false if it
 * is 0.
 */
function checkCall({ op, gradients }: OpCase, call: CaseCall): boolean {
  const requested = gradients as readonly number[];
  return cpu.step(() => {
    const random = randomFrom(7 + call.operands.length);
    const randomLike = ({ shape, numel }: Tensor): Tensor =>
      cpu.fromHost(
        Array.from({ length: numel }, () => 2 * random() - 1),
        shape,
        "f64",
        "direction",
      );
    const uploaded = call.operands.map((operand) =>
      typeof operand === "object" ? uploadOperand(cpu, operand, "f64") : undefined,
    );
    const inputs = requested.map((index) => uploaded[index]!.tensor);
    const directions = inputs.map(randomLike);
    let upstreams: { readonly from: Tensor; readonly direction: Tensor }[] | undefined;
    let weights: Tensor[] | undefined;
    const moved = (from: Tensor, direction: Tensor, t: number): Tensor => {
      const leaf = cpu.wrap(new Value(from.add(direction.mul(t)).array));
      leaf.requiresGrad = true;
      return leaf;
    };
    /** The requested gradients, times weights, with operands and upstream gradients at x + t · direction. */
    const weightedAt = (t: number): { readonly variables: readonly Tensor[]; readonly total: Tensor } => {
      const points = inputs.map((input, index) => moved(input, directions[index]!, t));
      const operands = uploaded.map((operand, index) => {
        const place = requested.indexOf(index);
        return operand && place >= 0 ? { ...operand, tensor: points[place]! } : operand;
      });
      const outputs = callOp(cpu, op, call.operands, operands, call.attributes).filter(
        ({ requiresGrad }) => requiresGrad,
      );
      upstreams ??= outputs.map((output) => ({ from: randomLike(output), direction: randomLike(output) }));
      const seeds = upstreams.map(({ from, direction }) => moved(from, direction, t));
      const options = { gradOutputs: seeds, createGraph: true, allowUnused: true };
      const firsts = autograd.grad(outputs, points, options);
      weights ??= points.map(randomLike);
      const total = firsts
        .flatMap((first, index) => (first ? [first.mul(weights![index]!).sum()] : []))
        .reduce((sum, part) => sum.add(part));
      return { variables: [...points, ...seeds], total };
    };
    const { variables, total } = weightedAt(0);
    const along = [...directions, ...(upstreams ?? []).map(({ direction }) => direction)];
    const slopes = total.requiresGrad
      ? autograd
          .grad([total], variables, { allowUnused: true })
          .map((slope, index) => slope?.mul(along[index]!).sum().item() ?? 0)
      : [0];
    const actual = slopes.reduce((sum, slope) => sum + slope, 0);
    const [above, below] = [step, -step].map((t) => weightedAt(t).total.item());
    const expected = (above! - below!) / (2 * step);
    // The mean of nothing is NaN, and so are its derivatives.
    if (Number.isNaN(actual) && inputs.some(({ numel }) => numel === 0)) return false;
    const isNear = Math.abs(actual - expected) <= tolerance * Math.max(1, Math.abs(expected));
    if (!isNear) assert.fail(`the second derivative is ${actual}, and differences give ${expected}`);
    return expected !== 0;
  });
}
