/** The collectives and the bytes of a step are those of the formula: they are counted in the plans of CrossAsset and of GPT-2. */

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { Device, distributed, manualSeed, nn, ones, optim, type Tensor } from "holdfast";
import {
  type PlannedExchange,
  type PlannedModel,
  planExchange,
  plannedCrossAsset,
  plannedGpt2,
} from "../support/planned-exchange.js";

const device = new Device("cpu", { memory: "1GiB", stallAfter: "off", print: () => {} });
after(() => device.close());

const models: Readonly<Record<string, PlannedModel>> = {
  CrossAsset: plannedCrossAsset(device, 4),
  "GPT-2": plannedGpt2(device, 4, { vocab_size: 101, n_positions: 32, n_embd: 24, n_layer: 2, n_head: 3 }),
};

/**
 * Gradients and the loss are sent as float32, cut among the ranks: `terms` sums to those that add them, then an all-gather of the parts. Each
 * exchange may add less than an element for each rank, because the parts are equal.
 */
function requireFormula(
  { parameters, calls }: PlannedExchange,
  ranks: number,
  { op: first = "allToAll", terms = 1 } = {},
): void {
  const elementsOf = (op: string): number[] =>
    calls.filter((call) => call.op === op).map(({ readBytes }) => readBytes / 4);
  const [sums, parts] = [elementsOf(first), elementsOf("allGather")];
  assert.equal(calls.length, sums.length + parts.length);
  assert.equal(sums.length, parts.length);
  assert.deepEqual(
    sums,
    parts.map((part) => part * ranks * terms),
  );
  const padding = parts.reduce((sum, part) => sum + part * ranks, 0) - (parameters + 1);
  assert.ok(padding >= 0 && padding < ranks * parts.length, `${padding} of ${parts.join()}`);
}

for (const [name, model] of Object.entries(models)) {
  test(`${name} on 1, 2 and 4 ranks sends its gradients to the others, and gets their sums`, () => {
    const alone = planExchange(device, model, 1);
    assert.deepEqual([alone.collectives, alone.sentBytes], [0, 0]);
    for (const [ranks, op] of [
      [2, "reduceScatter"],
      [4, "reduceScatter"],
      [4, "allToAll"],
    ] as const) {
      const options = op === "allToAll" ? { shards: ranks } : {};
      const exchange = planExchange(device, model, ranks, options);
      const { parameters, collectives, sentBytes } = exchange;
      requireFormula(exchange, ranks, { op });
      const exact = (2 * 4 * (parameters + 1) * (ranks - 1)) / ranks;
      assert.ok(sentBytes >= exact && sentBytes < exact + 8 * ranks * collectives, `${sentBytes}, ${exact}`);
    }
  });
}

test("a rank with a number of shards that is no power of two sends each of their sums", () => {
  const model = models["GPT-2"] as PlannedModel;
  requireFormula(planExchange(device, model, 2, { shards: 4 }), 2);
  const part = plannedGpt2(device, 3, {
    vocab_size: 101,
    n_positions: 32,
    n_embd: 24,
    n_layer: 2,
    n_head: 3,
  });
  requireFormula(planExchange(device, part, 2, { shards: 6 }), 2, { terms: 3 });
});

test("float64 gradients are added in the order of the shards, because a reduce-scatter adds float32", () => {
  const model = new nn.Linear(3, 2).to(device, "f64");
  const loss = (part?: Tensor): Tensor => model.forward(part as Tensor).mean();
  const inputs = [device.keep(ones([4, 3], { dtype: "f64", device }))];
  const { calls } = planExchange(device, { model, inputs, loss }, 2);
  assert.deepEqual(
    calls.map(({ op }) => op),
    ["allToAll", "allGather"],
  );
});

test("with split moments each rank also sends the part of the weights that it updates", () => {
  for (const ranks of [2, 4]) {
    const model = models["CrossAsset"] as PlannedModel;
    const [whole, split] = [false, true].map((isSharded) =>
      planExchange(device, model, ranks, { isSharded }),
    );
    assert.equal(split?.collectives, (whole?.collectives ?? 0) + 1);
    const more = (split?.sentBytes ?? 0) - (whole?.sentBytes ?? 0);
    const exact = (4 * (whole?.parameters ?? 0) * (ranks - 1)) / ranks;
    // Parts begin at multiples of 256 bytes.
    assert.ok(more >= exact && more < exact + 256 * ranks, `${more}, ${exact}`);
  }
});

test("a process that is alone has the calls of a step without data parallelism", () => {
  const parallel = new distributed.DataParallel(distributed.init());
  const callsOf = (isParallel: boolean): readonly string[] => {
    manualSeed(3);
    const model = new nn.Sequential(new nn.Linear(4, 8), new nn.Dropout(0.5), new nn.Linear(8, 1)).to(device);
    const optimizer = new optim.SGD(model.parameters(), { lr: 0.1 });
    const lossOf = (x: Tensor): Tensor => model.forward(x).square().mean();
    const step = device.compile((x: Tensor) => {
      const loss = isParallel ? parallel.backward(model.parameters(), [x], lossOf) : lossOf(x);
      if (!isParallel) loss.backward();
      optimizer.step();
      optimizer.zeroGrad();
      return { loss };
    });
    step(ones([8, 4], { device }));
    const calls = step.report()[0]?.calls ?? [];
    step.close();
    return calls.map(({ op }) => op);
  };
  assert.ok(callsOf(true).length > 5);
  assert.deepEqual(callsOf(true), callsOf(false));
});
