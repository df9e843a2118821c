/** checkpoint(): bits, memory, random numbers, modes, results and errors, in eager and compiled steps, on the CPU and on the emulated GPU. */

import assert from "node:assert/strict";
import { after, describe, test } from "node:test";
import { checkpoint, Device, manualSeed, nn, noGrad, ones, randn, type Tensor, tensor } from "holdfast";
import { emulatorMissing } from "./support/emulator.js";
import { openEmulatorGpu } from "./support/emulator-gpu.js";
import { withNullGpu } from "./support/null-gpu.js";
import { rejects } from "./support/rejects.js";
import { sameBytes } from "./support/same-bytes.js";

class Block extends nn.Module {
  readonly norm: nn.LayerNorm;
  readonly up: nn.Linear;
  readonly dropout: nn.Dropout;
  readonly down: nn.Linear;

  constructor(width: number, p: number) {
    super();
    this.norm = new nn.LayerNorm(width);
    this.up = new nn.Linear(width, 8 * width);
    this.dropout = new nn.Dropout(p);
    this.down = new nn.Linear(8 * width, width);
  }

  forward(x: Tensor): Tensor {
    const hidden = this.dropout.forward(this.up.forward(this.norm.forward(x)).gelu()); // [rows, 8 × width]
    return x.add(this.down.forward(hidden));
  }
}

type Wrap = (block: Block, x: Tensor) => Tensor;

const plain: Wrap = (block, x) => block.forward(x);
const checkpointed: Wrap = (block, x) => checkpoint((input) => block.forward(input), x);

interface Options {
  readonly isCompiled?: boolean;
  readonly betweenPasses?: (model: nn.ModuleList) => void;
}

const [rows, width] = [24, 8];

function train(device: Device, wrap: Wrap, { isCompiled = false, betweenPasses }: Options = {}) {
  manualSeed(5);
  const model = new nn.ModuleList([0, 1, 2].map(() => new Block(width, 0.3))).to(device);
  const x = randn([rows, width], { device });
  const body = (input: Tensor): Tensor => {
    let hidden = input;
    for (const block of model) hidden = wrap(block as Block, hidden);
    const loss = hidden.square().mean();
    betweenPasses?.(model);
    loss.backward();
    return loss;
  };
  const step = isCompiled ? device.compile(body) : undefined;
  const loss = step ? step(x).item() : device.step(() => body(x).item());
  const gradients = model.parameters().map(({ grad }) => grad!.dataSync() as Float32Array);
  const next = nn.functional.dropout(ones([16], { device })).dataSync() as Float32Array;
  step?.close();
  return { loss, gradients, next };
}

function requireSame(actual: ReturnType<typeof train>, expected: ReturnType<typeof train>): void {
  assert.equal(actual.loss, expected.loss);
  for (const [index, values] of expected.gradients.entries())
    sameBytes(actual.gradients[index]!, values, `gradient ${index}`);
  sameBytes(actual.next, expected.next, "the next random numbers");
}

const cpu = new Device("cpu", { print: () => {} });
after(() => cpu.close());

describe("checkpoint", () => {
  test("changes no bit of a loss, of gradients or of later random numbers", () => {
    for (const isCompiled of [false, true])
      requireSame(train(cpu, checkpointed, { isCompiled }), train(cpu, plain, { isCompiled }));
  });

  test("changes no bit on a GPU", { skip: emulatorMissing }, () => {
    const gpu = openEmulatorGpu({ capture: "off" });
    const expected = train(gpu, plain);
    requireSame(train(gpu, checkpointed), expected);
    requireSame(train(gpu, checkpointed, { isCompiled: true }), expected);
  });

  test("red proof: other random numbers in backward give other gradients", () => {
    let runs = 0;
    const redrawn: Wrap = (block, x) =>
      checkpoint((input) => {
        runs += 1;
        // A draw that forward did not have.
        if (runs > 3) noGrad(() => nn.functional.dropout(ones([4], { device: cpu })));
        return block.forward(input);
      }, x);
    assert.throws(() => requireSame(train(cpu, redrawn), train(cpu, plain)), /gradient/);
  });

  test("sees modules in forward's mode, also if the mode changes before backward", () => {
    const expected = train(cpu, plain);
    const evaluated = train(cpu, checkpointed, { betweenPasses: (model) => model.eval() });
    assert.equal(evaluated.loss, expected.loss);
    for (const [index, values] of expected.gradients.entries())
      sameBytes(evaluated.gradients[index]!, values, `gradient ${index}`);
  });

  test("keeps no intermediate results in a step", () => {
    const highWaterOf = (wrap: Wrap): number => {
      const device = new Device("cpu", { print: () => {} });
      train(device, wrap);
      const { highWater } = device.diagnostics().arena;
      device.close();
      return highWater;
    };
    const hiddenBytes = 4 * rows * 8 * width;
    const saved = highWaterOf(plain) - highWaterOf(checkpointed);
    assert.ok(saved > 4 * hiddenBytes, `${saved} bytes`);
  });

  test("lowers the planned memory of a compiled step", () => {
    const planned = (wrap: Wrap, precision: "f32" | "bf16"): number =>
      withNullGpu(precision, (device) => {
        const model = new nn.ModuleList([0, 1, 2, 3].map(() => new Block(32, 0.3))).to(device);
        const body = (x: Tensor): Tensor => {
          let hidden = x;
          for (const block of model) hidden = wrap(block as Block, hidden);
          const loss = hidden.square().mean();
          loss.backward();
          return loss;
        };
        // Groups of so small reductions and GEMMs hold the gradients of all layers.
        const passes = { groupReductions: false, groupGemms: false };
        const step = device.compile(body, { passes });
        const { peak } = step.memory(ones([256, 32], { device }));
        step.close();
        return peak;
      });
    for (const precision of ["f32", "bf16"] as const) {
      const [kept, recomputed] = [planned(plain, precision), planned(checkpointed, precision)];
      assert.ok(recomputed < 0.7 * kept, `${precision}: ${recomputed} of ${kept} bytes`);
    }
  });

  test("takes any operands, returns several tensors, and gives gradients to all that it uses", () => {
    manualSeed(1);
    const [w, x, y] = [3, 4, 5].map((value) => tensor([value, 1], { requiresGrad: true, device: cpu }));
    const split = (a: Tensor, factor: number, { b }: { b: Tensor }) => ({
      product: a.mul(b).mul(w!),
      others: [a.exp().mul(factor), b],
    });
    const lossOf = ({ product, others }: ReturnType<typeof split>): Tensor =>
      product.sum().add(others[0]!.sum()).add(others[1]!.square().sum());
    const gradientsOf = (run: () => ReturnType<typeof split>): unknown[] =>
      cpu.step(() => {
        lossOf(run()).backward();
        const gradients = [w, x, y].map((leaf) => leaf!.grad!.tolist());
        for (const leaf of [w, x, y]) leaf!.zeroGrad();
        return gradients;
      });
    const expected = gradientsOf(() => split(x!, 2, { b: y! }));
    assert.deepEqual(
      gradientsOf(() => checkpoint(split, x!, 2, { b: y! })),
      expected,
    );
    const nested = () => checkpoint((a: Tensor) => checkpoint(split, a, 2, { b: y! }), x!);
    assert.deepEqual(gradientsOf(nested), expected);
  });

  test("runs the function once without gradients, and twice with them, also for two backward passes", () => {
    let runs = 0;
    const w = tensor([2, 3], { requiresGrad: true, device: cpu });
    const run = (): Tensor =>
      checkpoint((x) => {
        runs += 1;
        return x.exp().mul(x);
      }, w).sum();
    cpu.step(() => noGrad(run));
    assert.equal(runs, 1);
    cpu.step(() => {
      const loss = run();
      loss.backward(undefined, { retainGraph: true });
      loss.backward();
    });
    assert.equal(runs, 3);
    const once = tensor([2, 3], { requiresGrad: true, device: cpu });
    cpu.step(() => once.exp().mul(once).sum().mul(2).backward());
    assert.deepEqual(w.grad!.tolist(), once.grad!.tolist());
  });

  test("rejects a function that runs other ops in backward, and an async function", () => {
    let runs = 0;
    const w = tensor([2, 3], { requiresGrad: true, device: cpu });
    const changing = (x: Tensor): Tensor => (runs++ === 0 ? x.exp().mul(x) : x.sin().mul(x));
    const fewer = (x: Tensor): Tensor => (runs++ % 2 === 0 ? x.exp().sin().sin() : x.exp().sin());
    for (const [fn, message] of [
      [changing, /ran exp in forward and sin in backward/],
      [fewer, /ran sin in forward and nothing more in backward/],
    ] as const) {
      runs = 0;
      rejects("BAD_ARGUMENT", () => cpu.step(() => checkpoint(fn, w).sum().backward()), message);
    }
    rejects("BAD_ARGUMENT", () => checkpoint(async () => w.exp()));
  });

  test("frees tensors that it does not return, and says so", () => {
    let inner: Tensor | undefined;
    const w = tensor([2, 3], { requiresGrad: true, device: cpu });
    cpu.step(() => {
      checkpoint((x) => {
        inner ??= x.exp();
        return inner.mul(x);
      }, w);
      rejects("DEAD_TENSOR", () => inner!.tolist());
    });
  });
});
