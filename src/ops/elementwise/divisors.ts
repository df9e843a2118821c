/** Greatest common divisors and least common multiples of integers, by Euclid's algorithm with a fixed number of divisions. */

import { HoldfastError } from "../../errors/index.js";
import { type Dtype, dtypes } from "../../ir/index.js";
import type { CompositeOp, Composition, OperandType, ValueType } from "../op.js";
import { maximum, mul } from "./arithmetic.js";
import { eq, where } from "./comparisons.js";
import { abs } from "./functions.js";
import { floorDivide, fmod } from "./rounding.js";

/** The largest number of divisions: neighbours in the Fibonacci sequence take the most. */
function divisionsOf(dtype: Dtype): number {
  const largest = 2 ** (8 * dtypes[dtype].bytes - (dtype === "u8" ? 0 : 1));
  let divisions = 2;
  for (let [a, b] = [1, 1]; b <= largest; [a, b] = [b, a + b]) divisions++;
  return divisions;
}

function compose(name: "gcd" | "lcm"): CompositeOp["compose"] {
  return <V>({ apply, typeOf }: Composition<V>, [x = 0, y = 0]: readonly (V | number)[]): readonly V[] => {
    const operands = [x, y].map((operand) => (typeof operand === "number" ? operand : typeOf(operand)));
    const [{ dtype }] = infer(name, operands);
    let [a, b] = [x, y];
    // A number modulo 0 is the number itself, so that further divisions swap the two.
    for (let left = divisionsOf(dtype); left > 0; left--) [a, b] = [b, apply(fmod, [a, b])];
    const divisor = apply(maximum, [apply(abs, [a]), apply(abs, [b])]);
    if (name === "gcd") return [divisor];
    const multiple = apply(mul, [apply(floorDivide, [x, divisor]), y]);
    return [apply(where, [apply(eq, [divisor, 0]), 0, apply(abs, [multiple])])];
  };
}

function infer(name: string, operands: readonly OperandType[]): readonly [ValueType] {
  const [type = { shape: [], dtype: "f32" }] = fmod.infer(operands, {});
  if (dtypes[type.dtype].kind === "integer") return [type];
  throw new HoldfastError(
    "BAD_DTYPE",
    `${name} of ${type.dtype}: divisors are of integers. Convert both operands first: to("i32").`,
    { numbers: { op: name } },
  );
}

function divisorOp(name: "gcd" | "lcm"): CompositeOp {
  return {
    kind: "composite",
    name,
    infer: (operands) => infer(name, operands),
    compose: compose(name),
  };
}

/** The greatest common divisor, 0 or more. That of two zeros is 0. */
export const gcd = divisorOp("gcd");
/** The least common multiple, 0 or more. */
export const lcm = divisorOp("lcm");
