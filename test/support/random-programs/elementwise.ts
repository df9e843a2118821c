/** Instructions of elementwise ops. Arguments are mapped to where an op is smooth, so that f32 can follow f64. */

import { sizeOf } from "../../../src/ops/index.js";
import type { Builder } from "./builder.js";
import type { Choices } from "./choices.js";
import type { Maker } from "./instructions.js";
import { randomLiteral } from "./literals.js";

const anywhere = [
  ...["neg", "square", "sin", "cos", "erf", "abs", "contiguous"],
  ...["relu", "tanh", "sigmoid", "silu", "softplus", "gelu", "geluTanh"],
];

export function positive(builder: Builder, x: string): string {
  return builder.op("add", [builder.op("square", [x], {}, { size: 2 }), 0.5]);
}

/** Sums of softmaxes and the like are integers up to rounding; steps must not be there. */
export function offWholes(builder: Builder, x: string): string {
  return builder.op("add", [builder.op("mul", [x, 1.37]), 0.213]);
}

/** A boolean of this shape or of one that broadcasts to it. */
export function truthFor(builder: Builder, choices: Choices, shape: readonly number[]): string {
  const booleans = builder.values.filter(
    (value) =>
      value.dtype === "bool" && value.shape.length === shape.length && sizeOf(value.shape) === sizeOf(shape),
  );
  const fitting = booleans.filter((value) => value.shape.every((size, axis) => size === shape[axis]));
  return fitting.length > 0 && !choices.isOneIn(3)
    ? choices.of(fitting).name
    : builder.wholes(choices, shape, "bool", 0, 1);
}

const widest = [{ min: -Infinity, max: 2 ** 24 + 1 }, { min: -0 }];

const comparing = ["lt", "gt", "le", "ge", "eq", "ne"];
const joining = ["logicalAnd", "logicalOr", "logicalXor"];

export const elementwiseMakers: Readonly<Record<string, Maker>> = {
  unary(builder, choices) {
    const x = builder.anyFloat(choices);
    const op = choices.of(anywhere);
    builder.op(op, [x], {}, op === "square" ? { size: builder.find(x).size ** 2 } : {});
  },
  withAttributes(builder, choices) {
    const x = builder.anyFloat(choices);
    const how = choices.below(3);
    if (how === 0) builder.op("leakyRelu", [x], { negativeSlope: 0.2 });
    else if (how === 1)
      builder.op("clamp", [x], choices.of([{ min: -1 }, { max: 0.5 }, { min: -1, max: 0.5 }, ...widest]));
    else builder.op("fill", [x], { value: randomLiteral(choices, [1.5, 0, -0.25]) });
  },
  positive(builder, choices) {
    const x = positive(builder, builder.anyFloat(choices));
    builder.op(choices.of(["sqrt", "log", "log1p", "rsqrt", "reciprocal"]), [x], {}, { size: 1 });
  },
  exponential(builder, choices) {
    const x = builder.op("tanh", [builder.anyFloat(choices)], {}, { size: 1 });
    builder.op(choices.of(["exp", "expm1"]), [x], {}, { size: 2 });
  },
  steps(builder, choices) {
    builder.op(choices.of(["sign", "floor", "ceil"]), [offWholes(builder, builder.anyFloat(choices))]);
  },
  binary(builder, choices) {
    const x = builder.anyFloat(choices);
    const y = builder.broadcastable(choices, builder.shapeOf(x));
    const op = choices.of(["add", "mul", "sub", "maximum", "minimum"]);
    const [a, b] = [builder.find(x).size, builder.find(y).size];
    const size = op === "mul" ? a * b : a + b;
    builder.op(op, choices.isOneIn(2) ? [y, x] : [x, y], {}, { size });
  },
  withNumber(builder, choices) {
    const x = builder.anyFloat(choices);
    const op = choices.of(["mul", "add", "sub", "maximum", "minimum", "div"]);
    const number = randomLiteral(choices, [0.5, 1.25, -0.75]);
    const isFirst = op !== "div" && choices.isOneIn(2);
    builder.op(op, isFirst ? [number, x] : [x, number], {}, { size: builder.find(x).size + 1 });
  },
  division(builder, choices) {
    const x = builder.anyFloat(choices);
    builder.op("div", [x, positive(builder, builder.broadcastable(choices, builder.shapeOf(x)))]);
  },
  power(builder, choices) {
    const x = positive(builder, builder.op("tanh", [builder.anyFloat(choices)], {}, { size: 1 }));
    const how = choices.below(3);
    if (how === 0) builder.op("pow", [x, randomLiteral(choices, [2, 0.5, -1, 3])], {}, { size: 2 });
    else if (how === 1) builder.op("pow", [randomLiteral(choices, [1.25]), x], {}, { size: 2 });
    else {
      const y = builder.op("tanh", [builder.broadcastable(choices, builder.shapeOf(x))], {}, { size: 1 });
      builder.op("pow", [x, y], {}, { size: 2 });
    }
  },
  comparison(builder, choices) {
    const x = builder.anyFloat(choices);
    const y = choices.isOneIn(2)
      ? builder.broadcastable(choices, builder.shapeOf(x))
      : randomLiteral(choices, [0.137]);
    const truth = builder.op(choices.of(comparing), [offWholes(builder, x), y]);
    if (choices.isOneIn(2)) builder.op("cast", [truth], { dtype: "float" }, { size: 1 });
  },
  truths(builder, choices) {
    const x = builder.anyFloat(choices);
    const shape = builder.shapeOf(x);
    const a = truthFor(builder, choices, shape);
    const how = choices.below(3);
    if (how === 0) builder.op(choices.of(joining), [a, truthFor(builder, choices, shape)]);
    else if (how === 1) builder.op("logicalNot", [a]);
    else builder.op(choices.of(["isnan", "isfinite"]), [x]);
  },
  where(builder, choices) {
    const x = builder.anyFloat(choices);
    const shape = builder.shapeOf(x);
    const y = choices.isOneIn(4)
      ? randomLiteral(choices, [0.5, -1.25])
      : builder.broadcastable(choices, shape);
    builder.op("where", [truthFor(builder, choices, shape), ...(choices.isOneIn(2) ? [y, x] : [x, y])]);
  },
  integers(builder, choices) {
    const shape = builder.randomShape(choices);
    const a = builder.wholes(choices, shape, "i32", -9, 9);
    const b = builder.wholes(choices, shape, choices.of(["i32", "u8"] as const), 0, 9);
    const c = builder.op(choices.of(["add", "sub", "mul", "maximum", "minimum"]), [a, b]);
    if (choices.isOneIn(2)) builder.op("cast", [c], { dtype: "float" }, { size: 30 });
  },
  casts(builder, choices) {
    const wide = builder.op("cast", [builder.anyFloat(choices)], { dtype: "f64" });
    const how = choices.below(3);
    if (how === 0) builder.op("cast", [builder.op("sin", [wide])], { dtype: "float" });
    else if (how === 1) builder.op("cast", [offWholes(builder, wide)], { dtype: "i32" });
    else builder.op("cast", [wide], { dtype: "float" });
  },
};
