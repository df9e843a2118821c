/**
 * Guards of compiled steps: host state that a trace read causes another plan when it changes; other changes
 * are rejected.
 */

import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate } from "node:timers/promises";
import { type Device, nn, noGrad, optim, type Tensor, tensor, zeros } from "holdfast";
import { openStrictDevice } from "./support/devices.js";
import { collectGarbage } from "./support/gc.js";
import { rejectionOf } from "./support/rejections.js";

const device = openStrictDevice();

const ones = (shape: readonly number[]): Tensor => zeros(shape, { device }).add(1);

/** A training step over a linear layer followed by dropout. */
function trainingStep(model: nn.Sequential, optimizer: optim.SGD) {
  return (x: Tensor): { loss: Tensor } => {
    const loss = model.forward(x).square().mean();
    loss.backward();
    optimizer.step();
    optimizer.zeroGrad();
    return { loss };
  };
}

function smallModel(on: Device = device): nn.Sequential {
  return new nn.Sequential(new nn.Linear(4, 3), new nn.Dropout(0.5), new nn.Linear(3, 2)).to(on);
}

test("eval() after the trace switches dropout off, and train() returns to the first plan", () => {
  const dropout = new nn.Sequential(new nn.Dropout(0.5));
  const step = device.compile((x: Tensor) => dropout.forward(x));
  const x = ones([64]);
  const dropped = step(x).tolist() as number[];
  assert.ok(dropped.includes(0));
  dropout.eval();
  assert.deepEqual(new Set(step(x).tolist() as number[]), new Set([1]));
  dropout.train();
  assert.ok((step(x).tolist() as number[]).includes(0));
  assert.equal(step.plans, 2);
});

test("a parameter that is frozen after the trace no longer changes, and learns again when it is unfrozen", () => {
  const model = smallModel();
  const optimizer = new optim.SGD(model.parameters(), { lr: 0.1 });
  const step = device.compile(trainingStep(model, optimizer));
  const x = ones([5, 4]);
  step(x);
  const first = model.at(0) as nn.Linear;
  first.requiresGrad_(false);
  const before = String(first.weight.tolist());
  const last = String((model.at(2) as nn.Linear).bias?.tolist());
  for (let call = 0; call < 3; call++) step(x);
  assert.equal(String(first.weight.tolist()), before);
  assert.notEqual(String((model.at(2) as nn.Linear).bias?.tolist()), last);
  first.requiresGrad_(true);
  step(x);
  assert.notEqual(String(first.weight.tolist()), before);
});

test("a module's number that forward read, a swapped layer and a list that grew cause another plan", () => {
  class Scaled extends nn.Module {
    factor = 2;
    unused = 0;
    readonly options = { shift: 1 };
    inner: nn.Module & { forward(x: Tensor): Tensor } = new nn.ReLU();
    readonly list = new nn.ModuleList<nn.ReLU>([new nn.ReLU()]);
    forward(x: Tensor): Tensor {
      const scaled = this.inner.forward(x.mul(this.factor).add(this.options.shift));
      return scaled.mul([...this.list].length);
    }
  }
  const model = new Scaled().to(device);
  const step = device.compile((x: Tensor) => model.forward(x));
  const x = tensor([1, -3], { device });
  assert.deepEqual(step(x).tolist(), [3, 0]);
  model.factor = 3;
  assert.deepEqual(step(x).tolist(), [4, 0]);
  model.options.shift = 10;
  assert.deepEqual(step(x).tolist(), [13, 1]);
  model.inner = new nn.LeakyReLU(1);
  model.factor = -3;
  assert.deepEqual(step(x).tolist(), [7, 19]);
  model.list.append(new nn.ReLU());
  assert.deepEqual(step(x).tolist(), [14, 38]);
  assert.equal(step.plans, 5);
  model.unused = 7;
  assert.deepEqual([step(x).tolist(), step.plans], [[14, 38], 5], "a field that nothing read");
  assert.equal(
    Object.getOwnPropertyDescriptor(model, "factor")?.value,
    -3,
    "fields are plain properties again",
  );
});

test("iterating over the model inside the step guards its layers and parameters, and no other field", () => {
  class Logged extends nn.Module {
    epoch = 0;
    readonly linear = new nn.Linear(2, 1);
    forward(x: Tensor): Tensor {
      return this.linear.forward(x);
    }
  }
  const model = new Logged().to(device);
  const optimizer = new optim.SGD(model.parameters(), { lr: 0.1 });
  const step = device.compile((x: Tensor) => {
    model.forward(x).sum().backward();
    optim.clipGradNorm(model.parameters(), 1);
    optimizer.step();
    optimizer.zeroGrad();
  });
  for (let epoch = 0; epoch < 12; epoch++) {
    model.epoch = epoch;
    step(ones([3, 2]));
  }
  assert.equal(step.plans, 1);
});

test("a counter in the step that decides whether the optimizer steps is rejected with the op and the line", () => {
  const model = smallModel();
  const optimizer = new optim.SGD(model.parameters(), { lr: 0.1 });
  let count = 0;
  const step = device.compile((x: Tensor) => {
    model.forward(x).sum().backward();
    if (++count % 4 === 0) {
      optimizer.step();
      optimizer.zeroGrad();
    }
  });
  const x = ones([2, 4]);
  for (let call = 0; call < 3; call++) step(x);
  const error = rejectionOf(() => step(x));
  assert.equal(error?.code, "STEP_CHANGED");
  assert.match(
    error?.message ?? "",
    /it calls SGD step at .*compile-guards\.test\.[jt]s:\d+, where the first trace had ended/,
  );
  assert.equal(rejectionOf(() => step(x))?.code, "STEP_CHANGED", "the plan stays rejected");
});

test("a flag that switches an op, a constant that changes and a result that disappears are rejected", () => {
  let isScaled = false;
  const flagged = device.compile((x: Tensor) => (isScaled ? x.exp().mul(2) : x.exp().add(2)));
  flagged(ones([2]));
  isScaled = true;
  const error = rejectionOf(() => flagged(ones([2])));
  assert.match(error?.message ?? "", /it calls mul at .*where the first trace had add/);

  let value = 0;
  const constant = device.compile((x: Tensor) => x.add(tensor([value++], { device })));
  constant(ones([2]));
  assert.match(
    rejectionOf(() => constant(ones([2])))?.message ?? "",
    /at \S+ it creates tensor "tensor" from other numbers than the first trace did/,
  );

  let isLogged = true;
  const logged = device.compile(
    (x: Tensor): Record<string, Tensor> => (isLogged ? { x: x.exp(), y: x.sum() } : { x: x.exp() }),
  );
  logged(ones([2]));
  isLogged = false;
  assert.equal(rejectionOf(() => logged(ones([2])))?.code, "STEP_CHANGED");
});

test("a step that ends earlier than its trace is rejected, and audit: false accepts it", () => {
  const total = zeros([2], { device });
  let isShort = false;
  const body = (x: Tensor): void => {
    total.add_(x);
    if (!isShort) total.mul_(2);
  };
  const [checked, unchecked] = [device.compile(body), device.compile(body, { audit: false })];
  checked(ones([2]));
  unchecked(ones([2]));
  isShort = true;
  assert.match(
    rejectionOf(() => checked(ones([2])))?.message ?? "",
    /it ends, where the first trace had mul/,
  );
  unchecked(ones([2]));
  assert.deepEqual(total.tolist(), [14, 14]);
});

test("a leaf that a step makes of an input has its gradient in step memory, and audits agree", () => {
  const x = tensor([1, 2, 3], { device });
  const body = (input: Tensor): Tensor => {
    const leaf = input.detach();
    leaf.requiresGrad = true;
    leaf.square().sum().backward();
    return leaf.grad!;
  };
  const step = device.compile(body);
  const { used } = device.runtime.budget;
  for (let call = 0; call < 4; call++) assert.deepEqual(step(x).tolist(), [2, 4, 6]);
  assert.equal(step.plans, 1);
  step.close();
  assert.ok(device.runtime.budget.used <= used);
});

test("audits run the function at calls 2 to 8 and at powers of two, and change nothing", () => {
  const model = smallModel();
  const [compiled, eager] = [model, smallModel()];
  eager.loadStateDict(compiled.stateDict());
  const optimizers = [compiled, eager].map(
    (onlyModel) => new optim.SGD(onlyModel.parameters(), { lr: 0.1, momentum: 0.9 }),
  );
  const calls: number[] = [];
  let call = 0;
  const body = trainingStep(compiled, optimizers[0]!);
  compiled.eval();
  eager.eval();
  const step = device.compile((x: Tensor) => {
    calls.push(call);
    return body(x);
  });
  const plain = trainingStep(eager, optimizers[1]!);
  for (call = 1; call <= 33; call++) {
    const x = ones([3, 4]).mul(call / 33);
    const loss = step(x).loss.item();
    assert.equal(
      loss,
      device.step(() => plain(x).loss.item()),
    );
  }
  assert.deepEqual(calls, [1, 2, 3, 4, 5, 6, 7, 8, 16, 32]);
});

test("an in-place write to an input is carried over to the tensor that was passed in, and to its views", () => {
  const step = device.compile((x: Tensor) => {
    x.mul_(2);
    return x.sum();
  });
  const whole = tensor(
    [
      [1, 2],
      [3, 4],
    ],
    { device },
  );
  assert.equal(step(whole).item(), 20);
  assert.deepEqual(whole.tolist(), [
    [2, 4],
    [6, 8],
  ]);
  const narrow = device.compile((x: Tensor) => void x.add_(1));
  narrow(whole.select(1, 0));
  assert.deepEqual(whole.tolist(), [
    [3, 4],
    [7, 8],
  ]);
  const both = device.compile((x: Tensor, y: Tensor) => void x.add_(y));
  assert.equal(rejectionOf(() => both(whole, whole))?.code, "BAD_ARGUMENT");
});

test("an input that requires a gradient gets it, call after call, with one plan", () => {
  const x = tensor([1, 2], { device, requiresGrad: true });
  const step = device.compile((input: Tensor) => void input.square().sum().backward());
  for (let call = 0; call < 3; call++) step(x);
  assert.deepEqual([x.grad?.tolist(), step.plans], [[6, 12], 1]);
  const plain = tensor([1, 2], { device });
  assert.equal(rejectionOf(() => step(plain))?.code, "NO_GRADIENT");
  const product = x.mul(2);
  assert.match(rejectionOf(() => step(product))?.message ?? "", /Pass detach\(\) of it/);
});

test("requiring a gradient of an input or a tensor inside the step does not cause a plan for each call", () => {
  const step = device.compile((input: Tensor) => {
    input.requiresGrad = true;
    const scale = zeros([2], { device, requiresGrad: true });
    input.mul(scale.add(3)).sum().backward();
    const [ofInput, ofScale] = [input, scale].map(({ grad }) => grad!.mul(1));
    return { input: ofInput!, scale: ofScale! };
  });
  for (let call = 0; call < 12; call++) {
    const { input, scale } = step(tensor([call, 1], { device }));
    assert.deepEqual(
      [input.tolist(), scale.tolist()],
      [
        [3, 3],
        [call, 1],
      ],
    );
  }
  assert.equal(step.plans, 1);
});

test("noGrad() around a call causes another plan", () => {
  const w = tensor([3], { device, requiresGrad: true });
  const step = device.compile((x: Tensor) => {
    const loss = w.mul(x).sum();
    if (loss.requiresGrad) loss.backward();
    return loss;
  });
  const x = tensor([2], { device });
  noGrad(() => step(x));
  assert.deepEqual([w.grad], [null]);
  step(x);
  assert.deepEqual([w.grad?.tolist(), step.plans], [[2], 2]);
});

test("a step that switches modes or freezing leaves them as eager code would", () => {
  const model = smallModel();
  const step = device.compile((x: Tensor) => {
    model.eval();
    const before = model.forward(x).sum();
    model.train();
    const [first] = model;
    first?.requiresGrad_(false);
    model.forward(x).sum().backward();
    first?.requiresGrad_(true);
    return before;
  });
  const x = ones([2, 4]);
  for (let call = 0; call < 12; call++) {
    model.zeroGrad();
    step(x);
    assert.ok(model.isTraining);
    assert.equal((model.at(0) as nn.Linear).weight.grad, null);
  }
  assert.equal(step.plans, 1);
  model.eval();
  model.zeroGrad();
  step(x);
  assert.ok(model.isTraining, "the step leaves it in training mode");
  assert.equal(step.plans, 1);
});

test("an unreferenced model is collected although steps were traced on its device", async () => {
  const forget = (): WeakRef<object> => {
    const model = new nn.Linear(2, 2).to(device);
    const step = device.compile((x: Tensor) => model.forward(x));
    step(zeros([1, 2]));
    step.close();
    return new WeakRef(model);
  };
  const models = Array.from({ length: 10 }, forget);
  // A trace keeps its objects alive until the end of the event loop's turn.
  await setImmediate();
  collectGarbage();
  const left = models.filter((model) => model.deref()).length;
  assert.ok(left <= 1, `${left} of ${models.length} are left`);
});

test("too many plans are rejected, with the name of the changing state", () => {
  class Scaled extends nn.Module {
    factor = 0;
    forward(x: Tensor): Tensor {
      return x.mul(this.factor);
    }
  }
  const model = new Scaled().to(device);
  const step = device.compile((x: Tensor) => model.forward(x));
  const run = (): void => {
    for (; model.factor < 20; model.factor++) step(ones([2]));
  };
  assert.match(
    rejectionOf(run)?.message ?? "",
    /its limit of 8 plans.*because these changed: Scaled\.factor/s,
  );
});

test("model.to() after the trace, with another dtype, causes another plan over the new memory", () => {
  const model = new nn.Linear(2, 1).to(device);
  const step = device.compile((x: Tensor) => model.forward(x));
  const x = ones([1, 2]);
  step(x);
  step.close();
  model.to(device, "f64");
  assert.equal(step(x.to("f64")).dtype, "f64");
});

test("a result used after the step's next call is DEAD_TENSOR and says so, also for views of it; a kept result lives on", () => {
  const step = device.compile((x: Tensor) => ({ doubled: x.mul(2), total: x.sum() }));
  const first = step(tensor([1, 2], { device }));
  const view = first.doubled.select(0, 1);
  const [kept, keptView] = [first.doubled.keep(), view.keep()];
  const second = step(tensor([3, 4], { device }));
  for (const stale of [first.doubled, first.total, view]) {
    const error = rejectionOf(() => stale.tolist());
    assert.equal(error?.code, "DEAD_TENSOR");
    assert.match(
      error?.message ?? "",
      /is a result of compiled step, which has been called again.*keep\(\)/s,
    );
  }
  assert.equal(rejectionOf(() => first.doubled.add(1))?.code, "DEAD_TENSOR");
  assert.deepEqual([kept.tolist(), keptView.tolist()], [[2, 4], 4]);
  assert.deepEqual([second.doubled.tolist(), second.total.item()], [[6, 8], 7]);
  const before = device.runtime.arena.figures.live;
  kept.release();
  keptView.release();
  assert.ok(device.runtime.arena.figures.live < before);
  step.close();
  assert.equal(rejectionOf(() => second.total.item())?.code, "DEAD_TENSOR");
});

test("of two requests that share a compiled step, the slower one gets an error, or its own answer if it keeps it", async () => {
  const step = device.compile((x: Tensor) => x.mul(10));
  const answer = async (value: number, isKept: boolean): Promise<unknown> => {
    const result = step(tensor([value], { device }));
    const answer = isKept ? result.keep() : result;
    await setImmediate();
    return answer.tolist();
  };
  assert.deepEqual(await Promise.all([answer(1, true), answer(2, true)]), [[10], [20]]);
  const [slow, fast] = await Promise.allSettled([answer(1, false), answer(2, false)]);
  assert.equal(slow.status, "rejected");
  assert.deepEqual(fast, { status: "fulfilled", value: [20] });
});

test("a result may be the next call's input", () => {
  const step = device.compile((x: Tensor) => x.mul(2));
  let x = tensor([1], { device });
  for (let call = 0; call < 5; call++) x = step(x);
  assert.deepEqual(x.tolist(), [32]);
});

test("console.log of a tensor in a compiled step is rejected with the user's line, not one of Node's", () => {
  const step = device.compile((x: Tensor) => {
    console.log(x);
    return x;
  });
  assert.match(
    rejectionOf(() => step(ones([2])))?.message ?? "",
    /read the values of a tensor.* at \/.*compile-guards\.test\.[jt]s:\d+\)\./s,
  );
});

test("data() in a compiled step is rejected at the call, like item(), and causes no later rejection", async () => {
  const unhandled: unknown[] = [];
  const note = (reason: unknown): void => void unhandled.push(reason);
  process.on("unhandledRejection", note);
  try {
    const errors = [(x: Tensor) => void x.data(), (x: Tensor) => void x.item()].map((read) => {
      const step = device.compile((x: Tensor) => {
        read(x);
        return x.mul(2);
      });
      return rejectionOf(() => step(ones([1])));
    });
    assert.match(errors[0]?.message ?? "", /read the values of a tensor/);
    assert.equal(errors[0]?.code, errors[1]?.code);
    await setImmediate();
    assert.deepEqual(unhandled, []);
  } finally {
    process.off("unhandledRejection", note);
  }
});

test("an audit is a phase, so that the watchdog sees a function that hangs in its second trace", () => {
  const phases: (string | undefined)[] = [];
  const { recorder } = device.runtime;
  const step = device.compile(
    (x: Tensor) => {
      phases.push(recorder.recent(64).findLast(({ kind }) => kind === "phase-enter")?.label);
      return x.mul(2);
    },
    { name: "watched" },
  );
  step(ones([2]));
  phases.length = 0;
  step(ones([2]));
  assert.deepEqual(phases, ["audit (watched)"]);
});

test("keep() inside a compiled step is rejected, and the message says to return the tensor", () => {
  const step = device.compile((x: Tensor) => x.mul(2).keep());
  const error = rejectionOf(() => step(ones([2])));
  assert.equal(error?.code, "NOT_TRACEABLE");
  assert.match(error?.message ?? "", /call keep\(\).*Return the tensor, and call keep\(\)/s);
});

test("schedule.step() inside a compiled step is rejected with a hint to move it outside, even if the rate stays the same", () => {
  const w = tensor([1], { device, requiresGrad: true });
  const sgd = new optim.SGD([w], { lr: 0.1 });
  const constant = new optim.LambdaSchedule(sgd, { lrLambda: () => 1 });
  const plateau = new optim.ReduceOnPlateau(sgd);
  for (const advance of [() => constant.step(), () => plateau.step(1)]) {
    const step = device.compile((x: Tensor) => {
      w.mul(x).sum().backward();
      sgd.step();
      sgd.zeroGrad();
      advance();
    });
    const error = rejectionOf(() => step(ones([1])));
    assert.equal(error?.code, "NOT_TRACEABLE");
    assert.match(error?.message ?? "", /call schedule\.step\(\) outside the step/);
  }
  assert.equal(constant.steps, 0);
});

test("a step that writes to its input accepts its own earlier result as input, and gives the result of eager code", () => {
  const body = (x: Tensor): Tensor => {
    noGrad(() => x.add_(1));
    return x.mul(2);
  };
  const step = device.compile(body);
  let result = step(ones([3]));
  for (let call = 0; call < 3; call++) result = step(result);
  assert.deepEqual(result.tolist(), [46, 46, 46]);
});
