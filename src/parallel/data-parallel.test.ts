/** What DataParallel rejects, and how it cuts batches. Several processes are tested in test/distributed. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { rejects } from "../../test/support/rejects.js";
import { noGrad } from "../autograd/index.js";
import type { World } from "../distributed/index.js";
import { Linear } from "../nn/index.js";
import { device, type Tensor, tensor } from "../tensor/index.js";
import { DataParallel } from "./data-parallel.js";

const rankOf = (rank: number, size: number): World => ({ rank, size }) as World;

test("shards must be a multiple of the ranks", () => {
  for (const shards of [0, 1, 3, 2.5])
    rejects("BAD_ARGUMENT", () => new DataParallel(rankOf(0, 2), { shards }), /on 2 ranks: pass a multiple/);
  assert.equal(new DataParallel(rankOf(0, 2)).shards, 2);
});

test("the shards of all ranks cover a batch in order, and differ by at most one row", () => {
  for (const [size, shards] of [
    [1, 8],
    [2, 8],
    [4, 12],
  ] as const)
    for (let rows = 0; rows < 40; rows++) {
      const ranges = Array.from({ length: size }, (_, rank) =>
        new DataParallel(rankOf(rank, size), { shards }).ownRanges(rows),
      ).flat();
      assert.equal(ranges.length, shards);
      let next = 0;
      for (const { start, end } of ranges) {
        assert.equal(start, next);
        assert.ok(end - start === Math.floor(rows / shards) || end - start === Math.ceil(rows / shards));
        next = end;
      }
      assert.equal(next, rows);
    }
});

test("alone and with one shard, the gradients are those of the loss, and zeros where it uses no parameter", async () => {
  const cpu = await device("cpu");
  try {
    const [model, unused] = [new Linear(2, 1).to(cpu), new Linear(2, 1).to(cpu)];
    const parameters = [...model.parameters(), ...unused.parameters()];
    const x = tensor([
      [1, 2],
      [3, 5],
    ]);
    const step = cpu.compile((rows: Tensor) => {
      const loss = new DataParallel(rankOf(0, 1)).backward(parameters, [rows], (part) =>
        model.forward(part).mean(),
      );
      const [weight, bias, none] = parameters.map(({ grad }) => grad?.clone() ?? loss) as [
        Tensor,
        Tensor,
        Tensor,
      ];
      model.zeroGrad();
      unused.zeroGrad();
      return { loss, weight, bias, none };
    });
    const { loss, weight, bias, none } = step(x);
    assert.deepEqual([weight.tolist(), bias.tolist(), none.tolist()], [[[2, 3.5]], [1], [[0, 0]]]);
    assert.equal(loss.item(), noGrad(() => model.forward(x).mean()).item());
  } finally {
    cpu.close();
  }
});

test("a step of several batches has their summed gradients and loss, eagerly and compiled, each time", async () => {
  const cpu = await device("cpu");
  try {
    const model = new Linear(2, 1, { bias: false }).to(cpu);
    noGrad(() => void model.weight.copy_(tensor([[1, 1]])));
    const parallel = new DataParallel(rankOf(0, 1), { shards: 2 });
    const backward = (x: Tensor, noSync: boolean): Tensor =>
      parallel.backward(model.parameters(), [x], (part) => model.forward(part).mean(), { noSync });
    const x = tensor([
      [1, 2],
      [3, 4],
    ]);
    const add = (of: Tensor): Tensor => backward(of, true);
    const finish = (of: Tensor): { loss: Tensor; gradient: Tensor } => {
      const loss = backward(of, false);
      const gradient = model.weight.grad?.clone() ?? loss;
      model.zeroGrad();
      return { loss, gradient };
    };
    const compiled = { add: cpu.compile(add), finish: cpu.compile(finish) };
    const modes = [{ add: (of: Tensor) => cpu.step(() => add(of).item()), finish }, compiled];
    for (const { add: addOne, finish: finishOne } of modes)
      for (const batches of [1, 3, 2]) {
        for (let batch = 1; batch < batches; batch++) addOne(x);
        assert.equal(model.weight.grad, null);
        cpu.step(() => {
          const { loss, gradient } = finishOne(x);
          assert.deepEqual(gradient.tolist(), [[2 * batches, 3 * batches]]);
          assert.equal(loss.item(), 5 * batches);
        });
      }
    compiled.add.close();
    compiled.finish.close();
    const { gradients: used } = cpu.diagnostics().budget.usedByLabel;
    parallel.release();
    const { gradients: left } = cpu.diagnostics().budget.usedByLabel;
    assert.ok(left < used, `${left} of ${used} bytes`);
  } finally {
    cpu.close();
  }
});
