/**
 * jax-js's CrossAsset training step: the whole step in one jit, WebAssembly backend, as shipped. In Node it
 * finds no Worker and runs on one thread. A function consumes the arrays that it gets; `.ref` keeps them.
 */

import { createRequire } from "node:module";
import { blockUntilReady, jit, nn, numpy as np, tree, valueAndGrad } from "@jax-js/jax";
import { report } from "../../../dist/bench/cpu/report.js";
import {
  B,
  batch,
  batchCount,
  C,
  D,
  F,
  gemmSize,
  H,
  L,
  S,
  values,
  weights,
} from "../../../dist/bench/cpu/workload.js";

const manifest = createRequire(import.meta.url)("./package.json");
const array = (data, shape) => np.array(data).reshape(shape);

function layerNorm(x, gain, shift) {
  return nn.standardize(x, -1, { epsilon: 1e-5 }).mul(gain).add(shift);
}

/** Mean cross-entropy; consumes all weights and both inputs. */
function lossOf(p, x, oneHot) {
  let h = np
    .matmul(x.transpose([1, 0, 2]), p.win)
    .add(p.bin)
    .transpose([1, 0, 2])
    .reshape([B * S, D]);
  for (let layer = 0; layer < L; layer++) {
    const w = (name) => p[`${layer}.${name}`];
    const heads = (name, order) =>
      np
        .matmul(h.ref, w(name))
        .reshape([B, S, H, D / H])
        .transpose(order);
    // einsum and dotProductAttention need a later Node than the oldest that Holdfast supports.
    const scores = np.matmul(heads("wq", [0, 2, 1, 3]), heads("wk", [0, 2, 3, 1])).mul((D / H) ** -0.5);
    const perHead = np.matmul(nn.softmax(scores), heads("wv", [0, 2, 1, 3]));
    const attended = perHead.transpose([0, 2, 1, 3]).reshape([B * S, D]);
    const n = layerNorm(h.add(np.matmul(attended, w("wo"))), w("g1"), w("s1"));
    const hidden = nn.gelu(np.matmul(n.ref, w("w1")).add(w("b1")), { approximate: true });
    h = layerNorm(n.add(np.matmul(hidden, w("w2")).add(w("b2"))), w("g2"), w("s2"));
  }
  const logits = np.matmul(h, p.wout).add(p.bout);
  return nn
    .logSoftmax(logits)
    .mul(oneHot)
    .sum()
    .mul(-1 / (B * S));
}

const learningRate = 1e-3;

/** `correction` is [1 − β₁ᵗ, 1 − β₂ᵗ]. */
const step = jit((p, m, v, correction1, correction2, x, oneHot) => {
  const [loss, gradients] = valueAndGrad(lossOf)(tree.ref(p), x, oneHot);
  const squares = Object.values(gradients).map((g) => np.square(g.ref).sum());
  const norm = np.sqrt(squares.reduce((sum, square) => sum.add(square)));
  const clip = np.minimum(np.array(1).div(norm.add(1e-6)), 1);
  const [nextP, nextM, nextV] = [{}, {}, {}];
  for (const name of Object.keys(p)) {
    const g = gradients[name].mul(clip.ref);
    const first = m[name].mul(0.9).add(g.ref.mul(0.1));
    const second = v[name].mul(0.999).add(np.square(g).mul(0.001));
    const denominator = np.sqrt(second.ref.div(correction2.ref)).add(1e-8);
    const move = first.ref.div(correction1.ref).div(denominator).mul(learningRate);
    nextP[name] = p[name].mul(1 - learningRate * 0.01).sub(move);
    nextM[name] = first;
    nextV[name] = second;
  }
  for (const spent of [clip, correction1, correction2]) spent.dispose();
  return [nextP, nextM, nextV, loss];
});

const initialWeights = weights();
const zeros = () => Object.fromEntries(initialWeights.map(({ name, shape }) => [name, np.zeros(shape)]));
let state = [
  Object.fromEntries(initialWeights.map(({ name, shape, data }) => [name, array(data, shape)])),
  zeros(),
  zeros(),
];
const batches = Array.from({ length: batchCount }, (_, index) => {
  const { x, labels } = batch(index);
  return { x: array(x, [B, S, F]), oneHot: nn.oneHot(np.array(labels), C) };
});
let stepCount = 0;

async function train(index) {
  const { x, oneHot } = batches[index];
  stepCount++;
  const corrections = [0.9, 0.999].map((beta) => np.array(1 - beta ** stepCount));
  const [p, m, v, loss] = step(...state, ...corrections, x.ref, oneHot.ref);
  state = [p, m, v];
  await blockUntilReady(state);
  return (await loss.data())[0];
}

function prepareGemm() {
  const { m, n, k } = gemmSize;
  const [a, b] = [array(values(1, [m, k]), [m, k]), array(values(2, [k, n]), [k, n])];
  const multiply = jit((left, right) => np.matmul(left, right));
  return async () => {
    const c = multiply(a.ref, b.ref);
    await blockUntilReady(c);
    c.dispose();
  };
}

await report({
  peer: "jax-js",
  version: manifest.devDependencies["@jax-js/jax"],
  step: train,
  prepareGemm,
  steps: 8,
  warmUp: 2,
});
