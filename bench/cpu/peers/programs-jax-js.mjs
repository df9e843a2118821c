/**
 * The training steps of the ten programs in jax-js: the whole step in one jit, WebAssembly backend. Argument: the program. A function
 * consumes the arrays that it gets; `.ref` keeps them.
 */

import { createRequire } from "node:module";
import { blockUntilReady, grad, jit, lax, nn, numpy as np, random, tree, valueAndGrad } from "@jax-js/jax";
import { timeSteps } from "../../../dist/bench/cpu/programs/time-steps.js";

const manifest = createRequire(import.meta.url)("./package.json");
const classCounts = { gpt: 11, "residual-convnet": 4, lstm: 2, "fine-tune": 4 };

const square = (x) => np.square(x);
const crossEntropy = (logits, oneHot) => {
  const [count] = logits.shape;
  return nn
    .logSoftmax(logits)
    .mul(oneHot)
    .sum()
    .mul(-1 / count);
};
/** The elements' losses. */
const binaryCrossEntropy = (logits, y) =>
  nn
    .relu(logits.ref)
    .sub(logits.ref.mul(y))
    .add(np.log1p(np.exp(np.absolute(logits).neg())));
const meanSquare = (x, y) => square(x.sub(y)).mean();

/** The layers of a program, which read their weights by name. A new running statistic goes to `next`. */
function layersOf(p, buffers, next) {
  const weight = (name) => p[name].ref;
  const linear = (name, x) => np.matmul(x, weight(`${name}.weight`).transpose()).add(weight(`${name}.bias`));
  function rows(name, index) {
    const table = weight(`${name}.weight`);
    const [count] = table.shape;
    return np.matmul(nn.oneHot(index, count), table);
  }
  const affine = (name, x) => x.mul(weight(`${name}.weight`)).add(weight(`${name}.bias`));
  const layerNorm = (name, x) => affine(name, nn.standardize(x, -1, { epsilon: 1e-5 }));
  /** Of images [B, C, H, W]. */
  function batchNorm(name, x) {
    const [, C] = x.shape;
    const count = x.size / C;
    const mean = np.mean(x.ref, [0, 2, 3], { keepdims: true });
    const centred = x.sub(mean.ref);
    const variance = np.mean(square(centred.ref), [0, 2, 3], { keepdims: true });
    const update = (key, value) => {
      next[key] = buffers[key].ref.mul(0.9).add(lax.stopGradient(value).reshape([C]).mul(0.1));
    };
    update(`${name}.runningMean`, mean);
    update(`${name}.runningVar`, variance.ref.mul(count / (count - 1)));
    const [gain, shift] = ["weight", "bias"].map((key) => weight(`${name}.${key}`).reshape([1, C, 1, 1]));
    return centred
      .div(np.sqrt(variance.add(1e-5)))
      .mul(gain)
      .add(shift);
  }
  function convolution(name, x, stride, padding) {
    const pads = [
      [padding, padding],
      [padding, padding],
    ];
    return lax.convGeneralDilated(x, weight(`${name}.weight`), [stride, stride], pads);
  }
  return { weight, linear, rows, layerNorm, batchNorm, convolution };
}

/** The loss of each program: of its weights, buffers and batch. */
const losses = {
  gpt(p, _, { ids, targets }) {
    const { weight, linear, rows, layerNorm } = layersOf(p);
    const [B, T, D, H] = [48, 8, 32, 4];
    let h = rows("tokens", ids).add(weight("positions.weight"));
    const mask = np
      .tril(np.ones([T, T]))
      .sub(1)
      .mul(1e9);
    const product = (x, name, out) =>
      np.matmul(x.reshape([B * T, D]), weight(name).transpose()).reshape([B, T, out]);
    for (const block of ["blocks.0", "blocks.1"]) {
      const projected = product(layerNorm(`${block}.norm1`, h.ref), `${block}.attention.inProjWeight`, 3 * D);
      const [q, k, v] = np.split(projected, 3, -1).map((part) => part.reshape([B, T, H, D / H]));
      // dotProductAttention needs a later Node than the oldest that Holdfast supports.
      const scores = np
        .matmul(q.transpose([0, 2, 1, 3]), k.transpose([0, 2, 3, 1]))
        .mul((D / H) ** -0.5)
        .add(mask.ref);
      const attended = np
        .matmul(nn.softmax(scores), v.transpose([0, 2, 1, 3]))
        .transpose([0, 2, 1, 3])
        .reshape([B, T, D]);
      h = h.add(product(attended, `${block}.attention.outProj.weight`, D));
      const n = layerNorm(`${block}.norm2`, h.ref).reshape([B * T, D]);
      const hidden = nn.gelu(linear(`${block}.mlp.0`, n), { approximate: true });
      h = h.add(linear(`${block}.mlp.2`, hidden).reshape([B, T, D]));
    }
    const logits = product(layerNorm("norm", h), "tokens.weight", 11);
    const [, last] = np.split(logits, 2, 1);
    return crossEntropy(last.reshape([B * 4, 11]), targets);
  },
  "residual-convnet"(p, buffers, { x, targets }, next) {
    const { linear, batchNorm, convolution } = layersOf(p, buffers, next);
    let h = nn.relu(batchNorm("1", convolution("0", x, 1, 1)));
    for (const [name, stride] of [
      ["3", 1],
      ["4", 2],
    ]) {
      const inner = nn.relu(batchNorm(`${name}.norm1`, convolution(`${name}.conv1`, h.ref, stride, 1)));
      const shortcut =
        stride === 1 ? h : batchNorm(`${name}.shortcut.1`, convolution(`${name}.shortcut.0`, h, 2, 0));
      h = nn.relu(batchNorm(`${name}.norm2`, convolution(`${name}.conv2`, inner, 1, 1)).add(shortcut));
    }
    return crossEntropy(linear("7", np.mean(h, [2, 3])), targets);
  },
  lstm(p, _, { x, masks, targets }) {
    const { weight, linear } = layersOf(p);
    const inputs = np.unstack(x, 1);
    const keeps = np.unstack(masks, 0); // twelve times [B, 1]
    const states = ["", "Reverse"].map((direction) => {
      const of = (name) => weight(`lstm.${name}L0${direction}`);
      let [h, c] = [np.zeros([64, 24]), np.zeros([64, 24])];
      for (let step = 0; step < 12; step++) {
        const place = direction === "" ? step : 11 - step;
        const gates = np
          .matmul(inputs[place].ref, of("weightIh").transpose())
          .add(np.matmul(h.ref, of("weightHh").transpose()))
          .add(of("biasIh"))
          .add(of("biasHh"));
        const [i, f, g, o] = np.split(gates, 4, 1);
        const cell = nn
          .sigmoid(f)
          .mul(c.ref)
          .add(nn.sigmoid(i).mul(np.tanh(g)));
        const keep = (next, last) => last.ref.add(next.sub(last).mul(keeps[place].ref));
        h = keep(nn.sigmoid(o).mul(np.tanh(cell.ref)), h);
        c = keep(cell, c);
      }
      return h;
    });
    return crossEntropy(linear("head", np.concatenate(states, 1)), targets);
  },
  vae(p, _, { x, noise }) {
    const { linear } = layersOf(p);
    const h = nn.silu(linear("encoder.0", x.ref));
    const [mean, logVariance] = [linear("mean", h.ref), linear("logVariance", h)];
    const z = mean.ref.add(np.exp(logVariance.ref.mul(0.5)).mul(noise));
    const logits = linear("decoder.4", nn.silu(linear("decoder.2", nn.silu(linear("decoder.0", z)))));
    const divergence = logVariance.ref.add(1).sub(square(mean)).sub(np.exp(logVariance)).sum().mul(-0.5);
    return binaryCrossEntropy(logits, x)
      .sum()
      .add(divergence)
      .mul(1 / 256);
  },
  diffusion(p, _, { points, noise, levels, signal }) {
    const { linear, rows } = layersOf(p);
    const spread = np.sqrt(signal.ref.neg().add(1));
    const noisy = points.mul(np.sqrt(signal)).add(noise.ref.mul(spread));
    let h = nn.silu(linear("input", noisy).add(rows("level", levels)));
    for (const name of ["body.1", "body.3"]) h = nn.silu(linear(name, h));
    return meanSquare(linear("body.5", h), noise);
  },
  tabular(p, _, { numbers, categories, targets, key }) {
    const { linear, rows } = layersOf(p);
    const [towns, plans] = np.unstack(categories, 1);
    const features = np.concatenate([numbers, rows("town", towns), rows("plan", plans)], 1);
    const kept = random.bernoulli(key, 0.9, [50, 32]).astype(np.float32);
    const h = nn
      .relu(linear("body.0", features))
      .mul(kept)
      .mul(1 / 0.9);
    return binaryCrossEntropy(linear("body.3", h).reshape([50]), targets).mean();
  },
  "fine-tune"(p, _, { x, targets }) {
    const { linear } = layersOf(p);
    const h = nn.relu(linear("body.2", nn.relu(linear("body.0", x))));
    return crossEntropy(linear("head", h), targets);
  },
  service(p, _, { x, targets }) {
    const { linear } = layersOf(p);
    return meanSquare(linear("2", np.tanh(linear("0", x))).reshape([64]), targets);
  },
  "compiled-variants"(p, _, { x, targets }) {
    const { linear } = layersOf(p);
    let h = linear("input", x);
    for (const block of ["blocks.0", "blocks.1"]) {
      const hidden = nn.gelu(linear(`${block}.0`, h.ref), { approximate: false });
      h = h.add(linear(`${block}.2`, hidden));
    }
    return meanSquare(linear("output", h).reshape([64]), targets);
  },
  "custom-parts"(p, buffers, { x, targets }) {
    const { linear } = layersOf(p);
    // The straight-through estimator: jax-js has no gradients of one's own.
    const sign = (input) => {
      const passing = input.ref.mul(np.less(np.absolute(lax.stopGradient(input.ref)), 1).astype(np.float32));
      return passing.ref.add(lax.stopGradient(np.sign(input).sub(passing)));
    };
    const head = (features) => linear("output", np.tanh(linear("hidden", features))).reshape([128]);
    const h = linear("input", x);
    const scale = np.sqrt(buffers["scale.square"].ref).add(1e-3);
    const loss = binaryCrossEntropy(head(sign(h.ref.div(scale))), targets).mean();
    const features = lax.stopGradient(np.sign(h));
    const slope = grad((input) => head(input).sum())(features);
    return loss.add(square(slope).sum(1).mean().mul(1e-3));
  },
};

/**
 * Statistics that are updated before the loss. jax-js fails if a loss both uses a gradient and returns values that depend on weights.
 */
const statistics = {
  "custom-parts"(p, buffers, { x }) {
    const mean = np.mean(square(layersOf(p).linear("input", x.ref)), 0);
    return { "scale.square": buffers["scale.square"].ref.mul(0.9).add(mean.mul(0.1)) };
  },
};

/** Changes of gradients between the backward pass and the optimizer. */
const hooks = { "custom-parts": { "output.weight": (gradient) => np.clip(gradient, -0.1, 0.1) } };

/** How the optimizers change a parameter. `corrections` is [1 − β₁ᵗ, 1 − β₂ᵗ]. */
const updates = {
  adam({ lr, weightDecay = 0 }, parameter, gradient, { m, v }, corrections) {
    const first = m.mul(0.9).add(gradient.ref.mul(0.1));
    const second = v.mul(0.999).add(square(gradient).mul(0.001));
    const denominator = np.sqrt(second.ref.div(corrections[1].ref)).add(1e-8);
    const move = first.ref.div(corrections[0].ref).div(denominator).mul(lr);
    return [parameter.mul(1 - lr * weightDecay).sub(move), { m: first, v: second }];
  },
  sgd({ lr, momentum, weightDecay }, parameter, gradient, { m }) {
    const next = m.mul(momentum).add(gradient).add(parameter.ref.mul(weightDecay));
    return [parameter.sub(next.ref.mul(lr)), { m: next }];
  },
  "soft-sign"({ lr, momentum }, parameter, gradient, { m }) {
    const next = m.mul(momentum).add(gradient.mul(1 - momentum));
    const move = next.ref.div(np.absolute(next.ref).add(1e-3)).mul(lr);
    return [parameter.sub(move), { m: next }];
  },
};
updates.adamw = updates.adam;

function clip(gradients, maxNorm) {
  const squares = Object.values(gradients).map((gradient) => square(gradient.ref).sum());
  const norm = np.sqrt(squares.reduce((sum, part) => sum.add(part)));
  const factor = np.minimum(np.array(maxNorm).div(norm.add(1e-6)), 1);
  return mapEntries(gradients, (gradient) => gradient.mul(factor.ref));
}

const mapEntries = (record, change) =>
  Object.fromEntries(Object.entries(record).map(([key, value]) => [key, change(value, key)]));

/** The arrays of a batch; labels as one-hot rows, and lengths as masks of each place. */
function upload(name, batch) {
  const arrays = mapEntries(batch, ({ data, shape }) => np.array(data).reshape(shape));
  const classes = classCounts[name];
  if (classes) arrays.targets = nn.oneHot(arrays.targets, classes);
  if (arrays.lengths) {
    arrays.lengths.dispose();
    delete arrays.lengths;
    const used = Float32Array.from({ length: 12 * 64 }, (_, index) =>
      batch.lengths.data[index % 64] > Math.floor(index / 64) ? 1 : 0,
    );
    arrays.masks = np.array(used).reshape([12, 64, 1]);
  }
  return arrays;
}

await timeSteps(
  manifest.devDependencies["@jax-js/jax"],
  (name, { weights, buffers, optimizer, clipNorm, batches }) => {
    const arrays = (list) =>
      Object.fromEntries(list.map(({ name, shape, data }) => [name, np.array(data).reshape(shape)]));
    const step = jit((p, state, stats, corrections, batch) => {
      const early = statistics[name]?.(p, stats, batch);
      const lossOf = (parameters) => {
        const next = {};
        return [losses[name](parameters, early ?? stats, batch, next), next];
      };
      const [[loss, nextStats], raw] = valueAndGrad(lossOf, { hasAux: true })(tree.ref(p));
      const hooked = mapEntries(raw, (gradient, key) => hooks[name]?.[key]?.(gradient) ?? gradient);
      const gradients = clipNorm ? clip(hooked, clipNorm) : hooked;
      const updated = mapEntries(p, (parameter, key) =>
        updates[optimizer.kind](optimizer, parameter, gradients[key], state[key], corrections),
      );
      return [
        mapEntries(updated, ([parameter]) => parameter),
        mapEntries(updated, ([, next]) => next),
        early ?? nextStats,
        loss,
      ];
    });
    const means = optimizer.kind.startsWith("adam") ? ["m", "v"] : ["m"];
    let [p, stats] = [arrays(weights), arrays(buffers)];
    let state = mapEntries(p, ({ shape }) =>
      Object.fromEntries(means.map((mean) => [mean, np.zeros(shape)])),
    );
    const inputs = batches.map((batch) => upload(name, batch));
    let count = 0;
    return async (index) => {
      count++;
      const corrections = [0.9, 0.999].map((beta) => np.array(1 - beta ** count));
      const batch = { ...tree.ref(inputs[index]), ...(name === "tabular" && { key: random.key(count) }) };
      const [nextP, nextState, nextStats, loss] = step(p, state, stats, corrections, batch);
      [p, state, stats] = [nextP, nextState, nextStats];
      await blockUntilReady([p, state, stats]);
      return (await loss.data())[0];
    };
  },
);
