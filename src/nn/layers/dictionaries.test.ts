/** Containers by key, masks of padding keys, and borders and pools that do not fit. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { openDevice } from "../../../test/support/devices.js";
import { rejects } from "../../../test/support/rejects.js";
import { ones, randn, type Tensor, tensor } from "../../tensor/index.js";
import * as nn from "../index.js";

const cpu = openDevice();

test("a compiled step sees another module of a dictionary", () => {
  const blocks = new nn.ModuleDict<nn.Module & { forward(x: Tensor): Tensor }>({ act: new nn.ReLU() }).to(
    cpu,
  );
  const step = cpu.compile((x: Tensor) => blocks.get("act").forward(x));
  const x = tensor([-4, 4]);
  assert.deepEqual(step(x).tolist(), [0, 4]);
  blocks.set("act", new nn.LeakyReLU(0.25));
  assert.deepEqual(step(x).tolist(), [-1, 4]);
});

test("keys and names of parameters are checked", () => {
  const dict = new nn.ModuleDict({ a: new nn.ReLU() });
  rejects("BAD_INDEX", () => dict.get("b"), /has no key "b"\. It has: a/);
  rejects("BAD_ARGUMENT", () => dict.set("a.b", new nn.ReLU()), /a text without dots/);
  const one = (): nn.Parameter => new nn.Parameter([1], nn.init.ones());
  const parameters = new nn.ParameterDict({ a: one() });
  rejects("BAD_ARGUMENT", () => parameters.set("a", one()), /the name is already used/);
  rejects("BAD_INDEX", () => new nn.ParameterList([one()]).at(1), /has no index 1/);
});

test("a padding key changes nothing, in both forms of attention", () => {
  const attention = new nn.MultiheadAttention(4, 2).to(cpu).eval();
  const x = randn([2, 3, 4]);
  const keyPaddingMask = tensor([
    [false, false, true],
    [false, false, true],
  ]);
  const masked = attention.forward(x, x, x, { keyPaddingMask });
  const short = attention.forward(x, x.narrow(1, 0, 2), x.narrow(1, 0, 2));
  assert.ok(masked.allclose(short, { atol: 1e-6 }));
  const causal = { isCausal: true, keyPaddingMask };
  const { output, weights } = attention.forwardWithWeights(x, x, x, { ...causal, averageWeights: false });
  assert.ok(output.allclose(attention.forward(x, x, x, causal), { atol: 1e-6 }));
  assert.deepEqual([weights.shape, weights.select(3, 2).sum().item()], [[2, 2, 3, 3], 0]);
});

test("rotated queries and keys have products that depend on their distance only", () => {
  const rotary = new nn.RotaryEmbedding(8, { maxLength: 16 }).to(cpu);
  const [q, k] = [randn([1, 8]), randn([1, 8])];
  const product = (at: number): number =>
    rotary
      .forward(q, { start: at })
      .mul(rotary.forward(k, { start: at + 3 }))
      .sum()
      .item();
  assert.ok(Math.abs(product(0) - product(9)) < 1e-4);
  rejects("BAD_SHAPE", () => rotary.forward(ones([4, 8]), { start: 13 }), /it has 16 positions/);
});

test("borders, pools and factors that do not fit are rejected with their numbers", () => {
  const f = nn.functional;
  const image = ones([1, 2, 3, 3]);
  rejects("BAD_SHAPE", () => f.pad(image, [3, 0], { mode: "reflect" }), /allows up to 2 each/);
  rejects("BAD_SHAPE", () => f.pixelShuffle(image, 2), /2 channels are no multiple of 4/);
  rejects("BAD_SHAPE", () => f.adaptiveAvgPool2d(image, [0, 1]), /Pass sizes of 1 or more/);
  rejects(
    "BAD_SHAPE",
    () => f.interpolate(image, { size: 2, mode: "linear" }),
    /needs a batch, channels and 1 more axes/,
  );
  rejects("BAD_ARGUMENT", () => f.interpolate(image, {}), /either a size or a scaleFactor/);
  rejects("BAD_SHAPE", () => f.fold(ones([8, 5]), 4, 2, { stride: 2 }), /the input must be \[N, C · 4, 4\]/);
  rejects("BAD_SHAPE", () => f.glu(ones([3])), /has no two halves/);
  rejects(
    "BAD_SHAPE",
    () => f.convTranspose2d(image, ones([3, 1, 2, 2])),
    /the weight \[C, out \/ groups, kH, kW\]/,
  );
  rejects("BAD_SHAPE", () => f.ctcLoss(image, image, image, image), /Pass \[T, N, C\]/);
  rejects("BAD_ARGUMENT", () => new nn.ZeroPad2d([1, 2, 3]), /pass one whole number, or 4 of them/);
});

test("dropout of channels keeps whole channels, in a compiled step too", () => {
  const layer = new nn.Dropout2d(0.5);
  const step = cpu.compile((x: Tensor) => layer.forward(x));
  const y = step(ones([4, 16, 3, 2]));
  assert.deepEqual(y.amax([2, 3]).tolist(), y.amin([2, 3]).tolist());
  const kept = y.select(3, 0).select(2, 0).ne(0).to("f32").sum().item();
  assert.ok(kept > 8 && kept < 56, String(kept));
  assert.equal(layer.eval().forward(y), y);
});

test("parameters become a vector and come back, in their dtypes", () => {
  const [from, to] = [new nn.Linear(3, 2).to(cpu), new nn.Linear(3, 2).to(cpu, "bf16")];
  const vector = nn.utils.parametersToVector(from.parameters());
  nn.utils.vectorToParameters(vector, to.parameters());
  assert.deepEqual(to.weight.tolist(), from.weight.to("bf16").tolist());
  assert.deepEqual(to.bias?.tolist(), from.bias?.to("bf16").tolist());
  rejects(
    "BAD_SHAPE",
    () => nn.utils.vectorToParameters(ones([7]), to.parameters()),
    /have 8 elements\. Pass \[8\]/,
  );
});
