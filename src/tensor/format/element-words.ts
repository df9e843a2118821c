/**
 * The words that elements are printed as: NumPy's digits and columns with JavaScript's words. `NaN`, `Infinity`, `true`
 * and `false` are what a TypeScript user writes, greps for and sees in every other console.log.
 */

import type { Dtype } from "../../ir/index.js";
import {
  type Decimal,
  type FloatDtype,
  roundedDecimal,
  roundTo,
  shortestDecimal,
  writeOut,
} from "./decimal.js";

/** The most digits behind the point in an array; an element alone has all that it needs. */
const precision = 8;

/** From here on numbers are too small to be written out. */
const smallestWrittenOut = 1e-4;

/** And from here on too large: the digits before the point would promise more than the dtype holds. */
const largeFrom: Readonly<Record<FloatDtype, number>> = {
  f64: 1e8,
  f32: 1e6,
  f16: 1e3,
  // NumPy has no bf16. Its rule for the others would put 128 in scientific notation, which helps nobody.
  bf16: 1e3,
};

/** The elements of one array, all of one width. */
export function elementWords(values: readonly number[], dtype: Dtype): string[] {
  switch (dtype) {
    case "bool":
      // As wide as `false` even where there is none, as NumPy does: masks of one shape print alike.
      return values.map((value) => booleanWord(value).padStart("false".length));
    case "i32":
    case "u8":
      return alignRight(values.map(integerWord));
    default:
      return floatWords(values, dtype);
  }
}

/** The one element of a tensor with no axes. */
export function scalarWord(value: number, dtype: Dtype): string {
  switch (dtype) {
    case "bool":
      return booleanWord(value);
    case "i32":
    case "u8":
      return integerWord(value);
    default:
      return Number.isFinite(value) ? loneFloat(value, dtype) : String(value);
  }
}

const booleanWord = (value: number): string => (value === 0 ? "false" : "true");

const integerWord = (value: number): string => String(value);

const signOf = (value: number): string => (value < 0 || Object.is(value, -0) ? "-" : "");

function loneFloat(value: number, dtype: FloatDtype): string {
  const { digits, exponent } = shortestDecimal(value, dtype);
  const magnitude = Math.abs(value);
  const tooLarge = dtype === "f64" ? 1e16 : largeFrom[dtype];
  if (magnitude !== 0 && (magnitude < smallestWrittenOut || magnitude >= tooLarge)) {
    const point = digits.length > 1 ? "." : "";
    return `${signOf(value)}${digits[0]}${point}${digits.slice(1)}${exponentWord(exponent, 2)}`;
  }
  const { whole, fraction } = writeOut({ digits, exponent });
  return `${signOf(value)}${whole}.${fraction || "0"}`;
}

/** A column's layout: what stands before the point (sign included) and what behind it. */
interface Column {
  readonly before: number;
  readonly behind: number;
  readonly write: (value: number) => readonly [before: string, behind: string];
}

function floatWords(values: readonly number[], dtype: FloatDtype): string[] {
  const finite = values.filter(Number.isFinite);
  const { before, behind, write } = needsExponents(finite, dtype)
    ? scientificColumn(finite, dtype)
    : writtenOutColumn(finite, dtype);
  const others = values.filter((value) => !Number.isFinite(value)).map(String);
  const width = Math.max(before + 1 + behind, longest(others));
  return values.map((value) => {
    if (!Number.isFinite(value)) return String(value).padStart(width);
    const [left, right] = write(value);
    return `${left.padStart(width - 1 - behind)}.${right.padEnd(behind)}`;
  });
}

function needsExponents(finite: readonly number[], dtype: FloatDtype): boolean {
  const magnitudes = finite.map(Math.abs).filter((magnitude) => magnitude > 0);
  if (magnitudes.length === 0) return false;
  const round = roundTo[dtype];
  const largest = magnitudes.reduce((one, other) => Math.max(one, other));
  const smallest = magnitudes.reduce((one, other) => Math.min(one, other));
  // Compared in the dtype itself: the f32 nearest to 0.0001 lies a little below it, and is written out.
  return (
    largest >= largeFrom[dtype] || smallest < round(smallestWrittenOut) || round(largest / smallest) > 1000
  );
}

/** 12.5 in the fewest digits; shorter ones are followed by blanks, as zeros would claim digits that were not computed. */
function writtenOutColumn(finite: readonly number[], dtype: FloatDtype): Column {
  const write = (value: number): readonly [string, string] => {
    const { whole, fraction } = writeOut(cutDecimal(value, dtype, writtenOutDigits));
    return [signOf(value) + whole, fraction];
  };
  const parts = finite.map(write);
  return {
    before: longest(parts.map(([whole]) => whole)),
    behind: longest(parts.map(([, tail]) => tail)),
    write,
  };
}

/** 1.25e+01, every element with the same number of digits: here blanks would tear the exponent off. */
function scientificColumn(finite: readonly number[], dtype: FloatDtype): Column {
  const decimals = finite.map((value) => cutDecimal(value, dtype, () => precision + 1));
  const digitCount = longest(decimals.map(({ digits }) => digits));
  const exponentDigits = Math.max(2, longest(decimals.map(({ exponent }) => String(Math.abs(exponent)))));
  const write = (value: number): readonly [string, string] => {
    const shortest = shortestDecimal(value, dtype);
    // Where both have as many digits, the shortest are the ones that are read back as this value.
    const isFull = shortest.digits.length === digitCount;
    const { digits, exponent } = isFull ? shortest : roundedDecimal(value, digitCount);
    return [signOf(value) + digits[0], digits.slice(1) + exponentWord(exponent, exponentDigits)];
  };
  const before = longest(finite.map((value) => `${signOf(value)}0`));
  return { before, behind: digitCount - 1 + "e+".length + exponentDigits, write };
}

const writtenOutDigits = (exponent: number): number => exponent + 1 + precision;

/** The shortest digits, unless these are too many: then the exact value rounded to so many, less its last zeros. */
function cutDecimal(value: number, dtype: FloatDtype, maxDigits: (exponent: number) => number): Decimal {
  const shortest = shortestDecimal(value, dtype);
  const most = maxDigits(shortest.exponent);
  if (shortest.digits.length <= most) return shortest;
  const { digits, exponent } = roundedDecimal(value, most);
  return { digits: digits.replace(/(?<=.)0+$/, ""), exponent };
}

function exponentWord(exponent: number, digits: number): string {
  return `e${exponent < 0 ? "-" : "+"}${String(Math.abs(exponent)).padStart(digits, "0")}`;
}

function alignRight(words: readonly string[]): string[] {
  const width = longest(words);
  return words.map((word) => word.padStart(width));
}

function longest(words: readonly string[]): number {
  return words.reduce((length, word) => Math.max(length, word.length), 0);
}
