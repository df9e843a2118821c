/** TensorFlow.js's CrossAsset training step on its WebAssembly backend (SIMD; its threads do not start in Node). */

import { createRequire } from "node:module";
import tf from "@tensorflow/tfjs";
import "@tensorflow/tfjs-backend-wasm";
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
await tf.setBackend("wasm");
await tf.ready();

const state = new Map(
  weights().map(({ name, shape, data }) => [
    name,
    {
      weight: tf.variable(tf.tensor(data, shape), true, name),
      first: tf.variable(tf.zeros(shape), false),
      second: tf.variable(tf.zeros(shape), false),
    },
  ]),
);
const weight = (name) => state.get(name).weight;

function layerNorm(x, gain, shift) {
  const { mean, variance } = tf.moments(x, -1, true);
  return x.sub(mean).mul(variance.add(1e-5).rsqrt()).mul(gain).add(shift);
}

function gelu(x) {
  const inner = x.add(x.square().mul(x).mul(0.044715)).mul(Math.sqrt(2 / Math.PI));
  return x.mul(0.5).mul(inner.tanh().add(1));
}

function lossOf(x, oneHot) {
  let h = tf
    .matMul(x.transpose([1, 0, 2]), weight("win"))
    .add(weight("bin"))
    .transpose([1, 0, 2])
    .reshape([B * S, D]);
  for (let layer = 0; layer < L; layer++) {
    const w = (name) => weight(`${layer}.${name}`);
    const heads = (name) =>
      tf
        .matMul(h, w(name))
        .reshape([B, S, H, D / H])
        .transpose([0, 2, 1, 3]);
    const scores = tf.matMul(heads("wq"), heads("wk"), false, true).mul((D / H) ** -0.5);
    const perHead = tf.matMul(tf.softmax(scores), heads("wv"));
    const attended = perHead.transpose([0, 2, 1, 3]).reshape([B * S, D]);
    const n = layerNorm(h.add(tf.matMul(attended, w("wo"))), w("g1"), w("s1"));
    const hidden = gelu(tf.matMul(n, w("w1")).add(w("b1")));
    h = layerNorm(n.add(tf.matMul(hidden, w("w2")).add(w("b2"))), w("g2"), w("s2"));
  }
  const logits = tf.matMul(h, weight("wout")).add(weight("bout"));
  return tf
    .logSoftmax(logits)
    .mul(oneHot)
    .sum()
    .mul(-1 / (B * S));
}

const batches = Array.from({ length: batchCount }, (_, index) => {
  const { x, labels } = batch(index);
  return { x: tf.tensor(x, [B, S, F]), oneHot: tf.oneHot(tf.tensor1d(labels, "int32"), C).toFloat() };
});
const learningRate = 1e-3;
let stepCount = 0;

function train(index) {
  stepCount++;
  return tf.tidy(() => {
    const { x, oneHot } = batches[index];
    const { value, grads } = tf.variableGrads(() => lossOf(x, oneHot));
    const norm = tf.addN(Object.values(grads).map((g) => g.square().sum())).sqrt();
    const clip = tf.minimum(tf.scalar(1).div(norm.add(1e-6)), 1);
    for (const [name, { weight, first, second }] of state) {
      const g = grads[name].mul(clip);
      first.assign(first.mul(0.9).add(g.mul(0.1)));
      second.assign(second.mul(0.999).add(g.square().mul(0.001)));
      const denominator = second
        .div(1 - 0.999 ** stepCount)
        .sqrt()
        .add(1e-8);
      const move = first.mul(learningRate / (1 - 0.9 ** stepCount)).div(denominator);
      weight.assign(weight.mul(1 - learningRate * 0.01).sub(move));
    }
    return value.dataSync()[0];
  });
}

function prepareGemm() {
  const { m, n, k } = gemmSize;
  const [a, b] = [tf.tensor(values(1, [m, k]), [m, k]), tf.tensor(values(2, [k, n]), [k, n])];
  return () => tf.matMul(a, b).dispose();
}

await report({
  peer: "TensorFlow.js",
  version: manifest.devDependencies["@tensorflow/tfjs"],
  step: train,
  prepareGemm,
  steps: 3,
  warmUp: 1,
});
