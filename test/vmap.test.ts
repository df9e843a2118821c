/** vmap: each op with a batching rule equals a loop over the members, and so do gradients, nesting and compiled steps. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { autograd, nn, noGrad, ones, rand, randn, stack, type Tensor, tensor, vmap, zeros } from "holdfast";
import { opTable } from "../src/ops/index.js";
import { broadcasts } from "../src/tensor/vmap/rules/axes.js";
import { batchingRuleOf, unknownRuleNames } from "../src/tensor/vmap/rules/table.js";
import { openDevice } from "./support/devices.js";
import { effort, isThorough } from "./support/effort.js";
import { drawCalls } from "./support/op-cases/draw-calls.js";
import { opCases } from "./support/op-cases/index.js";
import type { CaseCall, OpCase } from "./support/op-cases/op-case.js";
import { describeCall, uploadOperand } from "./support/op-runs.js";
import { rejects } from "./support/rejects.js";

const cpu = openDevice({ threads: 1 });
const size = 3;

/** Ops without a batching rule, or with one for some calls only. */
const unsupported =
  `batchNorm normalizeChannels runningAverage recurrent batchedLinear fusedProjections random causalMask luPermutation
  orthonormalComplement gapQuotient dropout attentionWithDropout`.split(/\s+/);

test("the table of rules names ops of the op table", () => {
  assert.deepEqual(unknownRuleNames(), []);
});

const ops = [...new Set(Object.values(opTable))].filter(({ name }) => !unsupported.includes(name));
const elementwise = ops.filter((op) => batchingRuleOf(op) === broadcasts);
// Elementwise ops share a rule, so a quick run has a few of them.
const tested = isThorough
  ? ops
  : ops.filter((op) => !elementwise.includes(op) || elementwise.indexOf(op) % 12 === 0);

for (const op of tested) {
  test(`vmap of ${op.name} equals a loop over members`, () => {
    const cases = opCases.filter((candidate) => candidate.op === op);
    for (const [index, opCase] of (isThorough ? cases : cases.slice(-1)).entries()) {
      const count = effort({ quick: 1, thorough: 4 });
      for (const call of drawCalls(opCase, { elements: 24, seed: 11 + index, count })) compare(opCase, call);
    }
  });
}

/** The operands that must be the same for all members. */
function sharedOperands({ op }: OpCase, { attributes }: CaseCall): readonly number[] {
  if (op.name === "crossEntropy" || op.name === "nllLoss") return [2];
  return op.name === "embedding" && "paddingIdx" in attributes ? [0] : [];
}

/** One operand differs between members, then all do. */
function compare(opCase: OpCase, call: CaseCall): void {
  const { op } = opCase;
  const fixed = sharedOperands(opCase, call);
  const tensors = call.operands.flatMap((operand, index) =>
    typeof operand === "object" && !fixed.includes(index) ? [index] : [],
  );
  for (const batched of tensors.length > 1 ? [tensors.slice(0, 1), tensors] : [tensors]) {
    cpu.step(() => {
      const shared = call.operands.map((operand) =>
        typeof operand === "object" ? uploadOperand(cpu, operand, "f64").tensor : operand,
      );
      const wholes = shared.map((operand, index) => {
        if (typeof operand !== "object" || !batched.includes(index)) return operand;
        const copies = Array.from({ length: size }, (_, member) =>
          operand.dtype === "f64" ? operand.mul(1 - member / 64) : operand,
        );
        return stack(copies, 1 <= operand.ndim ? 1 : 0);
      });
      const inDims = wholes.map((whole, index) =>
        typeof whole === "object" && batched.includes(index) ? Math.min(1, whole.ndim - 1) : null,
      );
      const run = (...operands: (Tensor | number)[]): Tensor => cpu.apply(op, operands, call.attributes);
      const text = `${describeCall(op, call)}, batched: ${batched.join(" ")}`;
      const actual = vmap(run, { inDims })(...(wholes as (Tensor | number)[]));
      for (let member = 0; member < size; member++) {
        const own = wholes.map((whole, index) => {
          const dim = inDims[index];
          return typeof whole === "object" && typeof dim === "number" ? whole.select(dim, member) : whole;
        });
        const expected = run(...(own as (Tensor | number)[]));
        const part = actual.select(0, member);
        assert.deepEqual(part.shape, expected.shape, text);
        assert.equal(part.dtype, expected.dtype, text);
        const [a, b] = [part.dataSync(), expected.dataSync()];
        for (const [at, value] of b.entries()) {
          const isNear =
            Math.abs(Number(a[at]) - Number(value)) <= 1e-9 * Math.max(1, Math.abs(Number(value)));
          assert.ok(
            isNear || Object.is(a[at], value),
            `${text}: member ${member}, element ${at}: ${a[at]}, not ${value}`,
          );
        }
      }
    });
  }
}

const rows = (values: readonly (readonly number[])[]): Tensor => tensor(values, { device: cpu });

test("gradients of each member equal those of a loop", () => {
  cpu.step(() => {
    const [w, x] = [randn([4, 3]), randn([5, 4])];
    const loss = (weight: Tensor, row: Tensor): Tensor => row.matmul(weight).tanh().square().sum();
    const slopeOf = (weight: Tensor, row: Tensor): Tensor => {
      const leaf = weight.requiresGrad_();
      return autograd.grad(loss(leaf, row), [leaf])[0];
    };
    const whole = vmap(slopeOf)(w.expand([5, 4, 3]), x);
    const loop = x.unbind(0).map((row) => slopeOf(w.detach(), row));
    assert.ok(whole.sub(stack(loop)).abs().amax().item() < 1e-6);
    assert.equal(w.requiresGrad, false, "the caller's tensor is no leaf");
  });
});

test("a function that contains vmap is differentiated, eagerly and in a compiled step to the same bits", () => {
  const layer = new nn.Linear(3, 2).to(cpu);
  const run = (x: Tensor): Tensor => {
    const loss = vmap((row) => layer.forward(row).softmax(-1).square().sum())(x).sum();
    layer.zeroGrad();
    loss.backward();
    return loss;
  };
  const x = rows([
    [1, 2, 3],
    [0.5, -1, 2],
  ]);
  const eager = cpu.step(() => [run(x).item(), ...(layer.weight.grad?.dataSync() ?? [])]);
  const step = cpu.compile(run);
  const compiled = [step(x).item(), ...(layer.weight.grad?.dataSync() ?? [])];
  assert.deepEqual(compiled, eager);
  const direct = cpu.step(() => {
    layer.zeroGrad();
    layer.forward(x).softmax(-1).square().sum().backward();
    return [...(layer.weight.grad?.dataSync() ?? [])];
  });
  for (const [index, value] of direct.entries())
    assert.ok(Math.abs(Number(eager[index + 1]) - Number(value)) < 1e-6);
  step.close();
});

test("nested calls: every pair of rows", () => {
  cpu.step(() => {
    const [a, b] = [
      rows([
        [1, 2],
        [3, 4],
      ]),
      rows([
        [1, 0],
        [0, 1],
        [1, 1],
      ]),
    ]; // prettier-ignore
    const dot = (x: Tensor, y: Tensor): Tensor => x.mul(y).sum();
    const pairs = vmap((x: Tensor) => vmap((y: Tensor) => dot(x, y))(b))(a);
    assert.deepEqual(pairs.tolist(), a.matmul(b.t()).tolist());
  });
});

test("inDims and outDims name axes, of arrays and objects too", () => {
  cpu.step(() => {
    const x = rows([
      [1, 2, 3],
      [4, 5, 6],
    ]); // prettier-ignore
    const sums = vmap((column: Tensor) => [column.sum(), column.mul(2)] as const, {
      inDims: 1,
      outDims: [0, 1],
    });
    const [sum, doubled] = sums(x);
    assert.deepEqual([sum.tolist(), doubled.tolist()], [[5, 7, 9], x.mul(2).tolist()]);
    const named = vmap(({ a, b }: { a: Tensor; b: Tensor }) => ({ c: a.add(b), one: ones([]) }));
    const { c, one } = named({ a: x, b: x });
    assert.deepEqual([c.tolist(), one.tolist()], [x.mul(2).tolist(), [1, 1]]);
  });
});

test("random numbers are rejected, or drawn for each member, or once for all", () => {
  cpu.step(() => {
    const x = ones([4, 64]);
    const drop = (row: Tensor): Tensor => nn.functional.dropout(row, 0.5);
    rejects("UNSUPPORTED", () => vmap(drop)(x), /dropout/);
    rejects("UNSUPPORTED", () => vmap((row: Tensor) => row.add(rand([64])))(x), /random/);
    const texts = (y: Tensor): number => new Set(y.unbind(0).map((row) => String(row.tolist()))).size;
    assert.equal(texts(vmap(drop, { randomness: "different" })(x)), 4);
    assert.equal(texts(vmap(drop, { randomness: "same" })(x)), 1);
    assert.equal(texts(vmap((row: Tensor) => row.add(rand([64])), { randomness: "same" })(x)), 1);
  });
});

test("what vmap cannot do is an error that names it", () => {
  cpu.step(() => {
    const x = ones([2, 3]);
    const w = ones([3], { requiresGrad: true });
    const norm = new nn.BatchNorm1d(1).to(cpu);
    rejects("UNSUPPORTED", () => vmap((row: Tensor) => tensor(row.tolist() as number[]))(x), /unbind/);
    rejects("UNSUPPORTED", () => vmap((row: Tensor) => row.add_(1))(x), /in place/);
    rejects("UNSUPPORTED", () => vmap((row: Tensor) => autograd.grad(row.mul(w).sum(), [w])[0])(x), /expand/);
    rejects("UNSUPPORTED", () => vmap((row: Tensor) => norm.forward(row.reshape([3, 1])))(x), /batchNorm/);
    rejects("BAD_SHAPE", () => vmap((a: Tensor, b: Tensor) => a.add(b))(x, ones([4, 3])), /2, 4/);
    rejects("BAD_ARGUMENT", () => vmap((a: Tensor) => a, { inDims: null })(x), /no argument/);
    rejects("BAD_ARGUMENT", () => vmap((a: Tensor) => a, { inDims: [0, 0] })(x), /inDims/);
    let escaped = zeros([1]);
    vmap((row: Tensor) => {
      escaped = row;
      return row;
    })(x);
    rejects("DEAD_TENSOR", () => noGrad(() => escaped.add(1)), /ended/);
  });
});
