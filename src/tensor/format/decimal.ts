/**
 * Finite floats as decimal digits: the fewest that identify a float of its dtype, or a fixed number of digits, rounded from the
 * exact value, ties to even. `toFixed` and similar functions do not serve: they know only f64, in which the f32 nearest to 0.1 is
 * 0.10000000149011612, and they round ties up.
 */

import { narrowToBf16, narrowToF16, widenBf16, widenF16 } from "../../ir/index.js";

export type FloatDtype = "f32" | "f64" | "bf16" | "f16";

/** d.ddd… × 10^exponent, without a sign. The first digit is 0 only for zero. */
export interface Decimal {
  readonly digits: string;
  readonly exponent: number;
}

/** Rounds a number to the nearest one that the dtype holds. */
export const roundTo: Readonly<Record<FloatDtype, (value: number) => number>> = {
  f64: (value) => value,
  f32: Math.fround,
  bf16: (value) => widenBf16(narrowToBf16(Float32Array.of(value)))[0] ?? Number.NaN,
  f16: (value) => widenF16(narrowToF16(Float32Array.of(value)))[0] ?? Number.NaN,
};

/** Nine digits identify every f32. */
const maxF32Digits = 9;

/** The fewest digits that the dtype reads back as this value; of several candidates, the nearest to it. */
export function shortestDecimal(value: number, dtype: FloatDtype): Decimal {
  const magnitude = Math.abs(value);
  if (dtype === "f64") return parse(magnitude.toExponential());
  const exact = exactDecimal(value);
  const round = roundTo[dtype];
  const isReadBack = ({ digits, exponent }: Decimal): boolean =>
    round(Number(`${digits}e${exponent - digits.length + 1}`)) === magnitude;
  for (let count = 1; count < maxF32Digits; count++) {
    const nearest = cut(exact, count);
    if (isReadBack(nearest)) return nearest;
    // Floats are denser below a power of two than above. There, the next decimal up may read back as this value when the nearest
    // does not.
    const above = cut(exact, count, "up");
    if (isReadBack(above)) return above;
  }
  return cut(exact, maxF32Digits);
}

/** The value to this many digits, at least one. */
export function roundedDecimal(value: number, count: number): Decimal {
  return cut(exactDecimal(value), count);
}

/** Has more digits than two different floats can share, so a tie in these digits is a true tie. */
function exactDecimal(value: number): Decimal {
  return parse(Math.abs(value).toExponential(60));
}

function cut({ digits, exponent }: Decimal, count: number, direction?: "up"): Decimal {
  const kept = digits.slice(0, count);
  const rest = digits.slice(count);
  const half = "5".padEnd(rest.length, "0");
  const isOdd = Number(kept.at(-1)) % 2 === 1;
  const isUp = direction === "up" || rest > half || (rest === half && isOdd);
  if (!isUp) return { digits: kept, exponent };
  const rounded = String(BigInt(kept) + 1n);
  // 9.99 becomes 10.0: the exponent grows by one, and the number of digits stays.
  const carry = rounded.length - kept.length;
  return { digits: rounded.slice(0, count), exponent: exponent + carry };
}

function parse(text: string): Decimal {
  const [digits = "", exponent] = text.replace(".", "").split("e");
  return { digits, exponent: Number(exponent) };
}

/** The digits before and after the decimal point, in positional notation. */
export function writeOut({ digits, exponent }: Decimal): {
  readonly whole: string;
  readonly fraction: string;
} {
  const padded = exponent < 0 ? "0".repeat(-exponent) + digits : digits.padEnd(exponent + 1, "0");
  const point = Math.max(0, exponent) + 1;
  return { whole: padded.slice(0, point), fraction: padded.slice(point) };
}
