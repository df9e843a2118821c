/** The training steps of the ten programs in TensorFlow.js. Arguments: the backend (cpu or wasm) and the program. */

import { createRequire } from "node:module";
import tf from "@tensorflow/tfjs";
import "@tensorflow/tfjs-backend-wasm";
import { timeSteps } from "../../../dist/bench/cpu/programs/time-steps.js";

const manifest = createRequire(import.meta.url)("./package.json");
const classCounts = { gpt: 11, "residual-convnet": 4, lstm: 2, "fine-tune": 4 };

const gelu = (x) => x.mul(0.5).mul(x.div(Math.SQRT2).erf().add(1));
const geluTanh = (x) =>
  x.mul(0.5).mul(
    x
      .add(x.square().mul(x).mul(0.044715))
      .mul(Math.sqrt(2 / Math.PI))
      .tanh()
      .add(1),
  );
const silu = (x) => x.mul(x.sigmoid());
const crossEntropy = (logits, oneHot) =>
  tf
    .logSoftmax(logits)
    .mul(oneHot)
    .sum()
    .mul(-1 / logits.shape[0]);
/** The elements' losses. */
const binaryCrossEntropy = (logits, y) =>
  logits.relu().sub(logits.mul(y)).add(logits.abs().neg().exp().add(1).log());
const meanSquare = (x, y) => x.sub(y).square().mean();

/** The layers of a program, which read their weights by name. */
function layersOf(w, buffers) {
  const linear = (name, x) => tf.matMul(x, w.get(`${name}.weight`), false, true).add(w.get(`${name}.bias`));
  /** Rows of an embedding; the WebAssembly backend has no kernel for the gradient of `gather`. */
  function rows(name, index) {
    const table = w.get(`${name}.weight`);
    if (tf.getBackend() !== "wasm") return tf.gather(table, index);
    const oneHot = tf.oneHot(index.flatten(), table.shape[0]).toFloat();
    return tf.matMul(oneHot, table).reshape([...index.shape, table.shape[1]]);
  }
  function layerNorm(name, x) {
    const { mean, variance } = tf.moments(x, -1, true);
    const normal = x.sub(mean).mul(variance.add(1e-5).rsqrt());
    return normal.mul(w.get(`${name}.weight`)).add(w.get(`${name}.bias`));
  }
  /** Of images [B, H, W, C]: TensorFlow.js has no gradient of convolutions with the channels first. */
  function batchNorm(name, x) {
    const { mean, variance } = tf.moments(x, [0, 1, 2]);
    const count = x.size / x.shape.at(-1);
    const update = (buffer, value) => buffer.assign(buffer.mul(0.9).add(value.mul(0.1)));
    update(buffers.get(`${name}.runningMean`), mean);
    update(buffers.get(`${name}.runningVar`), variance.mul(count / (count - 1)));
    const normal = x.sub(mean).mul(variance.add(1e-5).rsqrt());
    return normal.mul(w.get(`${name}.weight`)).add(w.get(`${name}.bias`));
  }
  /** With padding on both sides as in PyTorch; "same" pads strided convolutions on one side. */
  function convolution(name, x, stride, padding) {
    const kernel = w.get(`${name}.weight`).transpose([2, 3, 1, 0]);
    return tf.conv2d(x, kernel, stride, padding, "NHWC", 1, padding === 0 ? undefined : "floor");
  }
  return { linear, rows, layerNorm, batchNorm, convolution };
}

/** The loss of each program: of its weights, buffers and batch. */
const losses = {
  gpt(w, _, { ids, targets }) {
    const { linear, rows, layerNorm } = layersOf(w);
    const [B, T, D, H] = [48, 8, 32, 4];
    let h = rows("tokens", ids).add(w.get("positions.weight")); // [B, T, D]
    const mask = tf.linalg
      .bandPart(tf.ones([T, T]), -1, 0)
      .sub(1)
      .mul(1e9);
    const product = (x, name, out) =>
      tf.matMul(x.reshape([B * T, D]), w.get(name), false, true).reshape([B, T, out]);
    for (const block of ["blocks.0", "blocks.1"]) {
      const projected = product(layerNorm(`${block}.norm1`, h), `${block}.attention.inProjWeight`, 3 * D);
      const [q, k, v] = tf
        .split(projected, 3, -1)
        .map((part) => part.reshape([B, T, H, D / H]).transpose([0, 2, 1, 3]));
      const scores = tf
        .matMul(q, k, false, true)
        .mul((D / H) ** -0.5)
        .add(mask);
      const attended = tf.matMul(tf.softmax(scores), v).transpose([0, 2, 1, 3]).reshape([B, T, D]);
      h = h.add(product(attended, `${block}.attention.outProj.weight`, D));
      const n = layerNorm(`${block}.norm2`, h).reshape([B * T, D]);
      const mlp = linear(`${block}.mlp.2`, geluTanh(linear(`${block}.mlp.0`, n)));
      h = h.add(mlp.reshape([B, T, D]));
    }
    const logits = product(layerNorm("norm", h), "tokens.weight", 11);
    return crossEntropy(logits.slice([0, 4, 0], [B, 4, 11]).reshape([B * 4, 11]), targets);
  },
  "residual-convnet"(w, buffers, { x, targets }) {
    const { linear, batchNorm, convolution } = layersOf(w, buffers);
    let h = x.reshape([32, 16, 16, 1]);
    h = batchNorm("1", convolution("0", h, 1, 1)).relu();
    for (const [name, stride] of [
      ["3", 1],
      ["4", 2],
    ]) {
      const inner = batchNorm(`${name}.norm1`, convolution(`${name}.conv1`, h, stride, 1)).relu();
      const shortcut =
        stride === 1 ? h : batchNorm(`${name}.shortcut.1`, convolution(`${name}.shortcut.0`, h, 2, 0));
      h = batchNorm(`${name}.norm2`, convolution(`${name}.conv2`, inner, 1, 1))
        .add(shortcut)
        .relu();
    }
    return crossEntropy(linear("7", h.mean([1, 2])), targets);
  },
  lstm(w, _, { x, masks, targets }) {
    const { linear } = layersOf(w);
    const inputs = tf.unstack(x, 1);
    const states = ["", "Reverse"].map((direction) => {
      const weight = (name) => w.get(`lstm.${name}L0${direction}`);
      const bias = weight("biasIh").add(weight("biasHh"));
      let [h, c] = [tf.zeros([64, 24]), tf.zeros([64, 24])];
      for (let step = 0; step < 12; step++) {
        const place = direction === "" ? step : 11 - step;
        const gates = tf
          .matMul(inputs[place], weight("weightIh"), false, true)
          .add(tf.matMul(h, weight("weightHh"), false, true))
          .add(bias);
        const [i, f, g, o] = tf.split(gates, 4, 1);
        const cell = f.sigmoid().mul(c).add(i.sigmoid().mul(g.tanh()));
        const keep = (next, last) => last.add(next.sub(last).mul(masks[place]));
        h = keep(o.sigmoid().mul(cell.tanh()), h);
        c = keep(cell, c);
      }
      return h;
    });
    return crossEntropy(linear("head", tf.concat(states, 1)), targets);
  },
  vae(w, _, { x, noise }) {
    const { linear } = layersOf(w);
    const h = silu(linear("encoder.0", x));
    const [mean, logVariance] = [linear("mean", h), linear("logVariance", h)];
    const z = mean.add(logVariance.mul(0.5).exp().mul(noise));
    const logits = linear("decoder.4", silu(linear("decoder.2", silu(linear("decoder.0", z)))));
    const divergence = logVariance.add(1).sub(mean.square()).sub(logVariance.exp()).sum().mul(-0.5);
    return binaryCrossEntropy(logits, x).sum().add(divergence).div(256);
  },
  diffusion(w, _, { points, noise, levels, signal }) {
    const { linear, rows } = layersOf(w);
    const noisy = points.mul(signal.sqrt()).add(noise.mul(signal.neg().add(1).sqrt()));
    let h = silu(linear("input", noisy).add(rows("level", levels)));
    for (const name of ["body.1", "body.3"]) h = silu(linear(name, h));
    return meanSquare(linear("body.5", h), noise);
  },
  tabular(w, _, { numbers, categories, targets }) {
    const { linear, rows } = layersOf(w);
    const [towns, plans] = tf.unstack(categories, 1);
    const features = tf.concat([numbers, rows("town", towns), rows("plan", plans)], 1);
    const h = tf.dropout(linear("body.0", features).relu(), 0.1);
    return binaryCrossEntropy(linear("body.3", h).squeeze([1]), targets).mean();
  },
  "fine-tune"(w, _, { x, targets }) {
    const { linear } = layersOf(w);
    return crossEntropy(linear("head", linear("body.2", linear("body.0", x).relu()).relu()), targets);
  },
  service(w, _, { x, targets }) {
    const { linear } = layersOf(w);
    return meanSquare(linear("2", linear("0", x).tanh()).squeeze([1]), targets);
  },
  "compiled-variants"(w, _, { x, targets }) {
    const { linear } = layersOf(w);
    let h = linear("input", x);
    for (const block of ["blocks.0", "blocks.1"])
      h = h.add(linear(`${block}.2`, gelu(linear(`${block}.0`, h))));
    return meanSquare(linear("output", h).squeeze([1]), targets);
  },
  "custom-parts"(w, buffers, { x, targets }) {
    const { linear } = layersOf(w);
    const sign = tf.customGrad((input, save) => {
      save([input]);
      return {
        value: input.sign(),
        gradFunc: (gradient, [saved]) => gradient.mul(saved.abs().less(1).toFloat()),
      };
    });
    const head = (features) => linear("output", linear("hidden", features).tanh()).squeeze([1]);
    const h = linear("input", x);
    const square = buffers.get("scale.square");
    square.assign(square.mul(0.9).add(h.square().mean(0).mul(0.1)));
    const scale = tf.tensor(square.dataSync()).sqrt().add(1e-3);
    const loss = binaryCrossEntropy(head(sign(h.div(scale))), targets).mean();
    const features = tf.tensor(h.sign().dataSync(), h.shape);
    const slope = tf.grad((input) => head(input).sum())(features);
    return loss.add(slope.square().sum(1).mean().mul(1e-3));
  },
};

/** Changes of gradients between the backward pass and the optimizer. */
const hooks = { "custom-parts": { "output.weight": (gradient) => gradient.clipByValue(-0.1, 0.1) } };

/** The optimizers of TensorFlow.js where it has them; it has no decoupled weight decay. */
function makeOptimizer({ kind, lr, weightDecay = 0, momentum = 0 }, variables) {
  if (kind === "adam") {
    const adam = tf.train.adam(lr, 0.9, 0.999, 1e-8);
    return (gradients) => adam.applyGradients(gradients);
  }
  if (kind === "adamw") {
    const adam = tf.train.adam(lr, 0.9, 0.999, 1e-8);
    return (gradients) => {
      for (const variable of variables.values()) variable.assign(variable.mul(1 - lr * weightDecay));
      adam.applyGradients(gradients);
    };
  }
  if (kind === "sgd") {
    const sgd = tf.train.momentum(lr, momentum);
    return (gradients) => {
      const decayed = Object.entries(gradients).map(([name, gradient]) => [
        name,
        gradient.add(variables.get(name).mul(weightDecay)),
      ]);
      sgd.applyGradients(Object.fromEntries(decayed));
    };
  }
  const state = new Map(
    [...variables].map(([name, { shape }]) => [name, tf.variable(tf.zeros(shape), false)]),
  );
  return (gradients) => {
    for (const [name, variable] of variables) {
      const m = state.get(name);
      m.assign(m.mul(momentum).add(gradients[name].mul(1 - momentum)));
      variable.assign(variable.sub(m.div(m.abs().add(1e-3)).mul(lr)));
    }
  };
}

function clip(gradients, maxNorm) {
  const norm = tf.addN(Object.values(gradients).map((gradient) => gradient.square().sum())).sqrt();
  const factor = tf.minimum(tf.scalar(maxNorm).div(norm.add(1e-6)), 1);
  return Object.fromEntries(
    Object.entries(gradients).map(([name, gradient]) => [name, gradient.mul(factor)]),
  );
}

/** The tensors of a batch; labels as one-hot rows, and lengths as masks of each place. */
function upload(name, batch) {
  const tensors = Object.fromEntries(
    Object.entries(batch).map(([key, { data, shape }]) => [
      key,
      tf.tensor(data, shape, data instanceof Int32Array ? "int32" : "float32"),
    ]),
  );
  const classes = classCounts[name];
  if (classes) tensors.targets = tf.oneHot(tensors.targets, classes).toFloat();
  if (tensors.lengths)
    tensors.masks = Array.from({ length: 12 }, (_, place) =>
      tensors.lengths.greater(place).toFloat().expandDims(1),
    );
  return tensors;
}

const backend = process.argv[2];
await tf.setBackend(backend);
await tf.ready();

await timeSteps(
  manifest.devDependencies["@tensorflow/tfjs"],
  (name, { weights, buffers, optimizer, clipNorm, batches }) => {
    const variables = (list, trainable) =>
      new Map(
        list.map(({ name, shape, data }) => [name, tf.variable(tf.tensor(data, shape), trainable, name)]),
      );
    const [w, b] = [variables(weights, true), variables(buffers, false)];
    const inputs = batches.map((batch) => upload(name, batch));
    const apply = makeOptimizer(optimizer, w);
    return (index) =>
      tf.tidy(() => {
        const { value, grads } = tf.variableGrads(() => losses[name](w, b, inputs[index]), [...w.values()]);
        const hooked = Object.entries(grads).map(([key, gradient]) => [
          key,
          hooks[name]?.[key]?.(gradient) ?? gradient,
        ]);
        const gradients = Object.fromEntries(hooked);
        apply(clipNorm ? clip(gradients, clipNorm) : gradients);
        return value.dataSync()[0];
      });
  },
);
