/** Collects the values of one column, row group by row group, and joins them to one typed array or list. */

import type { DecodedArray, SchemaElement } from "hyparquet";
import type { DecodeBudget } from "./pages.js";

/** The numbers of a column. Times are milliseconds since 1970 (UTC); booleans are 0 and 1. */
export type ParquetNumbers =
  | Float64Array
  | Float32Array
  | Int32Array
  | Uint32Array
  | BigInt64Array
  | BigUint64Array
  | Uint8Array;

/** All rows of one column. */
export interface ParquetColumn {
  readonly name: string;
  readonly values: ParquetNumbers | readonly (string | null)[];
  /** True if the numbers are times. */
  readonly isTime: boolean;
  /** 1 for each row without a value; undefined if there is none. */
  readonly missing: Uint8Array | undefined;
}

type Kind = "f64" | "f32" | "i32" | "u32" | "i64" | "u64" | "boolean" | "time" | "text";

const arrays = {
  f64: Float64Array,
  f32: Float32Array,
  i32: Int32Array,
  u32: Uint32Array,
  i64: BigInt64Array,
  u64: BigUint64Array,
  boolean: Uint8Array,
  time: Float64Array,
} as const;

/** The values of a row group: an array of the column's type, or doubles if an integer or a boolean is missing. */
type Part = ParquetNumbers | readonly (string | null)[];

export class ColumnValues {
  readonly #name: string;
  readonly #kind: Kind;
  readonly #parts: Part[] = [];
  readonly #masks: (Uint8Array | undefined)[] = [];
  #rows = 0;

  constructor(element: SchemaElement) {
    this.#name = element.name;
    this.#kind = kindOf(element);
  }

  /** Adds the pages of a row group. */
  add(pages: readonly DecodedArray[], rows: number, budget: DecodeBudget): void {
    const mask = maskOf(pages, rows);
    this.#masks.push(mask);
    this.#parts.push(
      this.#kind === "text" ? this.#texts(pages, budget) : this.#numbers(this.#kind, pages, rows, mask),
    );
    this.#rows += rows;
  }

  finish(): ParquetColumn {
    const isTime = this.#kind === "time";
    return { name: this.#name, values: this.#join(), isTime, missing: this.#joinMasks() };
  }

  #texts(pages: readonly DecodedArray[], budget: DecodeBudget): readonly (string | null)[] {
    const texts: (string | null)[] = [];
    for (const page of pages) {
      for (const value of page as readonly unknown[]) {
        if (typeof value !== "string" && value !== null && value !== undefined) throw this.#odd(value);
        // One entry of a dictionary can be the text of every row, and each is copied to the other thread.
        budget.bytes -= value?.length ?? 0;
        if (budget.bytes < 0) throw new RangeError("its texts are longer than its rows need");
        texts.push(value ?? null);
      }
    }
    return texts;
  }

  #numbers(
    kind: Exclude<Kind, "text">,
    pages: readonly DecodedArray[],
    rows: number,
    mask: Uint8Array | undefined,
  ): ParquetNumbers {
    const numbers = new (mask === undefined ? arrays[kind] : withNaN(kind))(rows);
    const isBig = numbers instanceof BigInt64Array || numbers instanceof BigUint64Array;
    let at = 0;
    for (const page of pages) {
      for (let index = 0; index < page.length; index++, at++) {
        const value: unknown = page[index];
        if (isBig) {
          if (typeof value !== "bigint") throw this.#odd(value);
          numbers[at] = value;
        } else {
          numbers[at] = mask?.[at] ? Number.NaN : this.#number(value, kind);
        }
      }
    }
    return numbers;
  }

  #number(value: unknown, kind: Kind): number {
    if (typeof value === "number") return value;
    if (kind === "time" && value instanceof Date) return value.getTime();
    if (kind === "boolean" && typeof value === "boolean") return Number(value);
    // A column of 64-bit integers with missing values.
    if (typeof value === "bigint") return Number(value);
    throw this.#odd(value);
  }

  #odd(value: unknown): RangeError {
    const type = typeof value === "object" ? value?.constructor?.name : typeof value;
    return new RangeError(`the column ${this.#name} has a value of the type ${type}`);
  }

  #join(): Part {
    if (this.#kind === "text") return (this.#parts as (readonly (string | null)[])[]).flat();
    const [first] = this.#parts;
    if (this.#parts.length === 1 && first) return first;
    const hasMissing = this.#masks.some((mask) => mask !== undefined);
    const joined = new (hasMissing ? withNaN(this.#kind) : arrays[this.#kind])(this.#rows);
    let at = 0;
    for (const part of this.#parts as ParquetNumbers[]) {
      if (part.constructor === joined.constructor) (joined as Float64Array).set(part as Float64Array, at);
      else for (const [index, value] of part.entries()) joined[at + index] = Number(value);
      at += part.length;
    }
    return joined;
  }

  #joinMasks(): Uint8Array | undefined {
    if (this.#masks.every((mask) => mask === undefined)) return undefined;
    const joined = new Uint8Array(this.#rows);
    let at = 0;
    for (const [index, part] of this.#parts.entries()) {
      const mask = this.#masks[index];
      if (mask) joined.set(mask, at);
      at += part.length;
    }
    return joined;
  }
}

/** The array for numbers and NaN. */
function withNaN(kind: Exclude<Kind, "text">): typeof Float64Array | typeof Float32Array {
  return kind === "f32" ? Float32Array : Float64Array;
}

function maskOf(pages: readonly DecodedArray[], rows: number): Uint8Array | undefined {
  let mask: Uint8Array | undefined;
  let at = 0;
  for (const page of pages) {
    // Typed arrays have no missing values.
    for (let index = 0; Array.isArray(page) && index < page.length; index++) {
      if (page[index] !== null && page[index] !== undefined) continue;
      mask ??= new Uint8Array(rows);
      mask[at + index] = 1;
    }
    at += page.length;
  }
  return mask;
}

/** What hyparquet makes of the values of a column. */
function kindOf({ type, converted_type, logical_type }: SchemaElement): Kind {
  const logical = logical_type?.type;
  if (converted_type === "DECIMAL" || logical === "FLOAT16") return "f64";
  const isTimestamp = converted_type?.startsWith("TIMESTAMP_") || logical === "TIMESTAMP";
  if (isTimestamp || converted_type === "DATE" || type === "INT96") return "time";
  const isUnsigned =
    converted_type?.startsWith("UINT_") || (logical_type?.type === "INTEGER" && !logical_type.isSigned);
  switch (type) {
    case "BOOLEAN":
      return "boolean";
    case "FLOAT":
      return "f32";
    case "INT32":
      return isUnsigned ? "u32" : "i32";
    case "INT64":
      return isUnsigned ? "u64" : "i64";
    case "DOUBLE":
      return "f64";
    default:
      return "text";
  }
}
