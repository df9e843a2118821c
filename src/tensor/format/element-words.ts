/**
 * Elements as text: NumPy's digits and columns with JavaScript's words. TypeScript users write `NaN`, `Infinity`, `true` and
 * `false`, and see them in every other console.log.
 */

import { type Dtype, isFloat8 } from "../../ir/index.js";
import {
  type Decimal,
  type FloatDtype,
  roundedDecimal,
  roundTo,
  shortestDecimal,
  writeOut,
} from "./decimal.js";

/** Maximum number of digits after the decimal point in an array. A scalar is printed with all its digits. */
const precision = 8;

/** Smaller numbers are printed in scientific notation. */
const minPositional = 1e-4;

/** Numbers from here on are printed in scientific notation: more digits would exceed the precision of the dtype. */
const minScientific: Readonly<Record<FloatDtype, number>> = {
  f64: 1e8,
  f32: 1e6,
  f16: 1e3,
  // NumPy has no bf16. Its rule for other dtypes would print 128 in scientific notation.
  bf16: 1e3,
};

/** The elements of one array, padded to one width. */
export function elementWords(values: readonly number[], dtype: Dtype): string[] {
  switch (dtype) {
    case "bool":
      // As wide as `false` even if no element is false, as in NumPy: masks of one shape have the same layout.
      return values.map((value) => booleanWord(value).padStart("false".length));
    case "i64":
    case "i32":
    case "i8":
    case "u8":
      return integerWords(values.map(integerWord));
    default:
      return floatWords(values, isFloat8(dtype) ? "f32" : dtype);
  }
}

/** The element of a tensor without axes. */
export function scalarWord(value: number, dtype: Dtype): string {
  switch (dtype) {
    case "bool":
      return booleanWord(value);
    case "i64":
    case "i32":
    case "i8":
    case "u8":
      return integerWord(value);
    default:
      return Number.isFinite(value) ? loneFloat(value, isFloat8(dtype) ? "f32" : dtype) : String(value);
  }
}

const booleanWord = (value: number): string => (value === 0 ? "false" : "true");

const integerWord = (value: number): string => String(value);

const signOf = (value: number): string => (value < 0 || Object.is(value, -0) ? "-" : "");

function loneFloat(value: number, dtype: FloatDtype): string {
  const { digits, exponent } = shortestDecimal(value, dtype);
  const magnitude = Math.abs(value);
  const tooLarge = dtype === "f64" ? 1e16 : minScientific[dtype];
  if (magnitude !== 0 && (magnitude < minPositional || magnitude >= tooLarge)) {
    const point = digits.length > 1 ? "." : "";
    return `${signOf(value)}${digits[0]}${point}${digits.slice(1)}${exponentWord(exponent, 2)}`;
  }
  const { whole, fraction } = writeOut({ digits, exponent });
  return `${signOf(value)}${whole}.${fraction || "0"}`;
}

/** The layout of a column: its widths before the decimal point, sign included, and after it. */
interface Column {
  readonly before: number;
  readonly after: number;
  readonly write: (value: number) => readonly [before: string, after: string];
}

function floatWords(values: readonly number[], dtype: FloatDtype): string[] {
  const finite = values.filter(Number.isFinite);
  const { before, after, write } = needsExponents(finite, dtype)
    ? scientificColumn(finite, dtype)
    : positionalColumn(finite, dtype);
  const others = values.filter((value) => !Number.isFinite(value)).map(String);
  const width = Math.max(before + 1 + after, longest(others));
  return values.map((value) => {
    if (!Number.isFinite(value)) return String(value).padStart(width);
    const [left, right] = write(value);
    return `${left.padStart(width - 1 - after)}.${right.padEnd(after)}`;
  });
}

function needsExponents(finite: readonly number[], dtype: FloatDtype): boolean {
  const magnitudes = finite.map(Math.abs).filter((magnitude) => magnitude > 0);
  if (magnitudes.length === 0) return false;
  const round = roundTo[dtype];
  const largest = magnitudes.reduce((a, b) => Math.max(a, b));
  const smallest = magnitudes.reduce((a, b) => Math.min(a, b));
  // Compared in the dtype itself: the f32 nearest to 0.0001 is slightly less, and is still printed in positional notation.
  return (
    largest >= minScientific[dtype] || smallest < round(minPositional) || round(largest / smallest) > 1000
  );
}

/** 12.5 in the fewest digits. Shorter numbers are padded with blanks, because zeros would claim digits that were not computed. */
function positionalColumn(finite: readonly number[], dtype: FloatDtype): Column {
  const write = (value: number): readonly [string, string] => {
    const { whole, fraction } = writeOut(cutDecimal(value, dtype, positionalDigits));
    return [signOf(value) + whole, fraction];
  };
  const written = finite.map(write);
  return {
    before: longest(written.map(([whole]) => whole)),
    after: longest(written.map(([, fraction]) => fraction)),
    write,
  };
}

/** 1.25e+01. Every element has the same number of digits, because blanks would separate digits and exponent. */
function scientificColumn(finite: readonly number[], dtype: FloatDtype): Column {
  const decimals = finite.map((value) => cutDecimal(value, dtype, () => precision + 1));
  const digitCount = longest(decimals.map(({ digits }) => digits));
  const exponentDigits = Math.max(2, longest(decimals.map(({ exponent }) => String(Math.abs(exponent)))));
  const write = (value: number): readonly [string, string] => {
    const shortest = shortestDecimal(value, dtype);
    // If both have the same number of digits, only the shortest digits are certain to read back as this value.
    const isFull = shortest.digits.length === digitCount;
    const { digits, exponent } = isFull ? shortest : roundedDecimal(value, digitCount);
    return [signOf(value) + digits[0], digits.slice(1) + exponentWord(exponent, exponentDigits)];
  };
  const before = longest(finite.map((value) => `${signOf(value)}0`));
  return { before, after: digitCount - 1 + "e+".length + exponentDigits, write };
}

const positionalDigits = (exponent: number): number => exponent + 1 + precision;

/** The shortest digits. If these are too many, the exact value rounded to the maximum, without trailing zeros. */
function cutDecimal(value: number, dtype: FloatDtype, maxDigits: (exponent: number) => number): Decimal {
  const shortest = shortestDecimal(value, dtype);
  const limit = maxDigits(shortest.exponent);
  if (shortest.digits.length <= limit) return shortest;
  const { digits, exponent } = roundedDecimal(value, limit);
  return { digits: digits.replace(/(?<=.)0+$/, ""), exponent };
}

function exponentWord(exponent: number, digits: number): string {
  return `e${exponent < 0 ? "-" : "+"}${String(Math.abs(exponent)).padStart(digits, "0")}`;
}

/** Integers as text, padded to one width. */
export function integerWords(words: readonly string[]): string[] {
  const width = longest(words);
  return words.map((word) => word.padStart(width));
}

function longest(words: readonly string[]): number {
  return words.reduce((length, word) => Math.max(length, word.length), 0);
}
