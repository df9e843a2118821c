/** How optimizers are split over ranks, without other processes. What ranks compute together is tested in test/distributed. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { openDevice } from "../../test/support/devices.js";
import { rejects } from "../../test/support/rejects.js";
import type { World } from "../distributed/index.js";
import { DataParallel } from "../parallel/index.js";
import { type Tensor, tensor, zeros } from "../tensor/index.js";
import { AdamW, LBFGS, Muon, type Optimizer, SGD, SparseAdam } from "./index.js";

const cpu = openDevice({ threads: 1 });

const rankOf = (rank: number, size: number): World => ({ rank, size }) as World;

const parameter = (...shape: number[]): Tensor => zeros(shape, { device: cpu, requiresGrad: true });

test("the parts of all ranks cover each moment in order, and are about equal", () => {
  const weights = [parameter(3), parameter(50, 20), parameter(0), parameter(700), parameter(31)];
  for (const size of [2, 3, 7]) {
    const found = new Map<string, [number, number][]>();
    for (let rank = 0; rank < size; rank++) {
      const parallel = new DataParallel(rankOf(rank, size));
      const optimizer = parallel.shardOptimizer(() => new AdamW(weights, { lr: 0.1 }));
      let elements = 0;
      for (const [name, { shape }] of Object.entries(optimizer.stateDict())) {
        const [, moment = "", start, end] = /^(\d+\.\w+Moment)\[(\d+):(\d+)\]$/.exec(name) ?? [];
        if (!moment) continue;
        assert.deepEqual(shape, [Number(end) - Number(start)]);
        found.set(moment, [...(found.get(moment) ?? []), [Number(start), Number(end)]]);
        if (moment.endsWith("firstMoment")) elements += Number(end) - Number(start);
      }
      assert.ok(elements <= 1734 / size + 64, `rank ${rank} of ${size} has ${elements} elements`);
      optimizer.release();
    }
    for (const [index, { numel }] of weights.entries()) {
      const ranges = found.get(`${index}.secondMoment`) ?? [];
      assert.equal(ranges.length > 0, numel > 0);
      let next = 0;
      for (const [start, end] of ranges) {
        assert.equal(start, next);
        next = end;
      }
      assert.equal(next, numel);
    }
  }
});

test("each rank loads its part of a whole state, and rejects one of another shape", () => {
  const weight = tensor(
    Array.from({ length: 100 }, (_, index) => index),
    { device: cpu, requiresGrad: true },
  );
  const whole = new SGD([weight], { lr: 1, momentum: 0.5 });
  weight.square().sum().backward();
  whole.step();
  const state = whole.stateDict();
  for (const rank of [0, 1]) {
    const parallel = new DataParallel(rankOf(rank, 2));
    const optimizer = parallel.shardOptimizer(() => new SGD([weight], { lr: 3, momentum: 0.5 }));
    optimizer.loadStateDict(state);
    assert.equal(optimizer.lr, 1);
    const part = optimizer.stateDict()[rank === 0 ? "0.momentum[0:64]" : "0.momentum[64:100]"];
    assert.deepEqual(
      part?.tolist(),
      [...(state["0.momentum"]?.dataSync() ?? [])].slice(...(rank === 0 ? [0, 64] : [64])),
    );
    // Its own state, too.
    optimizer.loadStateDict(optimizer.stateDict());
    const short = { ...state, "0.momentum": zeros([99], { device: cpu }) };
    rejects("BAD_STATE", () => optimizer.loadStateDict(short), /not in the optimizer: 0\.momentum/);
    assert.deepEqual(Object.keys(optimizer.describeState()), Object.keys(state));
    optimizer.release();
  }
});

test("optimizers whose updates are not elementwise can't be split", () => {
  const parallel = new DataParallel(rankOf(0, 2));
  const makers: readonly (() => Optimizer)[] = [
    () => new Muon([parameter(4, 4)]),
    () => new LBFGS([parameter(4)]),
    () => new SparseAdam([parameter(4, 4)]),
  ];
  for (const make of makers)
    rejects("BAD_ARGUMENT", () => parallel.shardOptimizer(make), /can't be split over ranks/);
  // Outside, and on one rank, they can be made.
  new Muon([parameter(4, 4)]).release();
  new DataParallel(rankOf(0, 1)).shardOptimizer(() => new LBFGS([parameter(4)])).release();
});
