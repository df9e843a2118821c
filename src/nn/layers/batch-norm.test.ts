/** Norms with running statistics: in training and evaluation, in compiled steps, in half floats, and in checkpoints. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { openDevice } from "../../../test/support/devices.js";
import { rejects } from "../../../test/support/rejects.js";
import { sameBytes, sameNamedBytes } from "../../../test/support/same-bytes.js";
import { noGrad } from "../../autograd/index.js";
import { checkpoint, ones, randn, type Tensor, tensor } from "../../tensor/index.js";
import * as nn from "../index.js";

const cpu = openDevice();
const batch = (): Tensor => randn([6, 3]).mul(2).add(1);

const stateOf = (module: nn.Module): Record<string, ArrayBufferView> =>
  Object.fromEntries(Object.entries(module.stateDict()).map(([name, value]) => [name, value.dataSync()]));

test("a compiled training step updates weights and running statistics to the same bits as an eager one", () => {
  const [eager, compiled] = [new nn.BatchNorm1d(3).to(cpu), new nn.BatchNorm1d(3).to(cpu)];
  const stepOf = (model: nn.BatchNorm1d): ((x: Tensor) => Tensor) => {
    return (x) => {
      const loss = model.forward(x).square().sum();
      loss.backward();
      noGrad(() => {
        for (const parameter of model.parameters()) parameter.sub_(parameter.grad?.mul(0.1) ?? 0);
      });
      model.zeroGrad();
      return loss;
    };
  };
  const [eagerStep, compiledStep] = [stepOf(eager), cpu.compile(stepOf(compiled))];
  for (let times = 0; times < 3; times++) {
    const x = batch();
    cpu.step(() => void eagerStep(x));
    compiledStep(x);
  }
  sameNamedBytes(stateOf(compiled), stateOf(eager), "the module");
  assert.equal(compiled.numBatchesTracked?.item(), 3);
});

test("eval() after compile gives evaluation, and train() training again", () => {
  const model = new nn.BatchNorm1d(3).to(cpu);
  const step = cpu.compile((x: Tensor) => model.forward(x));
  const x = batch();
  const trained = step(x).clone();
  const [mean, count] = [model.runningMean!.dataSync(), model.numBatchesTracked!.item()];
  model.eval();
  const evaluated = step(x).dataSync();
  sameBytes(evaluated, model.forward(x).dataSync(), "evaluation");
  assert.notDeepEqual(evaluated, trained.dataSync());
  sameBytes(model.runningMean!.dataSync(), mean, "the running mean, which evaluation does not change");
  model.train();
  sameBytes(step(x).dataSync(), trained.dataSync(), "training");
  assert.equal(model.numBatchesTracked?.item(), count + 1);
});

test("statistics of half floats are f32, also if the module is converted", () => {
  const model = new nn.BatchNorm2d(2).to(cpu, "bf16");
  const x = randn([4, 2, 3, 3]).mul(0.1).add(100);
  const y = model.forward(x.to("bf16"));
  assert.deepEqual([y.dtype, model.weight?.dtype, model.runningMean?.dtype], ["bf16", "bf16", "f32"]);
  const expected = x.to("bf16").to("f32").mean([0, 2, 3]).mul(0.1);
  assert.ok(model.runningMean!.allclose(expected, { rtol: 1e-5 }));
});

test("without momentum the running statistics are the mean over all batches", () => {
  const model = new nn.BatchNorm1d(1, { momentum: null }).to(cpu);
  for (const values of [
    [[1], [3]],
    [[5], [7]],
    [[0], [18]],
  ])
    model.forward(tensor(values));
  assert.ok(Math.abs(model.runningMean!.item() - (2 + 6 + 9) / 3) < 1e-5);
});

test("without running statistics, evaluation uses those of the batch", () => {
  const model = new nn.BatchNorm1d(1, { trackRunningStats: false, eps: 0 }).to(cpu).eval();
  assert.deepEqual(model.forward(tensor([[1], [3]])).tolist(), [[-1], [1]]);
  assert.equal(model.buffers().length, 0);
});

test("checkpoint() counts a batch once, although its function runs again in backward", () => {
  const [plain, saved] = [new nn.BatchNorm1d(3).to(cpu), new nn.BatchNorm1d(3).to(cpu)];
  const x = batch();
  cpu.step(() => plain.forward(x).square().sum().backward());
  cpu.step(() =>
    checkpoint(() => saved.forward(x).square())
      .sum()
      .backward(),
  );
  sameNamedBytes(stateOf(saved), stateOf(plain), "the module");
  sameBytes(saved.weight!.grad!.dataSync(), plain.weight!.grad!.dataSync(), "the gradient of the weight");
});

test("a large mean does not cancel a small spread, in rows and in columns", () => {
  const values = randn([64, 2]).mul(0.01).add(1000);
  for (const x of [values, values.t().contiguous().t(), values.reshape([8, 8, 2]).transpose(1, 2)]) {
    const y = nn.functional.batchNorm(x, null, null, null, null, { training: true, eps: 0 });
    const exact = x.to("f64");
    const expected = nn.functional.batchNorm(exact, null, null, null, null, { training: true, eps: 0 });
    assert.ok(y.to("f64").allclose(expected, { atol: 1e-2 }), String(x.shape));
  }
});

test("inputs that do not fit are rejected with the layer and the shape", () => {
  const model = new nn.BatchNorm2d(3).to(cpu);
  rejects(
    "BAD_SHAPE",
    () => model.forward(ones([2, 3])),
    /BatchNorm2d: the input is \[2, 3\]; it needs 4 axes/,
  );
  rejects("BAD_SHAPE", () => model.forward(ones([2, 4, 5, 5])), /with 3 channels/);
  rejects("BAD_SHAPE", () => model.forward(ones([1, 3, 1, 1])), /one element for each channel/);
  rejects("BAD_ARGUMENT", () => new nn.GroupNorm(2, 5), /not divisible by 2 groups/);
  rejects("BAD_ARGUMENT", () => nn.functional.batchNorm(ones([2, 3]), null, null), /needs a running mean/);
});
