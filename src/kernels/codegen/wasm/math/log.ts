/** log and log1p of four floats, computed in doubles; NaN below their domains. */

import { abs32, add, f32, f64, isLess32, keep, nanWhere32, read, select } from "./expression.js";
import { inDoubles } from "./halves.js";
import { vectorFunction } from "./vector-function.js";
import { wideLog } from "./wide-exp-log.js";

export const log = vectorFunction("log", 1, (code, x) =>
  nanWhere32(isLess32(read(x), f32(0)), inDoubles(code, [x], wideLog)),
);

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
