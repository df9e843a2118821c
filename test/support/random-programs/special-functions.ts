/** Instructions of special functions, rounding, selections and bitwise ops, on arguments where they are smooth. */

import type { Builder } from "./builder.js";
import { offWholes, positive } from "./elementwise.js";
import type { Maker } from "./instructions.js";

/** Between −0.9 and 0.9. */
const insideOne = (builder: Builder, x: string): string =>
  builder.op("mul", [builder.op("tanh", [x], {}, { size: 1 }), 0.9], {}, { size: 1 });

const smoothAnywhere = [
  ...["asinh", "atan", "sinc", "erfc", "deg2rad", "rad2deg", "mish", "logSigmoid", "nanToNum", "elu", "i0"],
];
const attributesOf: Readonly<Record<string, Readonly<Record<string, number>>>> = {
  nanToNum: { nan: 0, posinf: 9, neginf: -9 },
  elu: { alpha: 1.5, scale: 1, inputScale: 1 },
};
const ofUnitInterval = ["asin", "acos", "atanh", "tan", "erfinv", "sinh", "cosh", "exp2"];
const bitwiseOfTwo = ["bitwiseAnd", "bitwiseOr", "bitwiseXor", "bitwiseLeftShift", "bitwiseRightShift"];

export const specialFunctionMakers: Readonly<Record<string, Maker>> = {
  special(builder, choices) {
    const x = builder.anyFloat(choices);
    const op = choices.of(smoothAnywhere);
    const { size } = builder.find(x);
    builder.op(op, [x], attributesOf[op] ?? {}, { size: op === "rad2deg" ? 58 * size : size + 1 });
  },
  ofUnitInterval(builder, choices) {
    const x = insideOne(builder, builder.anyFloat(choices));
    builder.op(choices.of(ofUnitInterval), [x], {}, { size: 2 });
  },
  ofPositive(builder, choices) {
    const x = positive(builder, builder.anyFloat(choices));
    const how = choices.below(3);
    if (how === 0) builder.op(choices.of(["log2", "log10", "lgamma", "digamma"]), [x], {}, { size: 3 });
    else if (how === 1) builder.op("acosh", [builder.op("add", [x, 1])], {}, { size: 2 });
    else builder.op("logit", [builder.op("sigmoid", [insideOne(builder, x)])], {}, { size: 1 });
  },
  rounding(builder, choices) {
    const x = offWholes(builder, builder.anyFloat(choices));
    const how = choices.below(2);
    if (how === 0) builder.op(choices.of(["trunc", "frac"]), [x]);
    else builder.op(choices.of(["remainder", "fmod", "floorDivide"]), [x, 1]);
  },
  roundToEven(builder, choices) {
    const half = builder.op("add", [offWholes(builder, builder.anyFloat(choices)), 0.5]);
    builder.op("round", [half]);
  },
  ofTwo(builder, choices) {
    const x = builder.anyFloat(choices);
    const y = builder.broadcastable(choices, builder.shapeOf(x));
    const how = choices.below(4);
    const size = builder.find(x).size + builder.find(y).size;
    if (how === 0) builder.op(choices.of(["logaddexp", "logaddexp2", "fmax", "fmin"]), [x, y], {}, { size });
    else if (how === 1)
      builder.op(choices.of(["atan2", "hypot"]), [x, positive(builder, y)], {}, { size: size + 1 });
    else if (how === 2) builder.op("xlogy", [x, positive(builder, y)], {}, { size: 2 * size });
    // The sign of the operand that decides must not be a matter of rounding.
    else if (choices.isOneIn(2)) builder.op("copysign", [x, offWholes(builder, y)], {}, { size });
    else builder.op("heaviside", [offWholes(builder, y), x], {}, { size });
  },
  ofThree(builder, choices) {
    const x = builder.anyFloat(choices);
    const [y, z] = [0, 1].map(() => builder.broadcastable(choices, builder.shapeOf(x)));
    if (y === undefined || z === undefined) return;
    const value = choices.of([1, -0.5]);
    const size = builder.find(x).size + builder.find(y).size * builder.find(z).size;
    const how = choices.below(3);
    if (how === 0) builder.op("addcmul", [x, y, z], { value }, { size });
    else if (how === 1) builder.op("addcdiv", [x, y, positive(builder, z)], { value }, { size });
    else builder.op("lerp", [x, y, builder.op("mul", [insideOne(builder, z), 0.4])], {}, { size });
  },
  signs(builder, choices) {
    builder.op("signbit", [offWholes(builder, builder.anyFloat(choices))]);
  },
  bits(builder, choices) {
    const shape = builder.randomShape(choices);
    const a = builder.wholes(choices, shape, "i32", -99, 99);
    const b = builder.wholes(choices, shape, choices.of(["i32", "u8"] as const), 0, 9);
    const c = choices.isOneIn(4)
      ? builder.op("bitwiseNot", [a])
      : builder.op(choices.of(bitwiseOfTwo), [a, b]);
    if (choices.isOneIn(20)) builder.op(choices.of(["gcd", "lcm"]), [a, b]);
    if (choices.isOneIn(2))
      builder.op("cast", [builder.op("bitwiseAnd", [c, 15])], { dtype: "float" }, { size: 15 });
  },
};
