/** log, log2, log10 and log1p of four floats, computed in doubles; NaN below their domains. */

import { abs32, add, f32, f64, isLess32, keep, mul, nanWhere32, read, select } from "./expression.js";
import { inDoubles } from "./halves.js";
import { type VectorFunction, vectorFunction } from "./vector-function.js";
import { wideLog } from "./wide-exp-log.js";

export const log = vectorFunction("log", 1, (code, x) =>
  nanWhere32(isLess32(read(x), f32(0)), inDoubles(code, [x], wideLog)),
);

/** A logarithm to another base: the factor is 1 / ln of the base. */
function scaledLog(name: string, factor: number): VectorFunction {
  return vectorFunction(name, 1, (code, x) => {
    const scaled = inDoubles(code, [x], (inner, value) => mul(wideLog(inner, value), f64(factor)));
    return nanWhere32(isLess32(read(x), f32(0)), scaled);
  });
}

export const log2 = scaledLog("log2", Math.LOG2E);
export const log10 = scaledLog("log10", Math.LOG10E);

/** From here on 1 + x is exact in double. Below it, ln(1 + x) is x within a thirtieth of an ulp. */
const log1pIsXBelow = 2 ** -28;

export const log1p = vectorFunction("log1p", 1, (code, x) => {
  const general = inDoubles(code, [x], (inner, value) => {
    const sum = keep(inner, add(value, f64(1)));
    return wideLog(inner, sum);
  });
  const isSmall = isLess32(abs32(read(x)), f32(log1pIsXBelow));
  return nanWhere32(isLess32(read(x), f32(-1)), select(isSmall, read(x), general));
});
