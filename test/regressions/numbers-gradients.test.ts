/**
 * N6: gradients lacked a transpose, a 1/N or a factor 2, or treated axis −1 as all axes, and square matrices
 * and gradients of ones hid it. The check that every entry of the op table passes must find each of these.
 */

import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import {
  type Attributes,
  add,
  contiguous,
  functions,
  type GradientRule,
  type Gradients,
  type KernelOp,
  matmul,
  mean,
  mul,
  type Op,
  permute,
  type ReductionAttributes,
  sum,
} from "../../src/ops/index.js";
import { checkGradients } from "../support/central-differences.js";
import { openDevice } from "../support/devices.js";
import { effort } from "../support/effort.js";
import { opCases } from "../support/op-cases/index.js";
import { type CaseCall, nameOf, type OpCase } from "../support/op-cases/op-case.js";
import { regressionRow } from "../support/regressions.js";

const cpu = openDevice({ threads: 1 });

type Rule<A extends Attributes> = <V>(rule: GradientRule<V, A>) => Gradients<V>;

/** The op with another gradient, and with everything saved for it. */
function injected<A extends Attributes>(op: Op<A>, gradient: Rule<A>): Op {
  const kernel = op as KernelOp<A>;
  return { ...kernel, saves: () => ({ operands: [0, 1], outputs: [0] }), gradient } as unknown as Op;
}

/** Runs the check of test/op-gradients.test.ts: the op's own cases, with another op in its place. */
function row<A extends Attributes>(
  name: string,
  sound: Op<A>,
  faults: Record<string, Op>,
  only?: string,
): void {
  const cases = opCases.filter(
    (opCase) => opCase.op === (sound as unknown as Op) && (!only || nameOf(opCase) === only),
  );
  regressionRow<Op>({
    row: "N6",
    rule: `the gradient of ${name} equals central differences, under a random upstream gradient`,
    sound: sound as unknown as Op,
    faults,
    check(op) {
      for (const { draw, gradients } of cases) {
        if (gradients === "none") continue;
        for (const call of fc.sample(draw(24), { seed: 6, numRuns: effort({ quick: 5, thorough: 25 }) }))
          checkGradients(cpu, op, call, gradients);
      }
    },
  });
}

row("mul", mul, {
  "each operand is multiplied by itself and not by the other": injected(
    mul,
    (rule) => mul.gradient?.({ ...rule, operand: (index) => rule.operand(1 - index) }) ?? [],
  ),
});

row("a broadcast operand", add, {
  "a broadcast operand is averaged and not summed": injected(add, (rule) => {
    const apply: typeof rule.apply = (op, operands, attributes) =>
      rule.apply((op as unknown) === sum ? (mean as unknown as typeof op) : op, operands, attributes);
    return add.gradient?.({ ...rule, apply }) ?? [];
  }),
});

row("square", functions.square, {
  "without its factor 2": injected(functions.square, ({ apply, upstream, operand }) => [
    apply(mul, [upstream, operand(0)]),
  ]),
});

/** The gradient of a mean, with another count. */
function meanWith(count: (shape: readonly number[], axes: ReductionAttributes["axes"]) => number): Op {
  return injected<ReductionAttributes>(mean, (rule) => {
    const { shape } = rule.typeOf(0);
    const scaled = rule.apply(mul, [rule.upstream, 1 / count(shape, rule.attributes.axes)]);
    return sum.gradient?.({ ...rule, upstream: scaled }) ?? [];
  });
}

row("mean", mean, {
  "without 1/N": meanWith(() => 1),
  "axis −1 treated as all axes": meanWith((shape) => shape.reduce((count, size) => count * size, 1)),
});

const transpose = <V>({ apply }: GradientRule<V, Attributes>, matrix: V | number): V =>
  apply(permute, [matrix], { axes: [1, 0] });

row(
  "matmul of square matrices",
  matmul,
  {
    "the right matrix is not transposed": injected(matmul, (rule) => [
      rule.apply(matmul, [rule.upstream, rule.operand(1)]),
      rule.apply(matmul, [transpose(rule, rule.operand(0)), rule.upstream]),
    ]),
    "the gradient of the left matrix is transposed as a whole": injected(matmul, (rule) => [
      rule.apply(matmul, [rule.upstream, transpose(rule, rule.operand(1))]),
      rule.apply(matmul, [transpose(rule, rule.upstream), rule.operand(0)]),
    ]),
  },
  "matmul, square",
);

/** Returns its operand, and adds a hundredth to the gradient in backward. */
const hundredthOff = injected(contiguous, ({ apply, upstream }) => [apply(add, [upstream, 0.01])]);

/** The op, with a gradient that is a hundredth off for one operand. */
function slightlyWrong(op: Op, index: number): Op {
  return {
    kind: "composite",
    name: `${op.name}, a hundredth off`,
    infer: (operands, attributes) => op.infer(operands, attributes),
    compose: ({ apply }, operands, attributes) => [
      apply(
        op,
        operands.map((operand, at) => (at === index ? apply(hundredthOff, [operand]) : operand)),
        attributes,
      ),
    ],
  };
}

function callsOf({ draw }: OpCase, count: number): readonly CaseCall[] {
  return fc.sample(draw(24), { seed: 6, numRuns: count });
}

test("N6, red proof: for every case of the op table, a gradient that is a hundredth off for any operand is found", () => {
  const unseen: string[] = [];
  for (const opCase of opCases) {
    if (opCase.gradients === "none") continue;
    const few = callsOf(opCase, 4);
    for (const index of opCase.gradients) {
      const sees = (call: CaseCall): boolean => {
        try {
          checkGradients(cpu, slightlyWrong(opCase.op, index), call, [index]);
          return false;
        } catch (error) {
          assert.ok(error instanceof assert.AssertionError, String(error));
          return true;
        }
      };
      if (!few.some(sees) && !callsOf(opCase, 20).some(sees))
        unseen.push(`${nameOf(opCase)}, operand ${index}`);
    }
  }
  assert.deepEqual(unseen, []);
});
