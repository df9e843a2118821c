/** Instructions of ops over rows: reductions, normalisations, matrix products, attention and losses. */

import { type Shape, sizeOf } from "../../../src/ops/index.js";
import { type Builder, maxElements } from "./builder.js";
import type { Choices } from "./choices.js";
import type { Maker } from "./instructions.js";
import { randomState } from "./program.js";

function randomAxes(choices: Choices, { length }: Shape) {
  const keepsAxes = choices.isOneIn(2);
  const how = choices.below(length > 0 ? 3 : 1);
  if (how === 0) return { keepsAxes };
  return { keepsAxes, axes: how === 1 ? choices.below(length) - length : [choices.below(length)] };
}

function randomAxis(choices: Choices, { length }: Shape): number {
  return choices.below(2 * length) - length;
}

/** A value viewed as rows: [n, w]. */
function asRows(builder: Builder, choices: Choices): string {
  const x = builder.filled(choices);
  const shape = builder.shapeOf(x);
  const width = shape.at(-1)!;
  return shape.length === 2 ? x : builder.op("reshape", [x], { shape: [sizeOf(shape) / width, width] });
}

/** Elements that differ from each other by more than rounding errors. */
function spread(builder: Builder, choices: Choices, x: string): string {
  return builder.op("add", [x, builder.floatInput(choices, builder.shapeOf(x))], {}, { size: 2 });
}

const parameter = (builder: Builder, shape: Shape): string =>
  builder.input("parameter", shape, "float", -1, 1);

function sides(builder: Builder, choices: Choices) {
  const x = asRows(builder, choices);
  const [rows = 1, width = 1] = builder.shapeOf(x);
  const { size } = builder.find(x);
  return {
    x,
    rows,
    width,
    out: choices.isOneIn(6) ? 1 + choices.below(300) : choices.of([2, 3, 1, 4]),
    size: size * Math.sqrt(width),
  };
}

const reductions = ["mean", "sum", "none"] as const;

export const rowMakers: Readonly<Record<string, Maker>> = {
  reduction(builder, choices) {
    const x = builder.filled(choices, 0);
    const shape = builder.shapeOf(x);
    const op = choices.of(["sum", "mean", "amax", "amin", "logsumexp"]);
    const size = op === "sum" ? builder.find(x).size * Math.sqrt(sizeOf(shape)) : builder.find(x).size + 1;
    builder.op(op, [x], randomAxes(choices, shape), { size });
  },
  matrixProduct(builder, choices) {
    const x = builder.op("tanh", [builder.filled(choices, 0)], {}, { size: 1 });
    builder.op("prod", [x], randomAxes(choices, builder.shapeOf(x)), { size: 1 });
  },
  norm(builder, choices) {
    const x = spread(builder, choices, builder.filled(choices, 0));
    const shape = builder.shapeOf(x);
    const p = choices.of([2, 1, 3]);
    const size = builder.find(x).size * sizeOf(shape) ** (1 / p);
    builder.op("norm", [x], { ...randomAxes(choices, shape), p }, { size });
  },
  spread(builder, choices) {
    const x = spread(builder, choices, builder.filled(choices));
    const axis = builder.shapeOf(x).findIndex((size) => size > 1);
    if (axis < 0) return;
    const correction = choices.of([1, 0]);
    builder.op(choices.of(["variance", "std"]), [x], { axes: axis, correction }, { size: 2 });
  },
  cumsum(builder, choices) {
    const x = builder.filled(choices);
    const axis = randomAxis(choices, builder.shapeOf(x));
    const size = builder.find(x).size * 2;
    builder.op("cumsum", [x], { axis, isReversed: choices.isOneIn(2) }, { size });
  },
  argReductions(builder, choices) {
    const x = builder.filled(choices);
    const how = choices.below(2);
    if (how === 0) {
      const axis = randomAxis(choices, builder.shapeOf(x));
      builder.op(choices.of(["argmax", "argmin"]), [x], { axis, keepsAxes: choices.isOneIn(2) });
    } else builder.op(choices.of(["all", "any"]), [x], randomAxes(choices, builder.shapeOf(x)));
  },
  sort(builder, choices) {
    const x = spread(builder, choices, builder.filled(choices));
    const axis = randomAxis(choices, builder.shapeOf(x));
    builder.all("sort", [x], { axis, isDescending: choices.isOneIn(2) });
  },
  softmax(builder, choices) {
    const x = builder.filled(choices);
    const axis = randomAxis(choices, builder.shapeOf(x));
    builder.op(choices.of(["softmax", "logSoftmax"]), [x], { axis }, { size: 2 });
  },
  normalisation(builder, choices) {
    const x = builder.filled(choices);
    const shape = builder.shapeOf(x);
    const last = shape.slice(-1 - choices.below(shape.length));
    const how = choices.below(3);
    // With a small eps a row of equal elements would be magnified rounding errors.
    const attributes = { normalizedShape: last, eps: 0.1 };
    const [weight, bias] = [() => builder.same(choices, last), () => builder.same(choices, last)];
    if (how === 0) {
      const affine = [[], [weight()], [weight(), bias()]][choices.below(3)]!;
      builder.op("layerNorm", [x, ...affine], attributes, { size: 2 });
    } else if (how === 1)
      builder.op("rmsNorm", [x, ...(choices.isOneIn(2) ? [weight()] : [])], attributes, { size: 2 });
    else builder.op("normalize", [x], { axis: randomAxis(choices, shape), eps: 0.5 }, { size: 1 });
  },
  matmul(builder, choices) {
    const { x, width, out, size } = sides(builder, choices);
    const y = builder.float(choices, (shape) => shape.length >= 1 && shape.at(-2) === width, [width, out]);
    builder.op("matmul", [x, y], {}, { size: size * builder.find(y).size });
  },
  gram(builder, choices) {
    const { x, size } = sides(builder, choices);
    const transposed = builder.op("permute", [x], { axes: [1, 0] });
    builder.op("matmul", [x, transposed], {}, { size: size * builder.find(x).size });
  },
  linear(builder, choices) {
    const { x, width, out, size } = sides(builder, choices);
    const layout = choices.of(["outIn", "inOut"] as const);
    const weight = builder.same(choices, layout === "outIn" ? [out, width] : [width, out]);
    const bias = choices.isOneIn(2) ? [builder.same(choices, [out])] : [];
    builder.op("linear", [x, weight, ...bias], { layout }, { size: size * builder.find(weight).size });
  },
  loraLinear(builder, choices) {
    const { x, width, out, size } = sides(builder, choices);
    const [rank, layout] = [1 + choices.below(3), choices.of(["outIn", "inOut"] as const)];
    const matrix = (shape: Shape) => parameter(builder, layout === "outIn" ? shape : shape.toReversed());
    const weights = [matrix([out, width]), matrix([rank, width]), matrix([out, rank])];
    const bias = choices.isOneIn(2) ? [parameter(builder, [out])] : [];
    const input = choices.isOneIn(2) ? [builder.op("tanh", [x], {})] : [];
    const attributes =
      input.length === 0 ? { layout, scale: 0.5 } : { layout, scale: 0.5, inputOfA: 4 + bias.length };
    builder.op("loraLinear", [x, ...weights, ...bias, ...input], attributes, { size: 2 * size });
  },
  fusedProjections(builder, choices) {
    const { x, width, out, size } = sides(builder, choices);
    const weights = Array.from({ length: choices.of([3, 2]) }, () => parameter(builder, [width, out]));
    builder.op("fusedProjections", [x, ...weights], {}, { size });
  },
  batchedLinear(builder, choices) {
    const { x, rows, width, out, size } = sides(builder, choices);
    const groups = rows % 2 === 0 ? 2 : 1;
    const seen = builder.op("reshape", [x], { shape: [rows / groups, groups, width] });
    const weights = Array.from({ length: groups }, () => parameter(builder, [width, out]));
    const biases = Array.from({ length: groups }, () => parameter(builder, [out]));
    builder.op("batchedLinear", [seen, ...weights, ...biases], {}, { size });
  },
  attention(builder, choices) {
    const { x, rows, width } = sides(builder, choices);
    const heads = choices.isOneIn(2) && width % 2 === 0 ? 2 : 1;
    const shape = [rows, heads, width / heads];
    const query = builder.op("reshape", [x], { shape });
    const [key, value] = [builder.same(choices, shape), builder.same(choices, shape)];
    builder.op("attention", [query, key, value], { isCausal: choices.isOneIn(2) }, { size: 1.5 });
  },
  packedAttention(builder, choices) {
    const { x, width } = sides(builder, choices);
    const weights = [0, 1, 2].map(() => parameter(builder, [width, 2]));
    const packed = builder.op("fusedProjections", [x, ...weights], {}, { size: 2 }); // [rows, 3, 2]
    const [rows = 1] = builder.shapeOf(packed);
    if (builder.shapeOf(packed).length !== 3) return;
    const seen = builder.op("reshape", [packed], { shape: [rows, 3, choices.isOneIn(2) ? 2 : 1, -1] });
    builder.op("packedAttention", [seen], { isCausal: choices.isOneIn(2) }, { size: 1.5 });
  },
  maskedAttention(builder, choices) {
    const { x } = sides(builder, choices);
    const shape = builder.shapeOf(x);
    const [rows = 1] = shape;
    if (rows ** 2 > maxElements) return;
    const operands = [x, builder.same(choices, shape), builder.same(choices, shape)];
    const mask = () =>
      choices.isOneIn(2)
        ? builder.op("causalMask", [], { rows, columns: rows, dtype: "float" }, { size: 1 })
        : builder.same(choices, [rows, rows]);
    if (choices.isOneIn(2)) {
      const [attributes, added] = [{ isCausal: false, p: 0.4 }, choices.isOneIn(2) ? [mask()] : []];
      builder.op("attentionWithDropout", [...operands, randomState, ...added], attributes, { size: 2 });
    } else builder.op("scaledDotProductAttention", [...operands, mask()], { isCausal: false }, { size: 2 });
  },
  dropout(builder, choices) {
    const x = builder.anyFloat(choices);
    const p = choices.of([0.5, 0.1, 0.25]);
    builder.op("dropout", [x, randomState], { p }, { size: builder.find(x).size * 1.5 });
  },
  classLoss(builder, choices) {
    const { x, rows, width } = sides(builder, choices);
    const labels = builder.wholes(choices, [rows], "i32", 0, width - 1);
    const how = choices.below(3);
    const attributes = { reduction: choices.of(reductions) };
    if (how === 0)
      builder.op("crossEntropy", [x, labels], { ...attributes, labelSmoothing: choices.of([0, 0.2]) });
    else if (how === 1)
      builder.op("nllLoss", [builder.op("logSoftmax", [x], { axis: 1 }, { size: 2 }), labels], attributes);
    else {
      const other = builder.same(choices, [rows, width]);
      const probabilities = builder.op("softmax", [other], { axis: 1 }, { size: 1 });
      builder.op("crossEntropyOfProbabilities", [x, probabilities], attributes, { size: 2 });
    }
  },
  pairLoss(builder, choices) {
    const x = builder.filled(choices, 0);
    const y = builder.same(choices, builder.shapeOf(x));
    const attributes = { reduction: choices.of(reductions) };
    const size = (builder.find(x).size + builder.find(y).size) ** 2;
    const how = choices.below(3);
    if (how === 0) {
      const op = choices.of(["mseLoss", "l1Loss", "huberLoss", "smoothL1Loss"]);
      builder.op(op, [x, y], attributes, { size });
    } else if (how === 1)
      builder.op(choices.of(["squaredError", "absoluteError", "huberError"]), [x, y], {}, { size });
    else {
      const target = builder.op("sigmoid", [y], {}, { size: 1 });
      if (choices.isOneIn(2)) builder.op("bceWithLogits", [x, target], attributes, { size: 2 });
      else builder.op("binaryCrossEntropy", [x, target, builder.op("exp", [target])], {}, { size: 3 });
    }
  },
};
