/** Hooks of gradients, retained gradients, functions with gradients of their own, and gradcheck: eager and in compiled steps. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { autograd, checkpoint, nn, type Tensor, tensor } from "holdfast";
import { openStrictDevice } from "./support/devices.js";
import { rejects } from "./support/rejects.js";
import { sameBytes } from "./support/same-bytes.js";

const cpu = openStrictDevice();
const leaf = (...values: number[]): Tensor => tensor(values, { requiresGrad: true, device: cpu });
const double = (...values: number[]): Tensor =>
  tensor(values, { requiresGrad: true, dtype: "f64", device: cpu });

/** Σ and product of two tensors. */
class SumAndProduct extends autograd.Function {
  static forward(context: autograd.FunctionContext, a: Tensor, b: Tensor, _factor: number): Tensor[] {
    context.saveForBackward(a, b);
    return [a.add(b), a.mul(b)];
  }
  static backward(context: autograd.FunctionContext, sum: Tensor, product: Tensor): (Tensor | null)[] {
    const [a, b] = context.savedTensors;
    return [sum.add(product.mul(b!)), sum.add(product.mul(a!)), null];
  }
}

class WrongSquare extends autograd.Function {
  static forward(context: autograd.FunctionContext, x: Tensor): Tensor {
    context.saveForBackward(x);
    return x.mul(x);
  }
  static backward(context: autograd.FunctionContext, gradient: Tensor): Tensor {
    return context.savedTensors[0]!.mul(gradient).mul(3);
  }
}

test("a hook sees the whole gradient once in each pass, and may replace it", () => {
  cpu.step(() => {
    const x = leaf(1, 2);
    const y = x.mul(2);
    const seen: unknown[] = [];
    const handles = [
      y.registerHook((gradient) => void seen.push(gradient.tolist())),
      y.registerHook((gradient) => gradient.mul(10)),
      x.registerHook((gradient) => gradient.add(1)),
    ];
    y.add(y.mul(3)).sum().backward(null, { retainGraph: true });
    assert.deepEqual([seen, x.grad?.tolist()], [[[4, 4]], [81, 81]]); // prettier-ignore
    for (const handle of handles) handle.remove();
    x.zeroGrad();
    y.add(y.mul(3)).sum().backward();
    assert.deepEqual([seen.length, x.grad?.tolist()], [1, [8, 8]]); // prettier-ignore
    y.registerHook(() => tensor([1], { device: cpu }));
    rejects("BAD_SHAPE", () => y.sum().backward(), /A hook of "mul" returned f32 \[1\]/);
    rejects("NO_GRADIENT", () => tensor([1], { device: cpu }).registerHook(() => 0), /registerHook/);
  });
});

test("hooks of views get the gradient of the view, with that of views of it", () => {
  cpu.step(() => {
    const x = leaf(1, 2, 3, 4);
    const view = x.slice([1]);
    const seen: unknown[] = [];
    view.registerHook((gradient) => void seen.push(gradient.tolist()));
    view.slice([1]).mul(2).sum().add(view.sum()).add(x.sum()).backward();
    assert.deepEqual([seen, x.grad?.tolist()], [[[1, 3, 3]], [1, 2, 4, 4]]); // prettier-ignore
  });
});

test("retainGrad keeps the gradient of a result, after its hooks", () => {
  cpu.step(() => {
    const y = leaf(1, 2).mul(3);
    assert.equal(y.retainsGrad, false);
    y.retainGrad();
    assert.deepEqual([y.retainsGrad, leaf(1).retainsGrad], [true, false]);
    y.registerHook((gradient) => gradient.mul(2));
    y.mul(y).sum().backward();
    assert.deepEqual(y.grad?.tolist(), [12, 24]);
  });
});

test("a function's gradient is what its backward returns, for any of its results, twice, and through checkpoint", () => {
  cpu.step(() => {
    const [a, b] = [double(1, 2), double(3, 5)];
    const [sum, product] = SumAndProduct.apply(a, b, 7);
    assert.deepEqual(
      [sum!.tolist(), product!.tolist()],
      [
        [4, 7],
        [3, 10],
      ],
    ); // prettier-ignore
    const [only] = autograd.grad(product!.sum(), [a], { retainGraph: true });
    assert.deepEqual(only.tolist(), [3, 5]);
    const [slope] = autograd.grad(product!.mul(sum!).sum(), [a], { createGraph: true });
    const [mixed] = autograd.grad(slope.sum(), [b]);
    assert.deepEqual(mixed.tolist(), [8, 14]);
    const again = checkpoint((x: Tensor, y: Tensor) => SumAndProduct.apply(x, y, 1)[1]!.exp(), a, b);
    const [through] = autograd.grad(again.sum(), [a]);
    const [expected] = autograd.grad(a.mul(b).exp().sum(), [a]);
    assert.deepEqual(through.tolist(), expected.tolist());
    assert.ok(autograd.gradcheck((x, y) => SumAndProduct.apply(x, y, 2), [a, b]));
    assert.ok(autograd.gradgradcheck((x, y) => SumAndProduct.apply(x, y, 2)[1]!, [a, b]));
  });
});

test("functions and hooks give the same bits in a compiled step", () => {
  const [a, b] = [leaf(1, 2), leaf(3, 5)];
  const body = (): Tensor => {
    const [sum, product] = SumAndProduct.apply(a, b, 7);
    sum!.registerHook((gradient) => gradient.mul(0.5));
    const loss = sum!.mul(product!).sum();
    a.zeroGrad();
    loss.backward();
    return loss;
  };
  const eager = cpu.step(() => [body(), a.grad!].map((result) => result.dataSync()));
  const step = cpu.compile(body);
  for (let call = 0; call < 2; call++) {
    sameBytes(step().dataSync(), eager[0]!, "the loss");
    sameBytes(a.grad!.dataSync(), eager[1]!, "the gradient");
  }
  const handle = a.registerHook((gradient) => gradient.mul(2));
  step();
  assert.deepEqual(
    [...a.grad!.dataSync()].map(Number),
    [...eager[1]!].map((value) => 2 * Number(value)),
    "a new hook makes a new plan",
  );
  handle.remove();
  step.close();
});

test("a function protects what it saved, and says what is wrong", () => {
  cpu.step(() => {
    const x = leaf(1, 2);
    const y = x.mul(1);
    const [, product] = SumAndProduct.apply(y, x, 1);
    y.detach().mul_(2);
    rejects("SAVED_CHANGED", () => product!.sum().backward(), /SumAndProduct saved/);
    class Short extends SumAndProduct {
      static override backward(): (Tensor | null)[] {
        return [null];
      }
    }
    const [short] = Short.apply(x, x, 1);
    rejects(
      "BAD_ARGUMENT",
      () => short!.sum().backward(),
      /Short.backward returned 1 gradients for 3 arguments/,
    );
    const z = double(1, 2);
    const check = { raiseException: false };
    assert.equal(
      autograd.gradcheck((x) => WrongSquare.apply(x), [z], check),
      false,
    );
    rejects(
      "BAD_ARGUMENT",
      () => autograd.gradcheck((x) => WrongSquare.apply(x), [z]),
      /is 3, and differences give 2/,
    );
    rejects("BAD_ARGUMENT", () => autograd.gradcheck((x) => x, [x]), /Pass f64/);
  });
});

test("hooks of modules run around forward and backward, also in a compiled step, which notices new ones", () => {
  const layer = new nn.Linear(2, 1, { bias: false }).to(cpu);
  layer.weight.initialize(nn.init.ones());
  const x = leaf(1, 2);
  const seen: unknown[] = [];
  const handles = [
    layer.registerForwardPreHook((_, [input]) => [(input as Tensor).mul(2)]),
    layer.registerForwardHook((_module, _inputs, output) => (output as Tensor).add(1)),
    layer.registerFullBackwardHook((_, [gradInput], [gradOutput]) => {
      seen.push([gradInput?.shape, gradOutput?.shape]);
      return [gradInput!.mul(10)];
    }),
  ];
  const body = (): Tensor => {
    x.zeroGrad();
    const y = layer.forward(x);
    y.sum().backward();
    return y;
  };
  assert.deepEqual(
    cpu.step(() => body().tolist()),
    [7],
  );
  assert.deepEqual([x.grad?.tolist(), seen], [[20, 20], [[[2], [1]]]]); // prettier-ignore
  const step = cpu.compile(body);
  assert.deepEqual([step().tolist(), x.grad?.tolist()], [[7], [20, 20]]); // prettier-ignore
  for (const handle of handles) handle.remove();
  assert.deepEqual([step().tolist(), x.grad?.tolist()], [[3], [1, 1]]); // prettier-ignore
  assert.deepEqual(Object.keys(layer).includes("forward"), false);
  step.close();
});
