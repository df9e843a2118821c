/** Recorded backward passes: what they give to leaves, keep and release, and how they fail. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { autograd, checkpoint, nn, noGrad, type Tensor, tensor } from "holdfast";
import { openStrictDevice } from "./support/devices.js";
import { rejects } from "./support/rejects.js";
import { sameBytes } from "./support/same-bytes.js";

const cpu = openStrictDevice();

const leaf = (...values: number[]): Tensor => tensor(values, { requiresGrad: true, device: cpu });
const cube = (x: Tensor): Tensor => x.mul(x).mul(x).sum();

test("grad returns gradients of leaves and of results, and changes no tensor's grad", () => {
  cpu.step(() => {
    const x = leaf(1, 2);
    const [y, other] = [x.mul(3), leaf(5)];
    const z = y.mul(y).sum();
    const gradients = autograd.grad(z, [x, y, other], { allowUnused: true });
    assert.deepEqual(
      gradients.map((gradient) => gradient?.tolist() ?? null),
      [[18, 36], [6, 12], null],
    );
    assert.equal(x.grad, null);
    assert.equal(cpu.tape.openNodes, 0, "it releases what it went through");
  });
});

test("grad of views and of their base has all parts", () => {
  cpu.step(() => {
    const x = tensor(
      [
        [1, 2],
        [3, 4],
      ],
      { requiresGrad: true, device: cpu },
    ); // prettier-ignore
    const row = x.select(0, 1);
    const whole = x.mul(1);
    const part = whole.slice([0, 1]);
    const y = row.mul(row).sum().add(part.mul(10).sum()).add(whole.sum());
    const [ofX, ofRow, ofWhole, ofPart] = autograd.grad(y, [x, row, whole, part]);
    assert.deepEqual(ofX.tolist(), [
      [11, 11],
      [7, 9],
    ]); // prettier-ignore
    assert.deepEqual(ofRow.tolist(), [6, 8]);
    assert.deepEqual(ofWhole.tolist(), [
      [11, 11],
      [1, 1],
    ]); // prettier-ignore
    assert.deepEqual(ofPart.tolist(), [[10, 10]]);
  });
});

test("results of grad share no memory with each other or with the initial gradient", () => {
  cpu.step(() => {
    const [a, b] = [leaf(1, 2), leaf(3, 4)];
    const seed = tensor([5, 6], { device: cpu });
    const [first, second] = autograd.grad(a.add(b), [a, b], { gradOutputs: seed });
    first.add_(100);
    assert.deepEqual(
      [second.tolist(), seed.tolist()],
      [
        [5, 6],
        [5, 6],
      ],
    ); // prettier-ignore
  });
});

test("several outputs add up, and backward of several tensors too", () => {
  cpu.step(() => {
    const x = leaf(1, 2);
    const outputs = [x.sum(), x.mul(x)];
    const seed = tensor([1, 10], { device: cpu });
    const [slope] = autograd.grad(outputs, [x], { gradOutputs: [null, seed], retainGraph: true });
    autograd.backward(outputs, [null, seed]);
    assert.deepEqual(
      [slope.tolist(), x.grad?.tolist()],
      [
        [3, 41],
        [3, 41],
      ],
    ); // prettier-ignore
  });
});

test("backward with inputs leaves all other tensors alone, and takes results of ops", () => {
  cpu.step(() => {
    const [x, w] = [leaf(1, 2), leaf(3, 4)];
    const y = x.mul(w);
    y.mul(y)
      .sum()
      .backward(null, { inputs: [w, y] });
    assert.equal(x.grad, null);
    assert.deepEqual(
      [w.grad?.tolist(), y.grad?.tolist()],
      [
        [6, 32],
        [6, 16],
      ],
    ); // prettier-ignore
  });
});

test("backward with createGraph gives gradients with a graph, which add up with their graphs", () => {
  cpu.step(() => {
    const x = leaf(1, 2);
    cube(x).backward(null, { createGraph: true });
    x.mul(x).sum().backward(null, { createGraph: true });
    const { grad } = x;
    assert.deepEqual(grad?.tolist(), [5, 16]);
    assert.equal(grad?.requiresGrad, true);
    x.zeroGrad();
    const [curvature] = autograd.grad(grad!.sum(), [x]);
    assert.deepEqual(curvature.tolist(), [8, 14]);
  });
});

test("a recorded gradient works through checkpoint, inside noGrad, and for a layer's parameters", () => {
  cpu.step(() => {
    const x = leaf(1, 2);
    const y = checkpoint((input: Tensor) => input.tanh().mul(input), x).sum();
    const plain = autograd.grad(x.tanh().mul(x).sum(), [x], { createGraph: true })[0];
    const [slope] = noGrad(() => autograd.grad(y, [x], { createGraph: true }));
    sameBytes(slope.dataSync(), plain.dataSync(), "the gradient");
    const curvatures = [slope, plain].map((gradient) => autograd.grad(gradient.sum(), [x])[0].dataSync());
    sameBytes(curvatures[0]!, curvatures[1]!, "the second gradient");
  });
  const layer = new nn.Linear(2, 1).to(cpu);
  cpu.step(() => {
    const x = tensor([[1, 2]], { requiresGrad: true, device: cpu });
    const [slope] = autograd.grad(layer.forward(x).square().sum(), [x], { createGraph: true });
    slope.square().sum().backward();
    assert.notEqual(layer.weight.grad, null);
  });
});

test("a number that is expanded to no elements has a gradient of 0", () => {
  cpu.step(() => {
    const [x] = [tensor(3, { requiresGrad: true, device: cpu })];
    x.reshape([1]).expand([0]).sum().backward();
    assert.equal(x.grad?.item(), 0);
  });
});

test("memory of a step with recorded gradients ends with the step", () => {
  const before = cpu.diagnostics().arena;
  cpu.step(() => {
    const x = leaf(1, 2);
    const [slope] = autograd.grad(cube(x), [x], { createGraph: true });
    autograd.grad(slope.sum(), [x], { createGraph: true });
  });
  const { live, pins } = cpu.diagnostics().arena;
  assert.deepEqual([live, pins], [before.live, before.pins]);
});

test("wrong uses say what to do", () => {
  cpu.step(() => {
    const [x, other] = [leaf(1, 2), leaf(1, 2)];
    const { grad } = autograd;
    rejects("NO_GRADIENT", () => grad(cube(x), [other]), /do not depend on input 0.*allowUnused/);
    rejects("NO_GRADIENT", () => grad(cube(x), [tensor([1], { device: cpu })]), /grad\(\) of/);
    rejects("BAD_SHAPE", () => grad(x.mul(2), [x]), /without a gradient it starts from a single number/);
    const gradOutputs = [null, null];
    rejects("BAD_ARGUMENT", () => grad(cube(x), [x], { gradOutputs }), /2 initial gradients for 1 outputs/);
    rejects("BAD_ARGUMENT", () => grad([], [x]), /at least one output/);
    rejects("BAD_ARGUMENT", () => autograd.backward([]), /at least one tensor/);
    const y = cube(x);
    grad(y, [x]);
    rejects("BACKWARD_TWICE", () => grad(y, [x]), /retainGraph: true/);
    const z = x.exp();
    const sum = z.sum();
    z.mul_(2);
    rejects("SAVED_CHANGED", () => grad(sum, [x], { createGraph: true }), /overwritten in place/);
  });
});
