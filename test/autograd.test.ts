/** The tape: what it pins and for how long, what it rejects, and that backward frees memory as it goes. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { noGrad, type Tensor, tensor } from "holdfast";
import { openStrictDevice } from "./support/devices.js";
import { rejects } from "./support/rejects.js";

const cpu = openStrictDevice();

const leaf = (...values: number[]): Tensor => tensor(values, { requiresGrad: true, device: cpu });
const listOf = (gradient: Tensor | null | undefined): unknown => gradient?.tolist();

test("gradients of several uses of a tensor are added", () => {
  cpu.step(() => {
    const x = leaf(1, 2, 3);
    x.mul(2).add(x.mul(x)).add(x).sum().backward();
    assert.deepEqual(listOf(x.grad), [5, 7, 9]);
  });
});

test("a second backward adds to the gradient, and zeroGrad lets the next one replace it", () => {
  cpu.step(() => {
    const x = leaf(1, 2);
    x.sum().backward();
    x.mul(3).sum().backward();
    assert.deepEqual(listOf(x.grad), [4, 4]);
    x.zeroGrad();
    assert.equal(x.grad, null);
    x.mul(5).sum().backward();
    assert.deepEqual(listOf(x.grad), [5, 5]);
  });
});

test("saved tensors, and no others, are pinned until backward has used them", () => {
  cpu.step(() => {
    const x = leaf(1, 2);
    const y = x.add(1);
    const z = y.exp();
    const isPinned = ({ array }: Tensor): boolean =>
      array.storage !== undefined && cpu.runtime.arena.isPinned(array.storage);
    assert.equal(isPinned(y), false, "the gradient of exp uses its output");
    assert.equal(isPinned(z), true);
    z.sum().backward();
    assert.equal(isPinned(z), false);
    assert.equal(cpu.tape.openNodes, 0);
  });
});

test("the end of a step frees its tape, with or without a backward", () => {
  const pins = () => cpu.runtime.diagnostics().arena.pins;
  const before = pins();
  cpu.step(() => {
    leaf(1, 2).exp();
    assert.ok(pins() > before);
  });
  assert.equal(pins(), before);
  assert.equal(cpu.tape.openNodes, 0);
});

test("backward keeps a few gradients at a time, not one for every op", () => {
  const size = 1 << 16;
  const growth = (ops: number): number =>
    cpu.step(() => {
      const x = cpu.fromHost(new Float32Array(size), [size], "f32");
      x.requiresGrad = true;
      let y = x;
      for (let index = 0; index < ops; index++) y = y.mul(1.5);
      const before = cpu.runtime.arena.figures.live;
      let max = before;
      const allocate = cpu.runtime.arena.allocate.bind(cpu.runtime.arena);
      cpu.runtime.arena.allocate = (bytes, label) => {
        const storage = allocate(bytes, label);
        max = Math.max(max, cpu.runtime.arena.figures.live);
        return storage;
      };
      try {
        y.backward(cpu.fromHost(new Float32Array(size), [size], "f32"));
      } finally {
        Reflect.deleteProperty(cpu.runtime.arena, "allocate");
      }
      return max - before;
    });
  assert.equal(growth(40), growth(4));
});

test("a second backward over a freed graph is rejected, unless it was retained", () => {
  cpu.step(() => {
    const x = leaf(1, 2);
    const y = x.exp().sum();
    y.backward(undefined, { retainGraph: true });
    y.backward();
    rejects("BACKWARD_TWICE", () => y.backward(), /exp a second time/);
  });
});

test("an in-place write to a saved tensor is detected", () => {
  cpu.step(() => {
    const x = leaf(1, 2);
    const y = x.exp();
    const z = y.sum();
    y.mul_(2);
    rejects("SAVED_CHANGED", () => z.backward(), /exp saved its output 0/);
  });
});

test("an in-place op is part of the graph, and saves its result", () => {
  cpu.step(() => {
    const x = leaf(1, 2);
    const y = x.mul(1);
    y.exp_();
    y.sum().backward();
    assert.deepEqual(listOf(x.grad), y.tolist());
  });
});

test("an in-place op whose gradient needs the overwritten value is rejected in backward", () => {
  cpu.step(() => {
    const [x, factor] = [leaf(1, 2), leaf(3, 4)];
    const y = x.mul(1);
    y.mul_(factor);
    rejects("SAVED_CHANGED", () => y.sum().backward(), /mul saved its operand 0/);
  });
});

test("an in-place write to a leaf or to a view of one is rejected while gradients are recorded", () => {
  cpu.step(() => {
    const x = leaf(1, 2, 3, 4);
    rejects("NO_GRADIENT", () => x.add_(1), /on a leaf tensor that requires a gradient/);
    noGrad(() => x.add_(1));
    assert.deepEqual(x.tolist(), [2, 3, 4, 5]);
  });
});

test("an in-place write to a view of a whole leaf is rejected too", () => {
  cpu.step(() => {
    const x = leaf(1, 2);
    rejects("NO_GRADIENT", () => x.reshape([2, 1]).mul_(3), /on a leaf tensor that requires a gradient/);
    assert.deepEqual(x.tolist(), [1, 2]);
  });
});

test("a view from before a recorded write to its base is rejected, and one made after it is not", () => {
  cpu.step(() => {
    const x = leaf(1, 2);
    const y = x.mul(2);
    const view = y.reshape([2, 1]);
    y.mul_(3);
    rejects("SAVED_CHANGED", () => view.sum(), /sum: operand 0 \(f32 \[2, 1\]\) shares memory/);
    rejects("SAVED_CHANGED", () => view.backward(tensor([[1], [1]])), /backward: operand 0/);
    assert.deepEqual(
      noGrad(() => view.sum().item()),
      18,
    );
    y.reshape([2, 1]).sum().backward();
    assert.deepEqual(listOf(x.grad), [6, 6]);
  });
});

test("a tensor without a gradient is rejected once a write has given one to a view of it", () => {
  cpu.step(() => {
    const [base, x] = [tensor([1, 2]), leaf(3, 4)];
    const view = base.reshape([2, 1]);
    view.add_(x.reshape([2, 1]));
    rejects("SAVED_CHANGED", () => base.mul(2), /mul: operand 0/);
    view.sum().backward();
    assert.deepEqual(listOf(x.grad), [1, 1]);
  });
});

test("detached tensors and views of them stay usable after writes through other views", () => {
  cpu.step(() => {
    const x = leaf(1, 2);
    const y = x.mul(2);
    const detached = y.detach();
    const view = detached.reshape([2, 1]);
    y.mul_(3);
    y.mul(detached)
      .add(view.reshape([2]))
      .sum()
      .backward();
    assert.deepEqual(listOf(x.grad), [36, 72]);
  });
});

test("copy_ from a tensor without a gradient detaches the target from its earlier graph", () => {
  cpu.step(() => {
    const x = leaf(1, 2);
    const y = x.mul(2);
    y.copy_(tensor([5, 7]));
    y.mul(x).sum().backward();
    assert.deepEqual(listOf(x.grad), [5, 7]);
  });
});

test("a rejected in-place op records nothing and pins nothing", () => {
  cpu.step(() => {
    const [x, wide] = [leaf(1, 2), tensor([[1, 2]], { device: cpu }).expand([2, 2])];
    const y = x.mul(1);
    const before = [cpu.tape.openNodes, cpu.runtime.diagnostics().arena.pins];
    rejects("BAD_SHAPE", () => y.mul_(wide), /\[2, 2\] and the tensor is f32 \[2\]/);
    assert.deepEqual([cpu.tape.openNodes, cpu.runtime.diagnostics().arena.pins], before);
    y.sum().backward();
    assert.deepEqual(listOf(x.grad), [1, 1]);
  });
});

test("noGrad records nothing, ends with its function, and rejects an async one", () => {
  cpu.step(() => {
    const x = leaf(1);
    assert.equal(noGrad(() => x.exp()).requiresGrad, false);
    assert.throws(() =>
      noGrad(() => {
        throw new Error("from inside");
      }),
    );
    assert.equal(x.exp().requiresGrad, true);
  });
  rejects("BAD_ARGUMENT", () => noGrad(async () => 1), /async/);
});

test("backward starts from one number, or from a gradient of the tensor's own shape", () => {
  cpu.step(() => {
    const x = leaf(1, 2);
    rejects("BAD_SHAPE", () => x.mul(2).backward(), /single number/);
    rejects("BAD_SHAPE", () => x.mul(2).backward(tensor([1, 2, 3], { device: cpu })), /f32 \[3\]/);
    x.mul(2).backward(tensor([1, 10], { device: cpu }));
    assert.deepEqual(listOf(x.grad), [2, 20]);
    rejects("NO_GRADIENT", () => tensor([1], { device: cpu }).backward(), /requires a gradient/);
  });
});

test("integers and booleans are not part of the graph", () => {
  cpu.step(() => {
    const x = leaf(1, -2);
    assert.equal(x.gt(0).requiresGrad, false);
    assert.equal(x.to("i32").requiresGrad, false);
    rejects(
      "NO_GRADIENT",
      () => tensor([1], { dtype: "i32", requiresGrad: true, device: cpu }),
      /only floats/,
    );
  });
});

test("a graph recorded outside every step outlives the steps in between", () => {
  const x = leaf(1, 2);
  const loss = x.exp().sum();
  cpu.step(() => {
    leaf(3).exp();
  });
  loss.backward();
  assert.deepEqual(listOf(x.grad), x.exp().tolist());
  assert.equal(cpu.tape.openNodes, 1, "only the exp above is recorded");
  cpu.tape.release();
});

test("backward() of a kept loss says that its graph ended with its step", () => {
  const w = leaf(1, 2);
  const kept = cpu.step(() => w.square().sum().keep());
  rejects(
    "NO_GRADIENT",
    () => kept.backward(),
    /keep\(\) has detached it .* inside the step, before keep\(\)/,
  );
  const step = cpu.compile(() => ({ loss: w.square().sum() }));
  for (let times = 0; times < 2; times++) {
    const { loss } = step();
    rejects("NO_GRADIENT", () => loss.backward(), /result of a compiled step.*inside the compiled function/);
  }
  rejects("NO_GRADIENT", () => w.sum().detach().backward(), /that detach\(\) was called on/);
  // A tensor that never had a graph was not cut off.
  const plain = cpu.step(() => w.detach().sum().keep());
  rejects("NO_GRADIENT", () => plain.backward(), /none of its inputs requires a gradient/);
  rejects("NO_GRADIENT", () => noGrad(() => w.sum()).backward(), /requires a gradient/);
  assert.equal(w.grad, null);
});

test("a graph ends with its step even if its ops saved nothing", () => {
  const w = leaf(1, 2);
  const loss = cpu.step(() => {
    const sum = w.add(1).sum();
    sum.keep();
    return sum;
  });
  rejects("NO_GRADIENT", () => loss.backward(), /sum, whose graph ended with its step/);
  cpu.step(() => rejects("NO_GRADIENT", () => loss.add(w.sum()).backward(), /ended with its step/));
  assert.equal(w.grad, null);
});
