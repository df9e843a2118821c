/** Layers: results against plain formulas, names of parameters, initial values, printed text, and errors. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { openStrictDevice } from "../../../test/support/devices.js";
import { rejects } from "../../../test/support/rejects.js";
import { manualSeed, ones, randn, type Tensor, tensor } from "../../tensor/index.js";
import * as nn from "../index.js";

const cpu = openStrictDevice();

function namesOf(module: nn.Module): string {
  return [...module.namedParameters()].map(([name]) => name).join(" ");
}

function close(actual: Tensor, expected: Tensor, name: string, tolerance = 1e-12): void {
  assert.deepEqual(actual.shape, expected.shape, name);
  const [a, b] = [actual.dataSync(), expected.dataSync()];
  for (let index = 0; index < a.length; index++) {
    assert.ok(
      Math.abs(a[index]! - b[index]!) <= tolerance,
      `${name}: ${a[index]}, expected ${b[index]}, at ${index}`,
    );
  }
}

const random = (shape: readonly number[]): Tensor => randn(shape, { dtype: "f64" });

/** Attention computed head by head, with matrix products. */
function attendByHead(
  layer: nn.MultiheadAttention,
  q: Tensor,
  k: Tensor,
  v: Tensor,
  isCausal: boolean,
): Tensor {
  const width = layer.embedDim;
  const size = width / layer.heads;
  const project = (x: Tensor, projection: number): Tensor => {
    const y = x.matmul(layer.inProjWeight.narrow(0, projection * width, width).t());
    return layer.inProjBias ? y.add(layer.inProjBias.narrow(0, projection * width, width)) : y;
  };
  const projections = [q, k, v].map(project);
  const heads = Array.from({ length: layer.heads }, (_, head) => {
    const [hq, hk, hv] = projections.map((x) => x.narrow(-1, head * size, size));
    const scores = hq!.matmul(hk!.t()).div(Math.sqrt(size));
    const [rows = 0, columns = 0] = scores.shape;
    const causalMask = Array.from({ length: rows }, (_, row) =>
      Array.from({ length: columns }, (_, column) => (isCausal && column > row ? -1e300 : 0)),
    );
    const weights = scores.add(tensor(causalMask, { dtype: "f64" })).softmax(-1);
    return weights.matmul(hv!);
  });
  const output = heads.reduce<Tensor | undefined>((sum, head, index) => {
    const projected = head.matmul(layer.outProj.weight.narrow(1, index * size, size).t());
    return sum ? sum.add(projected) : projected;
  }, undefined)!;
  return layer.outProj.bias ? output.add(layer.outProj.bias) : output;
}

test("multihead attention equals its heads one by one: self-attention, causal, and cross-attention", () => {
  for (const bias of [true, false]) {
    const layer = new nn.MultiheadAttention(6, 3, { bias }).to(cpu, "f64");
    cpu.step(() => {
      const [x, key, value] = [random([4, 6]), random([5, 6]), random([5, 6])];
      close(layer.forward(x), attendByHead(layer, x, x, x, false), "self");
      const causal = layer.forward(x, undefined, undefined, { isCausal: true });
      close(causal, attendByHead(layer, x, x, x, true), "causal");
      close(layer.forward(x, key, value), attendByHead(layer, x, key, value, false), "cross");
      close(layer.forward(x, key), attendByHead(layer, x, key, key, false), "value is the key");
    });
  }
});

test("multihead attention takes batch-first inputs, sequence-first inputs with batchFirst: false, and masks", () => {
  const layer = new nn.MultiheadAttention(4, 2).to(cpu, "f64");
  const rowsFirst = new nn.MultiheadAttention(4, 2, { batchFirst: false }).to(cpu, "f64");
  rowsFirst.loadStateDict(layer.stateDict());
  cpu.step(() => {
    const x = random([3, 5, 4]);
    const y = layer.forward(x);
    for (const batch of [0, 1, 2]) {
      close(y.select(0, batch), layer.forward(x.select(0, batch)), `batch ${batch}`);
    }
    close(rowsFirst.forward(x.transpose(0, 1)), y.transpose(0, 1), "rows first");
    const lower = tensor(
      Array.from({ length: 5 }, (_, row) => Array.from({ length: 5 }, (_, column) => column <= row)),
    );
    const causal = layer.forward(x, x, x, { isCausal: true });
    close(layer.forward(x, x, x, { mask: lower }), causal, "a mask of the lower triangle is causal");
  });
});

test("a transformer layer is attention and feed-forward with residuals, with the norms before or after them", () => {
  for (const normFirst of [false, true]) {
    const options = { dimFeedforward: 7, activation: "gelu", normFirst } as const;
    const layer = new nn.TransformerEncoderLayer(4, 2, options).to(cpu, "f64").eval();
    cpu.step(() => {
      const x = random([2, 3, 4]);
      const feed = (y: Tensor): Tensor => layer.linear2.forward(layer.linear1.forward(y).gelu());
      const { norm1, norm2, selfAttn } = layer;
      const middle = normFirst
        ? x.add(selfAttn.forward(norm1.forward(x)))
        : norm1.forward(x.add(selfAttn.forward(x)));
      const expected = normFirst
        ? middle.add(feed(norm2.forward(middle)))
        : norm2.forward(middle.add(feed(middle)));
      close(layer.forward(x), expected, `normFirst ${normFirst}`);
    });
  }
});

test("every parameter of a transformer layer gets a gradient, and dropout is active in training only", () => {
  const layer = new nn.TransformerEncoderLayer(4, 2, { dimFeedforward: 8 }).to(cpu);
  cpu.step(() => {
    const x = randn([2, 3, 4]);
    layer.forward(x).square().mean().backward();
    const without = [...layer.namedParameters()]
      .filter(([, { grad }]) => grad === null)
      .map(([name]) => name);
    assert.deepEqual(without, []);
    assert.notDeepEqual(layer.forward(x).tolist(), layer.forward(x).tolist(), "training: other masks");
    layer.eval();
    assert.deepEqual(layer.forward(x).tolist(), layer.forward(x).tolist(), "evaluation: none");
  });
});

test("parameters are named as in PyTorch, in camelCase, and containers number their children", () => {
  const layer = new nn.TransformerEncoderLayer(4, 2);
  assert.equal(
    namesOf(layer),
    "selfAttn.inProjWeight selfAttn.inProjBias selfAttn.outProj.weight selfAttn.outProj.bias linear1.weight " +
      "linear1.bias linear2.weight linear2.bias norm1.weight norm1.bias norm2.weight norm2.bias",
  );
  const list = new nn.ModuleList([new nn.Linear(1, 1)]).append(new nn.Linear(1, 1, { bias: false }));
  const model = new nn.Sequential(new nn.Sequential(new nn.Conv1d(1, 1, 1)), new nn.Flatten());
  assert.equal(namesOf(list), "0.weight 0.bias 1.weight");
  assert.equal(namesOf(model), "0.0.weight 0.0.bias");
  assert.deepEqual([[...list].length, list.at(-1).bias], [2, null]);
});

test("train() and eval() apply to modules in containers", () => {
  const dropout = new nn.Dropout(1);
  const model = new nn.Sequential(new nn.ModuleList([]) as unknown as nn.Layer, dropout);
  model.eval();
  assert.equal(dropout.isTraining, false);
  model.train();
  assert.equal(dropout.isTraining, true);
});

test("layers print their sizes", () => {
  const model = new nn.Sequential(
    new nn.Conv2d(1, 2, 3, { padding: 1 }),
    new nn.MaxPool2d([2, 1]),
    new nn.Embedding(3, 2, { paddingIdx: 1 }),
    new nn.LayerNorm([2, 3]),
    new nn.GELU(),
  );
  assert.equal(
    String(model),
    "Sequential(\n  (0): Conv2d(1, 2, kernelSize=[3, 3], padding=1, bias=true)\n  (1): MaxPool2d(kernelSize=[2, 1])\n" +
      "  (2): Embedding(3, 2, paddingIdx=1)\n  (3): LayerNorm([2, 3], eps=0.00001, elementwiseAffine=true)\n" +
      "  (4): GELU(approximate=none)\n)",
  );
});

test("initial values are PyTorch's: within 1/√fanIn, normal embeddings, norms of 1 and 0", () => {
  manualSeed(3);
  const maxMagnitude = (parameter: nn.Parameter | null): number =>
    Math.max(...Float32Array.from(parameter!.initialValues(), Math.abs));
  for (const [layer, bound] of [
    [new nn.Linear(16, 200), 1 / 4],
    [new nn.Conv1d(4, 200, 4), 1 / 4],
    [new nn.Conv2d(8, 200, [2, 2], { groups: 2 }), 1 / 4],
  ] as const) {
    for (const parameter of layer.parameters()) {
      const magnitude = maxMagnitude(parameter);
      assert.ok(
        magnitude <= bound && magnitude > 0.95 * bound,
        `${layer}: ${magnitude} with a bound of ${bound}`,
      );
    }
  }
  const attention = new nn.MultiheadAttention(8, 2);
  assert.deepEqual([maxMagnitude(attention.inProjBias), maxMagnitude(attention.outProj.bias)], [0, 0]);
  assert.ok(maxMagnitude(attention.inProjWeight) <= Math.sqrt(6 / 32));
  const rows = Float32Array.from(new nn.Embedding(100, 4, { paddingIdx: 2 }).weight.initialValues());
  assert.deepEqual([...rows.subarray(8, 12)], [0, 0, 0, 0]);
  assert.ok(Math.max(...rows) > 2, "normal values reach far");
  assert.deepEqual([...Float32Array.from(new nn.LayerNorm(2).weight!.initialValues())], [1, 1]);
  assert.deepEqual([...Float32Array.from(new nn.LayerNorm(2).bias!.initialValues())], [0, 0]);
});

test("a constructor rejects invalid sizes", () => {
  for (const size of [0, -1, 1.5, Number.NaN]) {
    rejects("BAD_ARGUMENT", () => new nn.Linear(size, 2), /Linear: inFeatures is/);
    rejects("BAD_ARGUMENT", () => new nn.Conv1d(1, 1, size), /Conv1d: axis 0 of kernelSize is/);
    rejects("BAD_ARGUMENT", () => new nn.LayerNorm(size), /LayerNorm: axis 0 of normalizedShape is/);
  }
  rejects("BAD_ARGUMENT", () => new nn.Dropout(1.5), /Dropout: p is 1.5/);
  rejects(
    "BAD_ARGUMENT",
    () => new nn.MultiheadAttention(6, 4),
    /embedDim is 6, which is not divisible by 4 heads/,
  );
  rejects(
    "BAD_ARGUMENT",
    () => new nn.Conv2d(3, 4, 1, { groups: 2 }),
    /inChannels is 3, which is not divisible by 2 groups/,
  );
  rejects("BAD_ARGUMENT", () => new nn.Embedding(3, 2, { paddingIdx: 3 }), /paddingIdx is 3/);
  rejects("BAD_INDEX", () => new nn.ModuleList([]).at(0), /0 modules has no index 0/);
});

test("the inverse of a pool rejects values and indices of other shapes, and sizes that the pool cannot have had", () => {
  const { maxPool2d, maxUnpool2d } = nn.functional;
  const { values, indices } = maxPool2d(ones([1, 4, 4]), 2, { returnIndices: true });
  rejects("BAD_SHAPE", () => maxUnpool2d(values, indices.flatten(), 2), /one shape/);
  rejects("BAD_SHAPE", () => maxUnpool2d(values, indices, 2, { outputSize: [6, 4] }), /less than the stride/);
  assert.deepEqual(maxUnpool2d(values, indices, 2, { outputSize: [5, 4] }).shape, [1, 5, 4]);
});

test("convolution layers pad to the same size, with every padding mode", () => {
  const x = random([2, 3, 6, 5]);
  for (const paddingMode of ["reflect", "replicate", "circular"] as const) {
    const layer = new nn.Conv2d(3, 4, [4, 3], { padding: "same", dilation: [1, 2], paddingMode }).to(
      cpu,
      "f64",
    );
    const padded = nn.functional.pad(x, [2, 2, 1, 2], { mode: paddingMode });
    close(
      layer.forward(x),
      nn.functional.conv2d(padded, layer.weight, layer.bias, { dilation: [1, 2] }),
      paddingMode,
    );
    assert.match(String(layer), new RegExp(`padding=same.*paddingMode=${paddingMode}`));
  }
  const zeros = new nn.Conv2d(3, 4, 3, { padding: 1, paddingMode: "zeros" }).to(cpu, "f64");
  close(zeros.forward(x), nn.functional.conv2d(x, zeros.weight, zeros.bias, { padding: 1 }), "zeros");
  const same = { padding: "same" } as const;
  rejects(
    "BAD_ARGUMENT",
    () => new nn.Conv1d(1, 1, 3, { ...same, stride: 2 }),
    /needs a stride of 1, and the stride is \[2\]/,
  );
  rejects("BAD_ARGUMENT", () => new nn.Conv1d(1, 1, 3, { padding: "full" as never }), /padding is "full"/);
  rejects(
    "BAD_ARGUMENT",
    () => new nn.Conv1d(1, 1, 3, { paddingMode: "edge" as never }),
    /paddingMode is "edge"/,
  );
});
