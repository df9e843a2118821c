/**
 * Gradients of views: many views of one tensor make one gradient, each writes or adds its part, and only elements that no view has are
 * filled with zeros.
 */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { nn, noGrad, ones, type Tensor, tensor } from "holdfast";
import { Guards } from "../src/autograd/index.js";
import { traceStep } from "../src/compile/index.js";
import type { KernelOp, NoAttributes } from "../src/ops/index.js";
import { openStrictDevice } from "./support/devices.js";
import { effort } from "./support/effort.js";

const device = openStrictDevice();
const { avgPool2d, maxPool2d } = nn.functional;

type Views = (x: Tensor) => readonly Tensor[];

const countOf = (shape: readonly number[]): number => shape.reduce((count, size) => count * size, 1);

/** 0, 1, 2, … in a shape. Small whole numbers: their sums are exact in any order. */
function numbers(shape: readonly number[], first = 0): Tensor {
  const values = Float32Array.from({ length: countOf(shape) }, (_, index) => first + index);
  return tensor(values, { device }).reshape(shape);
}

/** Weights of the views' elements: the gradient of their weighted sum. */
const weightsOf = ({ shape }: Tensor, index: number): Tensor => numbers(shape, 1 + 100 * index);

const flat = (x: Tensor | null | undefined): number[] => (x?.reshape([-1]).tolist() ?? []) as number[];

/** Where the views have the elements of x, and so the gradient. */
function expectedGradient(shape: readonly number[], views: Views): number[] {
  const gradient = new Array<number>(countOf(shape)).fill(0);
  noGrad(() => {
    for (const [index, view] of views(numbers(shape)).entries()) {
      const [places, weights] = [flat(view), flat(weightsOf(view, index))];
      for (const [at, place] of places.entries()) gradient[place]! += weights[at]!;
    }
  });
  return gradient;
}

function weightedSum(x: Tensor, views: Views): Tensor {
  const sums = views(x).map((view, index) => view.mul(weightsOf(view, index)).sum());
  return sums.reduce((total, sum) => total.add(sum));
}

/** The gradients of the same views of a leaf, of a value, and with a graph that is kept and run again. */
function gradientsOf(shape: readonly number[], views: Views): number[][] {
  return device.step(() => {
    const leaf = numbers(shape);
    leaf.requiresGrad = true;
    weightedSum(leaf, views).backward();
    const ofLeaf = flat(leaf.grad);
    const other = numbers(shape);
    other.requiresGrad = true;
    weightedSum(other.mul(1), views).backward();
    const ofValue = flat(other.grad);
    const kept = numbers(shape);
    kept.requiresGrad = true;
    const loss = weightedSum(kept, views);
    loss.backward(undefined, { retainGraph: true });
    loss.backward();
    return [ofLeaf, ofValue, flat(kept.grad).map((sum) => sum / 2)];
  });
}

/** The kernels of a traced backward pass that write the gradient of a value with these views, by name. */
function callsOf(
  shape: readonly number[],
  views: Views,
  ops: readonly string[] = ["viewGradient", "add"],
): Readonly<Record<string, number>> {
  const { runtime } = device;
  const leaf = ones(shape, { device });
  device.keep(leaf);
  leaf.requiresGrad = true;
  const guards = new Guards();
  const { calls } = traceStep(runtime, () =>
    device.inTracedStep(() => guards.watch(device, () => weightedSum(leaf.mul(2), views).backward())),
  );
  guards.undo();
  const counts: Record<string, number> = {};
  for (const { op, phase, work } of calls) {
    if (phase !== "backward" || !ops.includes(op)) continue;
    const name = work.kind === "row" ? work.kernel.name : work.kind;
    counts[name] = (counts[name] ?? 0) + 1;
  }
  return counts;
}

const indices = (count: number): number[] => Array.from({ length: count }, (_, index) => index);

interface Pattern {
  readonly name: string;
  readonly shape: readonly number[];
  readonly views: Views;
  readonly calls: Readonly<Record<string, number>>;
}

const patterns: readonly Pattern[] = [
  {
    name: "the rows of an unrolled GRU, in three gates each",
    shape: [2, 5, 6],
    views: (x) => indices(5).flatMap((row) => x.select(1, row).chunk(3, -1)),
    calls: { copy: 15 },
  },
  {
    name: "query, key and value of one projection",
    shape: [2, 3, 24],
    views: (x) => {
      const packed = x.reshape([2, 3, 3, 2, 4]);
      return indices(3).map((index) => packed.select(2, index).transpose(1, 2));
    },
    calls: { copy: 3 },
  },
  { name: "every second element", shape: [3, 8], views: evenAndOdd, calls: { copy: 2 } },
  {
    name: "slices that leave one gap",
    shape: [4, 5],
    views: (x) => [x.slice(null, [0, 2]), x.slice(null, [3, 5])],
    calls: { fill: 1, copy: 2 },
  },
  {
    name: "a slice with several gaps, which are filled together",
    shape: [4, 5],
    views: (x) => [x.slice([1, 3], [1, 4])],
    calls: { fill: 1, copy: 1 },
  },
  {
    name: "slices that overlap in part",
    shape: [4, 3],
    views: (x) => [x.slice([0, 3]), x.slice([1, 4])],
    calls: { copy: 1, fill: 1, add: 1 },
  },
  {
    name: "the same slice twice",
    shape: [4],
    views: (x) => [x.slice([0, 3]), x.slice([0, 3]), x.slice([3])],
    calls: { copy: 2, add: 1 },
  },
  {
    name: "one slice with several uses",
    shape: [4],
    views: (x) => {
      const [first, second] = x.chunk(2) as [Tensor, Tensor];
      return [first, second, first, first];
    },
    calls: { copy: 2, add: 2 },
  },
  {
    name: "slices of slices, and of a transposed slice",
    shape: [6, 4],
    views: (x) => {
      const inner = x.slice([1, 5]);
      return [inner.slice([0, 2]), inner.slice([2, 4]).transpose(0, 1).slice([0, null, 2])];
    },
    calls: { fill: 1, copy: 2 },
  },
  {
    name: "a tensor as a whole and in slices",
    shape: [4, 2],
    views: (x) => [x, ...x.chunk(2)],
    calls: { copy: 2, add: 1 },
  },
  {
    name: "a tensor in slices and as a whole, whose gradient arrives first",
    shape: [4, 2],
    views: (x) => [...x.chunk(2), x],
    calls: { add: 2 },
  },
  {
    name: "slices of a reshaped slice, which is no view of the tensor",
    shape: [3, 4],
    views: (x) => x.slice(null, [1, 3]).reshape([6]).chunk(3),
    calls: { copy: 4, fill: 1 },
  },
  {
    name: "an element of an expanded tensor, which is all of the tensor",
    shape: [2, 3],
    views: (x) => x.expand([2, 2, 3]).split(1),
    calls: { copy: 2 },
  },
  {
    name: "steps that are not compared",
    shape: [13],
    views: (x) => [x.slice([0, null, 2]), x.slice([0, null, 3])],
    calls: { fill: 1, add: 2 },
  },
  { name: "an empty slice", shape: [3], views: (x) => [x.slice([1, 1])], calls: { fill: 1 } },
  {
    name: "an empty slice next to others",
    shape: [4],
    views: (x) => [x.slice([2, 2]), ...x.chunk(2)],
    calls: { copy: 2 },
  },
  {
    name: "a slice of everything",
    shape: [3, 2],
    views: (x) => [x.slice([0, 3]), x.reshape([3, 1, 2]).select(1, 0)],
    calls: { add: 1 },
  },
  {
    name: "windows that do not overlap",
    shape: [2, 7],
    views: (x) => [x.reshape([2, 1, 7]).slice(null, null, [0, 6]).reshape([2, 3, 2])],
    calls: { fill: 1, copy: 1 },
  },
  {
    name: "more parts than are tracked",
    shape: [140],
    views: (x) => indices(70).map((index) => x.slice([2 * index, 2 * index + 1])),
    calls: { fill: 1, add: 70 },
  },
];

function evenAndOdd(x: Tensor): Tensor[] {
  return [x.slice(null, [0, null, 2]), x.slice(null, [1, null, 2])];
}

describe("the gradient of", () => {
  for (const { name, shape, views, calls } of patterns) {
    test(name, () => {
      const expected = expectedGradient(shape, views);
      for (const gradient of gradientsOf(shape, views)) assert.deepEqual(gradient, expected);
      assert.deepEqual(callsOf(shape, views), calls);
    });
  }
});

describe("the gradient of windows fills no element that a window has:", () => {
  const shape = [1, 1, 6, 6];
  const ops = ["maxPoolGradient", "fold", "viewGradient"];
  const cases: readonly [string, (x: Tensor) => Tensor, Readonly<Record<string, number>>][] = [
    ["maxima of windows side by side", (x) => maxPool2d(x, 2), { maxPoolGradient: 4 }],
    ["maxima, and a border without windows", (x) => maxPool2d(x, 4), { fill: 2, maxPoolGradient: 16 }],
    [
      "maxima of windows that overlap",
      (x) => maxPool2d(x, 2, { stride: 1 }),
      { fill: 2, maxPoolGradient: 4 },
    ],
    ["means of windows side by side", (x) => avgPool2d(x, 2), { copy: 1 }],
    ["means of windows that overlap", (x) => avgPool2d(x, 2, { stride: 1 }), { fill: 2, copy: 1, fold: 3 }],
    ["means of windows apart", (x) => avgPool2d(x, 1, { stride: 2 }), { fill: 1, copy: 1 }],
  ];
  for (const [name, pool, calls] of cases) {
    test(name, () =>
      assert.deepEqual(
        callsOf(shape, (x) => [pool(x)], ops),
        calls,
      ),
    );
  }
});

test("chains of views have the gradients of their elements, whatever they are made of", () => {
  type Link = (x: Tensor, draw: (below: number) => number) => Tensor;
  const links: readonly Link[] = [
    (x, draw) => x.slice(...x.shape.map((size) => [draw(size + 1), null, 1 + draw(2)] as const)),
    (x, draw) => x.slice(...x.shape.map((size) => [0, size - draw(2)] as const)),
    (x, draw) => {
      const axis = draw(Math.max(1, x.shape.length));
      return x.shape[axis] ? x.select(axis, draw(x.shape[axis])) : x;
    },
    (x) => x.permute(x.shape.map((_, axis) => axis).reverse()),
    (x) => x.reshape([-1]),
    (x) => (x.shape.at(-1) === 4 ? x.reshape([...x.shape.slice(0, -1), 2, 2]) : x),
    (x) => x.expand([2, ...x.shape]),
    (x, draw) => (draw(2) === 0 ? x.add(0) : x),
  ];
  const shape = [3, 4, 4];
  const chains = fc.array(fc.array(fc.nat(), { minLength: 2, maxLength: 8 }), { minLength: 1, maxLength: 5 });
  fc.assert(
    fc.property(chains, (drawn) => {
      const views: Views = (x) =>
        drawn.map((choices) => {
          let [view, next] = [x, 0];
          const draw = (below: number): number => (choices[next++ % choices.length] ?? 0) % below;
          for (let link = 0; link < choices.length / 2; link++)
            view = links[draw(links.length)]?.(view, draw) ?? view;
          return view;
        });
      const expected = expectedGradient(shape, views);
      for (const gradient of gradientsOf(shape, views)) assert.deepEqual(gradient, expected);
    }),
    { numRuns: effort({ quick: 15, thorough: 2000 }) },
  );
});

test("slices are added to the gradient that a leaf has, and other elements stay", () => {
  device.step(() => {
    const x = numbers([4]);
    x.requiresGrad = true;
    x.mul(10).sum().backward();
    x.slice([1, 3]).sum().backward();
    assert.deepEqual(flat(x.grad), [10, 11, 11, 10]);
    x.zeroGrad();
    x.slice([0, 1]).mul(3).sum().backward();
    assert.deepEqual(flat(x.grad), [3, 0, 0, 0]);
    // The seed shares memory with the gradient that it is added to.
    x.slice([1, 3]).backward(x.grad!.slice([0, 2]));
    assert.deepEqual(flat(x.grad), [3, 3, 0, 0]);
  });
});

test("backward from a view itself", () => {
  device.step(() => {
    const x = numbers([2, 3]);
    x.requiresGrad = true;
    x.mul(2)
      .select(1, 1)
      .backward(tensor([5, 7], { device }));
    assert.deepEqual(flat(x.grad), [0, 10, 0, 0, 14, 0]);
    assert.equal(device.tape.openNodes, 0);
  });
});

/** Returns its operand, and has no gradient. */
const breaking: KernelOp<NoAttributes> = {
  kind: "kernel",
  name: "breaking",
  infer: ([x]) => [x as Exclude<typeof x, number | undefined>],
  lower: (lowering, [x], [out]) => {
    if (typeof x === "object") lowering.copy(out!.storage!, x.storage!);
  },
  gradient: () => {
    throw new Error("no gradient today");
  },
};

test("if backward fails midway, the parts that have not arrived are zero", () => {
  device.step(() => {
    const x = numbers([4]);
    x.requiresGrad = true;
    const broken = device.apply(breaking, [x.slice([0, 2]).mul(1)]);
    const loss = broken.sum().add(x.slice([2, 4]).mul(3).sum());
    assert.throws(() => loss.backward(), /no gradient today/);
    assert.deepEqual(flat(x.grad), [0, 0, 3, 3]);
  });
});

test("a check for NaN sees no part before it is written", () => {
  const checked = openStrictDevice({ detectNaN: true });
  checked.step(() => {
    const x = tensor([[1, 2, 3, 4]], { device: checked, requiresGrad: true });
    const y = x.mul(2);
    const parts = y.split(1, 1).map((part, index) => part.mul(index + 1).sum());
    parts.reduce((sum, part) => sum.add(part)).backward();
    assert.deepEqual(flat(x.grad), [2, 4, 6, 8]);
  });
});

test("backward through many slices needs the memory of one gradient", () => {
  const size = 1 << 14;
  const growth = (slices: number): number =>
    device.step(() => {
      const x = numbers([size]);
      x.requiresGrad = true;
      const parts = x.mul(2).chunk(slices);
      const weights = numbers([size / slices]);
      const loss = parts.map((part) => part.mul(weights).sum()).reduce((sum, part) => sum.add(part));
      const { arena } = device.runtime;
      const before = arena.figures.live;
      let max = before;
      const allocate = arena.allocate.bind(arena);
      arena.allocate = (bytes, label) => {
        const storage = allocate(bytes, label);
        max = Math.max(max, arena.figures.live);
        return storage;
      };
      try {
        loss.backward();
      } finally {
        Reflect.deleteProperty(arena, "allocate");
      }
      return max - before;
    });
  assert.ok(growth(16) <= growth(2), `${growth(16)} and ${growth(2)} bytes`);
});
