/** Softmax and norms. */

import type { Size } from "../sizes.js";
import type { CallContext, Translation } from "./call-context.js";

function alongAxis(type: "Softmax" | "LogSoftmax"): Translation {
  return (at) => {
    if (at.value(0).shape.length > 0)
      return at.result(at.node(type, [at.operand(0)], { axis: { int: at.axis() } }));
    return at.reject("its operand has no axes");
  };
}

/** A vector of channels as [C, 1, …], which broadcasts to [N, C, …]. */
function channels(at: CallContext, name: string): string {
  const added = at.value(0).shape.length - 2;
  return added <= 0
    ? name
    : at.node("Unsqueeze", [name, at.ints(Array.from({ length: added }, (_, axis) => axis + 1))]);
}

/** Multiplies by the weight and adds the bias, which are the operands from this one on. */
function affine(at: CallContext, name: string, first: number, fit: (name: string) => string): string {
  const weighted = at.hasOperand(first) ? at.node("Mul", [name, fit(at.operand(first))]) : name;
  return at.hasOperand(first + 1) ? at.node("Add", [weighted, fit(at.operand(first + 1))]) : weighted;
}

/** The sizes of the normalised axes. */
function normalizedShape(at: CallContext): readonly Size[] {
  if (at.has("normalizedShape")) return at.sizes("normalizedShape");
  const { shape } = at.value(0);
  return shape.slice(-(at.hasOperand(1) ? Math.max(1, at.value(1).shape.length) : 1));
}

function lastAxes(at: CallContext): readonly number[] {
  const count = normalizedShape(at).length;
  return Array.from({ length: count }, (_, index) => index - count);
}

const keepsAxes = { keepdims: { int: 1 } };

export const normalisationTranslations: Readonly<Record<string, Translation>> = {
  softmax: alongAxis("Softmax"),
  logSoftmax: alongAxis("LogSoftmax"),
  layerNorm: (at) => {
    const shape = at.fixed(normalizedShape(at), "its normalizedShape");
    const ones = shape.reduce((product, size) => product * size, 1);
    const weight = at.hasOperand(1)
      ? at.operand(1)
      : at.graph.constant(at.compute, shape, new Array<number>(ones).fill(1));
    const inputs = [at.operand(0), weight, ...(at.hasOperand(2) ? [at.operand(2)] : [])];
    return at.result(
      at.node("LayerNormalization", inputs, {
        axis: { int: -shape.length },
        epsilon: { float: at.number("eps", 1e-5) },
      }),
    );
  },
  rmsNorm: (at) => {
    const x = at.operand(0);
    const eps = at.number("eps", at.compute === "f64" ? Number.EPSILON : 2 ** -23);
    const square = at.node("Mul", [x, x]);
    const meanSquare = at.node("ReduceMean", [square, at.ints(lastAxes(at))], keepsAxes);
    const rms = at.node("Sqrt", [at.node("Add", [meanSquare, at.scalar(eps)])]);
    return at.result(affine(at, at.node("Div", [x, rms]), 1, (name) => name));
  },
  normalize: (at) => {
    const x = at.operand(0);
    const length = at.node("ReduceL2", [x, at.ints([at.axis()])], keepsAxes);
    return at.result(at.node("Div", [x, at.node("Max", [length, at.scalar(at.number("eps", 1e-12))])]));
  },
  /** With the statistics of the batch. */
  batchNorm: (at) => {
    const x = at.operand(0);
    const axes = at.ints(at.value(0).shape.flatMap((_, axis) => (axis === 1 ? [] : [axis])));
    const centred = at.node("Sub", [x, at.node("ReduceMean", [x, axes], keepsAxes)]);
    const spread = at.node("ReduceMean", [at.node("Mul", [centred, centred]), axes], keepsAxes);
    const std = at.node("Sqrt", [at.node("Add", [spread, at.scalar(at.number("eps", 1e-5))])]);
    return at.result(affine(at, at.node("Div", [centred, std]), 1, (name) => channels(at, name)));
  },
  /** With given statistics: x · scale + shift. ONNX runtimes join such a pair with a convolution before it. */
  normalizeChannels: (at) => {
    const [mean, inverseStd] = [at.operand(1), at.operand(2)];
    const scale = at.hasOperand(3) ? at.node("Mul", [inverseStd, at.operand(3)]) : inverseStd;
    const offset = at.node("Mul", [mean, scale]);
    const shift = at.hasOperand(4) ? at.node("Sub", [at.operand(4), offset]) : at.node("Neg", [offset]);
    const scaled = at.node("Mul", [at.operand(0), channels(at, scale)]);
    return at.result(at.node("Add", [scaled, channels(at, shift)]));
  },
  groupNorm: (at) => {
    const groups = at.number("groups");
    const byGroup = at.node("Reshape", [at.operand(0), at.ints([0, groups, -1])]);
    const each = (value: number): string =>
      at.graph.constant(at.compute, [groups], new Array<number>(groups).fill(value));
    const normalized = at.node("InstanceNormalization", [byGroup, each(1), each(0)], {
      epsilon: { float: at.number("eps", 1e-5) },
    });
    const inPlace = at.reshape(normalized, at.value(0).shape);
    return at.result(affine(at, inPlace, 1, (name) => channels(at, name)));
  },
};
