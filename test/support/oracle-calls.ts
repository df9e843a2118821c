/** How each case of the oracle, in PyTorch's terms, is called here. */

import assert from "node:assert/strict";
import { type Attributes, opTable } from "../../src/ops/index.js";
import type { Tensor } from "../../src/tensor/index.js";

export interface OracleCase {
  readonly name: string;
  /** PyTorch's name of the op, and its arguments besides the tensors. */
  readonly op: string;
  readonly attrs: OracleAttributes;
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];
  readonly upstream: readonly string[];
  readonly grads: readonly (string | null)[];
}

/** The arguments of all ops together: each case has those of its op. */
interface OracleAttributes {
  readonly dim?: number;
  readonly dim0?: number;
  readonly dim1?: number;
  readonly keepdim?: boolean;
  readonly correction?: number;
  readonly approximate: "none" | "tanh";
  readonly min?: number;
  readonly max?: number;
  readonly exponent: number;
  readonly negative_slope: number;
  readonly shape: readonly number[];
  readonly dims: readonly number[];
  readonly start: readonly number[];
  readonly end: readonly number[];
  readonly step: readonly number[];
  readonly sizes: readonly number[];
  readonly repeats: number;
  readonly pad: readonly number[];
  readonly value: number;
  readonly eps: number;
  readonly ignore_index?: number;
  readonly label_smoothing?: number;
  readonly delta: number;
  readonly is_causal?: boolean;
}

type Operands = readonly [Tensor, ...Tensor[]];
export type OracleCall = (operands: Operands, attrs: OracleAttributes) => Tensor | readonly Tensor[];

/** A method of tensors, by its name: a missing one fails only the cases that need it. */
function method(name: string, ...args: readonly unknown[]): OracleCall {
  return ([x, ...others]) => invoke(x, name, [...others, ...args]);
}

function invoke(x: Tensor, name: string, args: readonly unknown[]): Tensor | readonly Tensor[] {
  const member: unknown = (x as unknown as Record<string, unknown>)[name];
  if (typeof member !== "function") return assert.fail(`tensors have no method ${name}`);
  return member.apply(x, args) as Tensor | readonly Tensor[];
}

/** An entry of the op table, also by its name. */
function entry(name: string, operands: readonly Tensor[], attributes: Attributes = {}): readonly Tensor[] {
  const op = opTable[name] ?? assert.fail(`the op table has no ${name}`);
  const [first] = operands;
  return first!.device.applyAll(op, operands, attributes).slice(0, 1);
}

/** Over axes: `dim` and `keepdim` in the form of Holdfast's methods. */
const reduction =
  (name: string, options: Attributes = {}): OracleCall =>
  ([x], { dim, keepdim, correction }) =>
    invoke(x, name, [dim, { keepdim, ...(correction !== undefined && { correction }), ...options }]);

const along =
  (name: string): OracleCall =>
  ([x, ...others], { dim }) =>
    invoke(x, name, [dim, ...others]);

export const oracleCalls: Readonly<Record<string, OracleCall>> = {
  ...Object.fromEntries(
    ["neg", "exp", "log", "sqrt", "rsqrt", "abs", "tanh", "sigmoid", "relu", "sin", "cos", "square"]
      .concat(["reciprocal", "silu", "softplus", "add", "sub", "mul", "div", "maximum", "minimum", "matmul"])
      .map((name) => [name, method(name)]),
  ),
  ...Object.fromEntries(
    ["sum", "mean", "amax", "amin", "var", "logsumexp", "argmax"].map((name) => [name, reduction(name)]),
  ),
  gelu: ([x], { approximate }) => x.gelu(approximate),
  clamp: ([x], { min, max }) => x.clamp(min, max),
  pow: ([x], { exponent }) => x.pow(exponent),
  leaky_relu: ([x], { negative_slope }) => x.leakyRelu(negative_slope),
  where: ([condition, x, other]) => x!.where(condition, other!),
  cumsum: along("cumsum"),
  bmm: method("matmul"),
  linear: (operands) => entry("linear", operands),
  reshape: ([x], { shape }) => x.reshape(shape),
  permute: ([x], { dims }) => x.permute(dims),
  transpose: ([x], { dim0, dim1 }) => invoke(x, "transpose", [dim0, dim1]),
  expand: ([x], { shape }) => x.expand(shape),
  slice: ([x], { start, end, step }) =>
    invoke(
      x,
      "slice",
      start.map((from, axis) => [from, end[axis], step[axis]]),
    ),
  cat: (operands, { dim }) => entry("cat", operands, { axis: dim }),
  stack: (operands, { dim }) => entry("stack", operands, { axis: dim }),
  split: ([x], { sizes, dim }) => invoke(x, "split", [sizes, dim]),
  repeat_interleave: ([x], { repeats, dim }) => invoke(x, "repeatInterleave", [repeats, dim]),
  flip: ([x], { dims }) => invoke(x, "flip", [dims]),
  pad: ([x], { pad, value }) => invoke(x, "pad", [pad, value]),
  index_select: along("indexSelect"),
  embedding: (operands) => entry("embedding", operands),
  gather: along("gather"),
  scatter_add: along("scatterAdd"),
  softmax: along("softmax"),
  log_softmax: along("logSoftmax"),
  layer_norm: (operands, { eps }) => entry("layerNorm", operands, { eps }),
  rms_norm: (operands, { eps }) => entry("rmsNorm", operands, { eps }),
  normalize: (operands, { dim, eps }) => entry("normalize", operands, { axis: dim, eps }),
  cross_entropy: (operands, { ignore_index, label_smoothing }) =>
    entry("crossEntropy", operands, {
      ...(ignore_index !== undefined && { ignoreIndex: ignore_index }),
      ...(label_smoothing !== undefined && { labelSmoothing: label_smoothing }),
    }),
  mse_loss: (operands) => entry("mseLoss", operands),
  l1_loss: (operands) => entry("l1Loss", operands),
  huber_loss: (operands, { delta }) => entry("huberLoss", operands, { delta }),
  binary_cross_entropy_with_logits: (operands) => entry("bceWithLogits", operands),
  scaled_dot_product_attention: (operands, { is_causal }) =>
    entry("scaledDotProductAttention", operands, { isCausal: is_causal ?? false }),
};
