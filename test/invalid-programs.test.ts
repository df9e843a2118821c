/**
 * Eager compared with compiled on valid and invalid edge cases: both reject with the same code, or both give
 * the same bits. If they differ on purpose, the program says how.
 */

import assert from "node:assert/strict";
import { test } from "node:test";
import { HoldfastError, manualSeed, nn, oneHot, optim, Tensor, tensor, zeros } from "holdfast";
import { openStrictDevice } from "./support/devices.js";

const device = openStrictDevice();

const f32 = (values: Parameters<typeof tensor>[0]): Tensor => tensor(values, { device });
const i32 = (values: Parameters<typeof tensor>[0]): Tensor => tensor(values, { device, dtype: "i32" });
const none = (...shape: number[]): Tensor => zeros(shape, { device });

interface Program {
  readonly inputs: () => Tensor[];
  /** Created again for each mode, from the same seed. */
  readonly prepare: () => (...inputs: Tensor[]) => Tensor | readonly Tensor[] | undefined;
  /** The behaviour of a compiled step, if it differs from eager code. */
  readonly compiled?: string;
}

const program = (
  inputs: () => Tensor[],
  run: (...inputs: Tensor[]) => Tensor | readonly Tensor[] | undefined,
  compiled?: string,
): Program => ({ inputs, prepare: () => run, ...(compiled && { compiled }) });

/** A training step of a small model; its loss, and the state after it. */
const training = (
  inputs: () => Tensor[],
  loss: (model: nn.Linear, ...inputs: Tensor[]) => Tensor,
): Program => ({
  inputs,
  prepare() {
    const model = new nn.Linear(3, 2).to(device);
    const optimizer = new optim.AdamW(model.parameters(), { lr: 0.1 });
    return (...args) => {
      const result = loss(model, ...args);
      result.backward();
      optimizer.step();
      optimizer.zeroGrad();
      return [result, ...[...model.parameters()].map((parameter) => parameter.mul(1))];
    };
  },
});

const programs: Readonly<Record<string, Program>> = {
  "a bad index": program(
    () => [f32([1, 2]), i32([0, 2])],
    (x, index) => x!.indexSelect(0, index!),
    "f32 [2]: 1 NaN",
  ),
  "an index of no elements": program(
    () => [f32([1, 2]), none(0).to("i32")],
    (x, index) => x!.indexSelect(0, index!),
  ),
  "a bad index into nothing": program(
    () => [none(0, 2), i32([0])],
    (x, index) => x!.indexSelect(0, index!),
    "f32 [1, 2]: NaN NaN",
  ),
  "an index of floats": program(
    () => [f32([1, 2]), f32([0, 1])],
    (x, index) => x!.indexSelect(0, index!),
  ),
  "an axis out of range": program(
    () => [f32([1, 2]), i32([0])],
    (x, index) => x!.indexSelect(1, index!),
  ),
  "oneHot of no classes": program(
    () => [i32([0])],
    (labels) => oneHot(labels!, 0),
    "i32 [1, 0]:",
  ),
  "labels of floats": program(
    () => [f32([[1, 2]]), f32([1])],
    (x, labels) => nn.functional.crossEntropy(x!, labels!),
  ),
  "a label outside the classes": program(
    () => [f32([[1, 2]]), i32([2])],
    (x, labels) => nn.functional.crossEntropy(x!, labels!),
    "f32 []: NaN",
  ),
  "a product of integers and floats": program(
    () => [i32([[1, 2]]), f32([[1], [2]])],
    (a, b) => a!.matmul(b!),
  ),
  "shapes that do not broadcast": program(
    () => [f32([1, 2]), f32([1, 2, 3])],
    (a, b) => a!.add(b!),
  ),
  "a product of incompatible shapes": program(
    () => [f32([[1, 2]]), f32([[1, 2, 3]])],
    (a, b) => a!.matmul(b!),
  ),
  "the mean of nothing": program(
    () => [none(0)],
    (x) => x!.mean(),
  ),
  "sums over an empty axis": program(
    () => [none(2, 0)],
    (x) => [x!.sum(), x!.sum(1), x!.sum(0)],
  ),
  "the maximum of nothing": program(
    () => [none(2, 0)],
    (x) => x!.amax(1),
  ),
  "softmax and a product of an empty batch": program(
    () => [none(0, 3), f32([[1], [2], [3]])],
    (x, w) => [x!.softmax(1), x!.matmul(w!)],
  ),
  "a product over no elements": program(
    () => [none(2, 0), none(0, 3)],
    (a, b) => a!.matmul(b!),
  ),
  "training on an empty batch": training(
    () => [none(0, 3)],
    (model, x) => model.forward(x!).sum(),
  ),
  "training on the mean of an empty batch": training(
    () => [none(0, 3), none(0).to("i32")],
    (model, x, y) => nn.functional.crossEntropy(model.forward(x!), y!),
  ),
  "training on a loss of several numbers": training(
    () => [f32([[1, 2, 3]])],
    (model, x) => model.forward(x!),
  ),
  "training on a loss that depends on nothing": training(
    () => [f32([[1, 2, 3]])],
    (_model, x) => x!.sum(),
  ),
  "one tensor as both inputs": program(
    () => {
      const x = f32([1, 2]);
      return [x, x];
    },
    (a, b) => a!.mul(b!),
  ),
  "two views of one tensor": program(
    () => {
      const x = f32([1, 2, 3]);
      return [x.narrow(0, 0, 2), x.narrow(0, 1, 2)];
    },
    (a, b) => a!.mul(b!),
  ),
  "a write to one of two inputs that share memory": program(
    () => {
      const x = f32([1, 2]);
      return [x, x];
    },
    (a, b) => a!.mul_(2).add(b!),
    "BAD_ARGUMENT",
  ),
  "an in-place write to an input": program(
    () => [f32([1, 2])],
    (x) => x!.mul_(2).add(1),
  ),
  "an in-place write to a view of an input": program(
    () => [f32([1, 2, 3, 4])],
    (x) => {
      x!.narrow(0, 1, 2).mul_(10);
      return x!.add(0);
    },
  ),
  "an in-place write to an input that backward needs": program(
    () => [f32([3, 4]).requiresGrad_()],
    (x) => {
      const y = x!.square();
      x!.detach().mul_(2);
      y.sum().backward();
      return y;
    },
  ),
  "an in-place write to a leaf that requires a gradient": program(
    () => [f32([3, 4]).requiresGrad_()],
    (x) => x!.mul_(2),
  ),
  "an in-place write of another dtype": program(
    () => [i32([1, 2])],
    (x) => x!.add_(f32([0.5, 0.5])),
  ),
  "an in-place write of a larger shape": program(
    () => [f32([1, 2])],
    (x) =>
      x!.add_(
        f32([
          [1, 2],
          [3, 4],
        ]),
      ),
  ),
  "backward twice": program(
    () => [f32([2]).requiresGrad_()],
    (x) => {
      const y = x!.square().sum();
      y.backward();
      y.backward();
      return y;
    },
  ),
  "a dead tensor": program(
    () => [device.step(() => f32([1, 2]))],
    (x) => x!.add(1),
  ),
  "division by zero and logarithms of invalid numbers": program(
    () => [f32([1, -1, 0])],
    (x) => [x!.div(0), x!.log(), x!.sqrt()],
  ),
  "a slice beyond the end": program(
    () => [f32([1, 2])],
    (x) => x!.narrow(0, 1, 2),
  ),
  "a shape with other elements": program(
    () => [f32([1, 2])],
    (x) => x!.reshape([3]),
  ),
};

/** A parameter as an input: eager code would see the update in it, and a compiled step an old copy. */
test("a parameter that the step updates is rejected as its input", () => {
  const model = new nn.Linear(2, 1).to(device);
  const optimizer = new optim.SGD(model.parameters(), { lr: 0.1 });
  const step = device.compile((weight: Tensor) => {
    model
      .forward(f32([[1, 2]]))
      .sum()
      .backward();
    optimizer.step();
    optimizer.zeroGrad();
    return weight.sum();
  });
  assert.equal(
    outcomeOf(() => step(model.weight.detach())),
    "BAD_ARGUMENT",
  );
  step.close();
});

for (const [name, { inputs, prepare, compiled }] of Object.entries(programs)) {
  test(`eager and compiled agree on ${name}`, () => {
    const eager = run(inputs, prepare, (body) => body);
    const steps = run(inputs, prepare, (body) => device.compile(body as never));
    if (!compiled) assert.equal(steps, eager);
    else {
      assert.equal(steps.split(";")[0]?.trim(), compiled);
      assert.match(eager, /^[A-Z_]+$|^f32/);
      assert.notEqual(
        steps,
        eager,
        "the compiled behaviour is the eager one, so the program should not state it",
      );
    }
  });
}

/** A program's results and its inputs after it, as text; or the code of its error. */
function run(
  inputs: Program["inputs"],
  prepare: Program["prepare"],
  wrap: (body: ReturnType<Program["prepare"]>) => ReturnType<Program["prepare"]>,
): string {
  manualSeed(3);
  const body = wrap(prepare());
  const args = inputs();
  return outcomeOf(() => {
    const result = body(...args);
    const results = result === undefined ? [] : result instanceof Tensor ? [result] : result;
    const texts = results.map(textOf);
    const left = args.map((input) => `${textOf(input)} grad ${input.grad ? textOf(input.grad) : "none"}`);
    return [texts.join(" | "), ...left].join("; ");
  });
}

function textOf(output: Tensor): string {
  const values = Array.from(output.dataSync(), (value) => (Object.is(value, -0) ? "-0" : String(value)));
  return `${output.dtype} [${output.shape.join(", ")}]: ${values.join(" ")}`;
}

function outcomeOf(body: () => unknown): string {
  try {
    return String(body());
  } catch (error) {
    if (!(error instanceof HoldfastError)) throw error;
    return error.code;
  }
}
