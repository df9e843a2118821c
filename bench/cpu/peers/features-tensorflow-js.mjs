/** Which of the features TensorFlow.js has on a backend: cpu or wasm. */

import { createRequire } from "node:module";
import tf from "@tensorflow/tfjs";
import "@tensorflow/tfjs-backend-wasm";
import { exportNamed, isNear, printAnswers } from "../../../dist/bench/cpu/programs/probes.js";

const manifest = createRequire(import.meta.url)("@tensorflow/tfjs/package.json");
await tf.setBackend(process.argv[2]);
await tf.ready();

const cube = (x) => x.mul(x).mul(x);
const none = (pattern) => () => exportNamed(tf, pattern);
const inDtype = (dtype) => () => {
  const { dtype: made } = tf.tensor([1.5], [1], dtype).add(tf.tensor([1.5], [1], dtype));
  return made === dtype || `the array is ${made}`;
};

await printAnswers({
  "embedding with gradient": () => {
    const rows = (table) => tf.gather(table, tf.tensor1d([1], "int32")).sum();
    return isNear(
      tf
        .grad(rows)(tf.ones([2, 3]))
        .dataSync()[3],
      1,
    );
  },
  "convolution with gradient": () => {
    const loss = (kernel) => tf.conv2d(tf.ones([1, 3, 3, 1]), kernel, 1, "valid").sum();
    return isNear(
      tf
        .grad(loss)(tf.ones([2, 2, 1, 1]))
        .dataSync()[0],
      4,
    );
  },
  "LSTM layer": () => {
    const { shape } = tf.layers.lstm({ units: 3 }).apply(tf.ones([2, 4, 5]));
    return String(shape) === "2,3" || `gives shape ${shape}`;
  },
  "batch norm with running statistics": async () => {
    const model = tf.sequential({
      layers: [tf.layers.batchNormalization({ inputShape: [1], momentum: 0.5 })],
    });
    model.compile({ optimizer: "sgd", loss: "meanSquaredError" });
    await model.trainOnBatch(tf.ones([4, 1]), tf.ones([4, 1]));
    const [, , mean] = model.getWeights();
    return isNear(mean.dataSync()[0], 0.5);
  },
  dropout: () =>
    tf
      .dropout(tf.ones([100]), 0.5)
      .min()
      .dataSync()[0] === 0 || "drops nothing",
  "gradient of a gradient": () => isNear(tf.grad(tf.grad(cube))(tf.scalar(2)).dataSync()[0], 12),
  "gradient of one's own": () => {
    const custom = tf.customGrad((x) => ({ value: x.sign(), gradFunc: (gradient) => gradient.mul(7) }));
    return isNear(
      tf
        .grad((x) => custom(x).sum())(tf.ones([1]))
        .dataSync()[0],
      7,
    );
  },
  "compiled step": none(/^(jit|function|compile)$/),
  AdamW: none(/^adamw$/i),
  "clipping of the gradients' norm": none(/clip.*norm/i),
  "checkpoint of weights, optimizer and random state": none(/checkpoint/i),
  "safetensors files": none(/safetensors/i),
  f16: inDtype("float16"),
  bf16: inDtype("bfloat16"),
  f64: inDtype("float64"),
  vmap: none(/^vmap$/),
  "backend for browsers' GPUs": () => "@tensorflow/tfjs-backend-webgl" in manifest.dependencies || "none",
});
