/**
 * Calls as PyTorch writes them, in JavaScript without types: each is an error that shows how to write it here. TypeScript rejects them
 * before they run, so the calls are made through `untyped`.
 */

import assert from "node:assert/strict";
import { after, test } from "node:test";
import * as holdfast from "holdfast";
import { device, HoldfastError, tensor } from "holdfast";

type Untyped = { readonly [name: string]: Untyped } & ((...values: unknown[]) => Untyped) &
  (new (
    ...values: unknown[]
  ) => Untyped);
const untyped = (value: unknown): Untyped => value as Untyped;

const cpu = await device("cpu", { memory: "64MiB" });
after(() => cpu.close());

const { nn, autograd, autocast, noGrad, setGradEnabled, AsyncDataLoader, DataLoader, ...rest } =
  untyped(holdfast);
const { randn, rand, randint, zeros, ones, full, empty } = rest as Record<string, Untyped>;
const x = tensor([
  [1, 2, 3],
  [4, 5, 6],
]);
const leaf = () => untyped(tensor([2], { requiresGrad: true }));
const layer = () => untyped(new holdfast.nn.Linear(2, 1).to(cpu));

class Numbers extends holdfast.Dataset<number> {
  readonly length = 3;
  override get(index: number): number {
    return index;
  }
}

const calls: Readonly<Record<string, readonly [() => unknown, RegExp]>> = {
  "x + 1": [() => (x as unknown as number) + 1, /x\.add\(y\)/],
  "x < 1": [() => (x as unknown as number) < 1, /x\.lt\(y\)/],
  "-x": [() => -(x as unknown as number), /Call methods instead/],
  "x.view(-1)": [() => untyped(x)["view"]!(-1), /reshape: the shape is -1; pass all sizes in an array/],
  "x.reshape(3, 2)": [
    () => untyped(x)["reshape"]!(3, 2),
    /reshape: the shape is 3; pass all sizes in an array/,
  ],
  "x.permute(1, 0)": [
    () => untyped(x)["permute"]!(1, 0),
    /permute: the axes are 1; pass all axes in an array, such as \[1, 0\]/,
  ],
  "x.expand(2, 3)": [() => untyped(x)["expand"]!(2, 3), /expand: the shape is 2; pass all sizes in an array/],
  "x.tile(2, 2)": [() => untyped(x)["tile"]!(2, 2), /tile: the shape is 2; pass all sizes in an array/],
  "randn(2, 3)": [() => randn!(2, 3), /randn: the shape is 2; pass all sizes in an array/],
  "rand(2, 3)": [() => rand!(2, 3), /rand: the shape is 2/],
  "randint(0, 9, 3)": [() => randint!(0, 9, 3), /randint: the shape is 3/],
  "zeros(2, 3)": [() => zeros!(2, 3), /zeros: the shape is 2/],
  "ones(2, 3)": [() => ones!(2, 3), /ones: the shape is 2/],
  "full(2, 3)": [() => full!(2, 3), /full: the shape is 2/],
  "empty(2, 3)": [() => empty!(2, 3), /empty: the shape is 2/],
  "noGrad()": [() => noGrad!(), /noGrad got undefined in place of a function.*noGrad\(\(\) => /],
  "setGradEnabled(false)": [() => setGradEnabled!(false), /setGradEnabled\(isEnabled, \(\) => /],
  'autocast("cpu", …)': [() => autocast!("cpu", {}, () => x), /an open device, options and a function/],
  "autocast without a function": [() => autocast!(cpu, {}), /an open device, options and a function/],
  "backward({ retainGraph: true })": [
    () => leaf()["sum"]!()["backward"]!({ retainGraph: true }),
    /got retainGraph in place of a gradient.*backward\(undefined, \{ retainGraph: true \}\)/,
  ],
  "nn.Parameter(x)": [
    () => new nn!["Parameter"]!(x),
    /new nn\.Parameter\(x\.shape, \(\) => x\.dataSync\(\)\)/,
  ],
  "nn.Buffer(x)": [() => new nn!["Buffer"]!(x), /registerBuffer\("name", x\)/],
  "nn.Parameter([3])": [() => new nn!["Parameter"]!([3]), /a shape and an initializer/],
  "nn.init.xavierUniform(w)": [
    () => nn!["init"]!["xavierUniform"]!(layer()["weight"]),
    /weight\.initialize\(nn\.init\.xavierUniform\(…\)\)/,
  ],
  "nn.init.zeros(w)": [
    () => nn!["init"]!["zeros"]!(layer()["bias"]),
    /weight\.initialize\(nn\.init\.zeros\(…\)\)/,
  ],
  "nn.init.normal(w)": [
    () => nn!["init"]!["normal"]!(layer()["weight"]),
    /weight\.initialize\(nn\.init\.normal\(…\)\)/,
  ],
  "nn.Conv2d(1, 2, kernel_size=3)": [
    () => new nn!["Conv2d"]!(1, 2, { kernelSize: 3 }),
    /a number or a list of numbers: new nn\.Conv2d\(3, 8, 5\)/,
  ],
  "scaledDotProductAttention(q, k, v, is_causal=True)": [
    () => nn!["functional"]!["scaledDotProductAttention"]!(x, x, x, { isCausal: true }),
    /got an object with isCausal\. Options come last: pass null/,
  ],
  "dropout(x, training=False)": [
    () => nn!["functional"]!["dropout"]!(x, 0.5, { training: false }),
    /isTraining is \{"training":false\}; pass true or false/,
  ],
  "DataLoader(dataset)": [() => new DataLoader!(new Numbers(), { batchSize: 2 }), /Use an AsyncDataLoader/],
  "workerSource with a path": [
    () => new AsyncDataLoader!(new Numbers(), { numWorkers: 1, workerSource: { module: "./numbers.js" } }),
    /new URL\("\.\/samples\.js", import\.meta\.url\)/,
  ],
};

for (const [name, [call, message]] of Object.entries(calls)) {
  test(`${name}: the error shows how to write it`, () => {
    assert.throws(
      () => cpu.step(call),
      (error) => {
        assert.ok(error instanceof HoldfastError, String(error));
        assert.match(error.message, message);
        return true;
      },
    );
  });
}

test("a tensor in a template and in String() is printed", () => {
  assert.equal(`${tensor([1, 2])}`, "tensor([1. 2.], shape [2], f32, cpu)");
  assert.equal(String(tensor(3)), "tensor(3.0, shape [], f32, cpu)");
});

test("the options in the error of a second backward() are accepted", () => {
  cpu.step(() => {
    const w = tensor([3], { requiresGrad: true });
    const loss = w.square().sum();
    loss.backward(undefined, { retainGraph: true });
    loss.backward();
    assert.deepEqual(w.grad?.tolist(), [12]);
  });
});

test("parameters start from the values of a tensor, as the error says", () => {
  const parameter = new holdfast.nn.Parameter(x.shape, () => x.dataSync());
  assert.deepEqual(Array.from(parameter.initialValues()), [1, 2, 3, 4, 5, 6]);
});

test("autograd.grad and gradcheck take a single input without a list", () => {
  cpu.step(() => {
    const w = tensor([3], { requiresGrad: true, dtype: "f64" });
    const [slope] = holdfast.autograd.grad(w.square().sum(), w);
    assert.deepEqual(slope.tolist(), [6]);
    assert.equal(
      autograd!["gradcheck"]!((w: holdfast.Tensor) => w.tanh(), w),
      true,
    );
    assert.equal(
      autograd!["gradgradcheck"]!((w: holdfast.Tensor) => w.tanh(), w),
      true,
    );
  });
});
