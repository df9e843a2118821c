/** Devices and steps: the lifetimes of tensors, and the errors of dead ones. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { openStrictDevice, withDevice } from "../../test/support/devices.js";
import { rejects } from "../../test/support/rejects.js";
import { readRepositoryFile } from "../../test/support/repository.js";
import { openTestDriver, testDeviceKind } from "../../test/support/test-device.js";
import { HoldfastError } from "../errors/index.js";
import { Device, device, full, ones, type Tensor, tensor, zeros } from "./index.js";

const cpu = openStrictDevice();

test("a tensor used after its step is rejected with its name, its op and the step in which it died", () => {
  const escaped = cpu.step(() => tensor([1, 2], { device: cpu }).mul(3));
  const step = cpu.runtime.diagnostics().step;
  const uses: (() => unknown)[] = [
    () => escaped.add(1),
    () => escaped.add_(1),
    () => escaped.dataSync(),
    () => escaped.item(),
    () => String(escaped),
    () => escaped.keep(),
    () => escaped.reshape([2, 1]),
    () => ones([2], { device: cpu }).add(escaped),
  ];
  for (const use of uses.toSpliced(3, 1)) {
    rejects(
      "DEAD_TENSOR",
      use,
      new RegExp(`"mul", f32 \\[2\\], made by mul in step ${step}, died at the end of step ${step}`),
    );
  }
});

test("the published types of a device have neither its runtime nor its tape", () => {
  const types = readRepositoryFile("dist/src/tensor/device.d.ts");
  assert.match(types, /diagnostics\(\): Diagnostics/);
  assert.doesNotMatch(types, /\b(runtime|tape|lifetimes|seeds): /);
});

test("diagnostics() has the memory in use by label, and synchronize() rejects a closed device", () => {
  const { budget, arena } = cpu.diagnostics();
  const used = Object.values(budget.usedByLabel).reduce((sum, bytes) => sum + bytes, 0);
  assert.equal(used, budget.used);
  assert.equal(arena.live, cpu.runtime.arena.figures.live);
  cpu.synchronize();
  const closed = withDevice({ memory: "64MiB" }, (other) => {
    other.close();
    return other;
  });
  rejects("CLOSED", () => closed.synchronize());
});

test("a kept tensor outlives its step, without its graph, until it is released", () => {
  const x = full([3], 2, { requiresGrad: true, device: cpu });
  const kept = cpu.step(() => x.mul(5).keep());
  cpu.step(() => {
    ones([64], { device: cpu });
  });
  assert.deepEqual(kept.tolist(), [10, 10, 10]);
  assert.equal(kept.requiresGrad, false);
  kept.release();
  rejects("DEAD_TENSOR", () => kept.tolist(), /"mul"/);
});

test("a kept view keeps its owner", () => {
  const view = cpu.step(() =>
    tensor(
      [
        [1, 2],
        [3, 4],
      ],
      { device: cpu },
    )
      .mul(1)
      .permute([1, 0])
      .keep(),
  );
  cpu.step(() => {
    for (let index = 0; index < 8; index++) full([4], -1, { device: cpu });
  });
  assert.deepEqual(view.tolist(), [
    [1, 3],
    [2, 4],
  ]);
  view.release();
});

test("a tensor made outside every step lives until it is released", () => {
  const x = tensor([1, 2], { device: cpu });
  cpu.step(() => x.mul(2));
  assert.deepEqual(x.tolist(), [1, 2]);
  x.release();
  rejects("DEAD_TENSOR", () => x.tolist(), /was released/);
});

test("an async step is rejected with an explanation, and async work between steps is fine", async () => {
  // @ts-expect-error: its type says so too; JavaScript callers don't see it.
  rejects("STEP_ASYNC", () => cpu.step(async () => 1), /Await before or after the step/);
  let read: Promise<ArrayLike<number>> | undefined;
  cpu.step(() => {
    // The elements are read here; only the promise is awaited outside.
    read = tensor([1, 2], { device: cpu }).mul(2).data();
  });
  assert.deepEqual(Array.from((await read) ?? []), [2, 4]);
});

test("a failing step ends its tensors too", () => {
  let inside: Tensor | undefined;
  assert.throws(() =>
    cpu.step(() => {
      inside = ones([4], { device: cpu }).exp();
      throw new Error("on purpose");
    }),
  );
  assert.equal(cpu.tape.openNodes, 0);
  rejects("DEAD_TENSOR", () => inside?.sum(), /"exp"/);
});

test("an op on tensors of two devices is rejected, and so is an op on a closed device", () => {
  const closed = withDevice({ memory: "64MiB" }, (other) => {
    const foreign = ones([2], { device: other });
    rejects("OTHER_DEVICE", () => ones([2], { device: cpu }).add(foreign), /another device/);
    other.close();
    return foreign;
  });
  rejects("CLOSED", () => closed.sum(), /closed/);
});

test("an unknown device is rejected", async () => {
  await assert.rejects(
    // @ts-expect-error: the type knows the names; JavaScript callers don't.
    device("tpu"),
    (error) => error instanceof HoldfastError && error.code === "UNSUPPORTED",
  );
});

test("detectNaN rejects the first op whose result has a NaN, forward and backward", () => {
  withDevice({ memory: "64MiB", detectNaN: true }, (careful) =>
    careful.step(() => {
      const x = tensor([-1, 4], { device: careful });
      rejects(
        "NOT_FINITE",
        () => x.add(1).sub(2).sqrt().mul(2),
        /sqrt is the first op with a NaN in its result: 1 of/,
      );
      const zero = tensor([0, 4], { device: careful, requiresGrad: true });
      const root = zero.sqrt();
      rejects("NOT_FINITE", () => root.mul(0).sum().backward(), /backward, in sqrtGradient/);
    }),
  );
});

test("a tensor that backward still needs can't be released", () => {
  const [w, x] = [full([2], 3, { requiresGrad: true, device: cpu }), tensor([4, 5], { device: cpu })];
  const loss = w.mul(x).sum();
  rejects("PINNED", () => x.release(), /pinned by backward of mul/);
  loss.backward();
  assert.deepEqual(w.grad?.tolist(), [4, 5]);
  x.release();
  rejects("DEAD_TENSOR", () => x.tolist());
});

test("a tensor kept once dies with its first release, and a tensor kept twice with its second", () => {
  const [once, twice] = [tensor([1], { device: cpu }), tensor([2], { device: cpu })];
  once.keep().release();
  rejects("DEAD_TENSOR", () => once.item(), /"tensor"/);
  twice.keep();
  twice.keep();
  twice.release();
  assert.equal(twice.item(), 2);
  twice.release();
  rejects("DEAD_TENSOR", () => twice.tolist());
});

test("the gradient of a leaf is freed with the leaf, even if it arrived inside a step", () => {
  const live = (): number => cpu.runtime.arena.figures.live;
  const before = live();
  const leaf = full([64], 1, { requiresGrad: true, device: cpu });
  cpu.step(() => leaf.square().sum().backward());
  leaf.release();
  assert.equal(live(), before);
});

test("a view made in a step dies with the step, and its owner can be released", () => {
  const owner = full([8, 2], 7, { device: cpu });
  const view = cpu.step(() => owner.slice([2, 4]));
  const step = cpu.runtime.diagnostics().step;
  rejects("DEAD_TENSOR", () => view.tolist(), new RegExp(`made by slice in step ${step}, died at the end`));
  const kept = cpu.step(() => owner.slice([2, 4]).keep());
  assert.deepEqual(kept.tolist(), [
    [7, 7],
    [7, 7],
  ]);
  kept.release();
  owner.release();
});

test("an op that fails outside every step frees its memory", () => {
  const table = full([4, 2], 1, { device: cpu });
  const index = tensor([9], { dtype: "i32", device: cpu });
  const before = cpu.runtime.arena.figures.live;
  rejects("BAD_INDEX", () => table.indexSelect(0, index));
  assert.equal(cpu.runtime.arena.figures.live, before);
});

test("an expanded tensor is not written in place, because its elements share memory", () => {
  const x = tensor([[1], [2]], { device: cpu });
  rejects("BAD_SHAPE", () => x.expand([2, 3]).add_(1), /is expanded/);
  assert.deepEqual(x.tolist(), [[1], [2]]);
});

test("an operand, a shape or a dtype of a wrong type is rejected by name", () => {
  const x = tensor([1, 2], { device: cpu });
  rejects(
    "BAD_ARGUMENT",
    () => x.add([1, 2] as unknown as Tensor),
    /add takes tensors and numbers, but got an array/,
  );
  rejects(
    "BAD_SHAPE",
    () => zeros(2 as unknown as number[], { device: cpu }),
    /zeros: the shape is 2; pass all sizes/,
  );
  rejects("BAD_SHAPE", () => ones([2, -1], { device: cpu }), /axis 1 of \[2, -1\] is -1/);
  rejects("BAD_DTYPE", () => x.to("int" as "i32"), /unknown dtype "int"\. Pass "i32"\. The dtypes are f32/);
  rejects("BAD_DTYPE", () => zeros([1], { dtype: "float" as "f32", device: cpu }), /unknown dtype "float"/);
});

test("detectNaN frees the memory of its checks", () => {
  const watched = openStrictDevice({ detectNaN: true });
  const x = ones([64], { device: watched });
  const before = watched.runtime.arena.figures.live;
  x.add(1).release();
  assert.equal(watched.runtime.arena.figures.live, before);
});

test("a device whose seeds exceed the budget is not opened, and its threads end", () => {
  const driver = openTestDriver();
  const rejection = { memory: "32MiB", stallAfter: "off", environment: {}, print: () => {}, driver } as const;
  rejects("OUT_OF_BUDGET", () => new Device(testDeviceKind, rejection), /scalars: seeds/);
  // The runtime has released the driver, which can be used again and closed.
  const again = new Device(testDeviceKind, { ...rejection, memory: "64MiB" });
  assert.equal(ones([2], { device: again }).sum().item(), 2);
  again.close();
  driver.close();
});
