/** Which of the features jax-js has. */

import * as jax from "@jax-js/jax";
import { exportNamed, isNear, printAnswers } from "../../../dist/bench/cpu/programs/probes.js";

const { devices, grad, jit, lax, nn, numpy: np, vmap } = jax;
const cube = (x) => x.ref.mul(x.ref).mul(x);
const scalar = async (x) => (await x.data())[0];
const none = (pattern) => () => exportNamed(jax, pattern);
const inDtype = (dtype) => async () => {
  const sum = np.array([1.5], { dtype }).add(np.array([1.5], { dtype }));
  return sum.dtype === dtype ? isNear(Number((await sum.data())[0]), 3) : `the sum is ${sum.dtype}`;
};

await printAnswers({
  "embedding with gradient": async () => {
    const index = np.array([1], { dtype: np.int32 });
    const rows = (table) => np.matmul(nn.oneHot(index, 2), table).sum();
    return isNear((await grad(rows)(np.ones([2, 3])).data())[3], 1);
  },
  "convolution with gradient": async () => {
    const image = np.ones([1, 1, 3, 3]);
    const loss = (kernel) => lax.convGeneralDilated(image, kernel, [1, 1], "VALID").sum();
    return isNear((await grad(loss)(np.ones([1, 1, 2, 2])).data())[0], 4);
  },
  "LSTM layer": none(/lstm/i),
  "batch norm with running statistics": none(/batch_?norm/i),
  dropout: none(/dropout/i),
  "gradient of a gradient": async () => isNear(await scalar(grad((x) => grad(cube)(x))(np.array(2))), 12),
  "gradient of one's own": none(/custom|defvjp|defjvp/i),
  "compiled step": async () => isNear(await scalar(jit(cube)(np.array(2))), 8),
  AdamW: none(/^adamw$/i),
  "clipping of the gradients' norm": none(/clip.*norm/i),
  "checkpoint of weights, optimizer and random state": none(/checkpoint/i),
  // @jax-js/loaders declares `safetensors` with `parse`, which reads.
  "safetensors files": () => "@jax-js/loaders 0.1.1 reads them; nothing writes them",
  f16: inDtype("float16"),
  bf16: inDtype("bfloat16"),
  f64: inDtype("float64"),
  vmap: async () => isNear((await vmap(cube)(np.array([1, 2])).data())[1], 8),
  "backend for browsers' GPUs": () => devices.includes("webgpu") || "none",
});
