/** vmap: each op with a batching rule equals a loop over the members, and so do gradients, nesting and compiled steps. */

import assert from "node:assert/strict";
import { test } from "node:test";
import {
  autocast,
  autograd,
  manualSeed,
  nn,
  noGrad,
  ones,
  rand,
  randn,
  randperm,
  stack,
  type Tensor,
  tensor,
  vmap,
  zeros,
} from "holdfast";
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
  `runningAverage renormRows batchedLinear fusedProjections random causalMask luPermutation orthonormalComplement gapQuotient
  dropout attentionWithDropout`.split(/\s+/);

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

/** vmap with these numbers equals the same draws outside of it. */
function sameDraws(actual: () => Tensor, expected: () => Tensor): void {
  const [a, b] = [actual, expected].map((run) => {
    manualSeed(5);
    return cpu.step(() => run().tolist());
  });
  assert.deepEqual(a, b);
}

test("random numbers are rejected, or drawn for each member, or once for all", () => {
  const dropped = (row: Tensor): Tensor => nn.functional.dropout(row, 0.5);
  cpu.step(() => {
    const x = ones([4, 64]);
    rejects("UNSUPPORTED", () => vmap(dropped)(x), /dropout/);
    rejects("UNSUPPORTED", () => vmap((row: Tensor) => row.add(rand([64])))(x), /random/);
    rejects(
      "UNSUPPORTED",
      () => vmap((_: Tensor) => vmap((_: Tensor) => rand([2]), { randomness: "same" })(x))(x),
      /random/,
    );
  });
  const [different, same] = [{ randomness: "different" }, { randomness: "same" }] as const;
  const copies = (x: Tensor): Tensor => x.expand([4, ...x.shape]);
  const x = (): Tensor => ones([4, 6]);
  sameDraws(
    () => vmap(dropped, different)(x()),
    () => dropped(x()),
  );
  sameDraws(
    () => vmap(dropped, same)(x()),
    () => copies(dropped(ones([6]))),
  );
  sameDraws(
    () => vmap((row: Tensor) => row.add(rand([2, 6])), different)(x()),
    () => rand([4, 2, 6]).add(1),
  );
  sameDraws(
    () => vmap((row: Tensor) => row.add(rand([6])), same)(x()),
    () => copies(rand([6]).add(1)),
  );
  cpu.step(() => {
    const orders = vmap((_: Tensor) => randperm(9), different)(x()).tolist() as number[][];
    assert.equal(new Set(orders.map(String)).size, 4);
    for (const order of orders) assert.equal(new Set(order).size, 9);
  });
  const half = (row: Tensor): Tensor => row.mul(0.5).bernoulli();
  sameDraws(
    () => vmap(half, different)(x()),
    () => half(x()),
  );
  const noise = (_: Tensor): Tensor => randn([3]);
  sameDraws(
    () => vmap((_: Tensor) => vmap(noise, same)(x()), different)(ones([2])),
    () => randn([2, 3]).unsqueeze(1).expand([2, 4, 3]),
  );
  sameDraws(
    () => vmap((_: Tensor) => vmap(noise, different)(x()), same)(ones([2])),
    () => randn([4, 3]).expand([2, 4, 3]),
  );
});

test("dropout of attention differs between members, or is the same", () => {
  const attend = (q: Tensor): Tensor =>
    nn.functional.scaledDotProductAttention(q, q, ones([8, 4]), null, { dropoutP: 0.5 });
  cpu.step(() => {
    const q = randn([1, 2, 8, 4]).expand([3, 2, 8, 4]);
    const count = (randomness: "same" | "different"): number =>
      new Set(
        vmap(attend, { randomness })(q)
          .unbind()
          .map((member) => String(member.tolist())),
      ).size;
    assert.deepEqual([count("same"), count("different")], [1, 3]);
  });
});

test("autocast inside vmap casts as outside, and vmap inside autocast", () => {
  const layer = new nn.Linear(4, 4).to(cpu);
  const net = (x: Tensor): Tensor =>
    layer
      .forward(x)
      .softmax(-1)
      .matmul(ones([4, 2]))
      .tanh();
  cpu.step(() => {
    const x = randn([3, 5, 4]);
    const whole = autocast(cpu, {}, () => net(x));
    const inside = vmap((member: Tensor) => autocast(cpu, {}, () => net(member)))(x);
    const around = autocast(cpu, {}, () => vmap(net)(x));
    for (const y of [inside, around]) {
      assert.equal(y.dtype, whole.dtype);
      assert.deepEqual(y.tolist(), whole.tolist());
    }
    assert.equal(whole.dtype, "bf16");
    assert.equal(vmap((member: Tensor) => autocast(cpu, {}, () => member.sum()))(x.to("bf16")).dtype, "f32");
    const [w] = [randn([4, 4])];
    const slopeOf = (weight: Tensor, member: Tensor): Tensor => {
      const leaf = weight.requiresGrad_();
      const loss = autocast(cpu, {}, () => member.matmul(leaf).sum());
      return autograd.grad(loss, [leaf])[0];
    };
    const slopes = vmap(slopeOf)(w.expand([3, 4, 4]), x);
    const loop = x.unbind(0).map((member) => slopeOf(w.detach(), member));
    assert.equal(slopes.dtype, "f32");
    assert.deepEqual(slopes.tolist(), stack(loop).tolist());
  });
});

test("recurrent layers and batch norm run for each member, and give gradients of each", () => {
  for (const layer of [new nn.LSTM(3, 2, { numLayers: 2, bidirectional: true }), new nn.GRU(3, 2)].map(
    (made) => made.to(cpu),
  )) {
    cpu.step(() => {
      const x = randn([4, 5, 2, 3]);
      const run = (member: Tensor): Tensor => layer.forward(member)[0];
      const loop = stack(x.unbind().map(run));
      assert.ok(vmap(run)(x).sub(loop).abs().amax().item() < 1e-6);
    });
  }
  const norm = new nn.BatchNorm1d(3).to(cpu);
  cpu.step(() => {
    const x = randn([4, 5, 3]);
    const run = (member: Tensor): Tensor => norm.forward(member);
    rejects("UNSUPPORTED", () => vmap(run)(x), /BatchNorm1d can't update running statistics.*eval\(\)/);
    assert.equal(norm.numBatchesTracked?.item(), 0, "a rejected call counts no batch");
    norm.eval();
    assert.deepEqual(vmap(run)(x).tolist(), stack(x.unbind().map(run)).tolist());
    const plain = new nn.BatchNorm1d(3, { trackRunningStats: false }).to(cpu);
    const each = stack(x.unbind().map((member) => plain.forward(member)));
    assert.ok(
      vmap((member: Tensor) => plain.forward(member))(x)
        .sub(each)
        .abs()
        .amax()
        .item() < 1e-6,
    );
  });
});

test("what vmap cannot do is an error that names it", () => {
  cpu.step(() => {
    const x = ones([2, 3]);
    const w = ones([3], { requiresGrad: true });
    rejects("UNSUPPORTED", () => vmap((row: Tensor) => tensor(row.tolist() as number[]))(x), /unbind/);
    rejects("UNSUPPORTED", () => vmap((row: Tensor) => row.add_(1))(x), /in place/);
    rejects("UNSUPPORTED", () => vmap((row: Tensor) => autograd.grad(row.mul(w).sum(), [w])[0])(x), /expand/);
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
