/** Encodes host numbers as the bytes of a dtype. */

import { HoldfastError } from "../errors/index.js";

import { type Dtype, narrowToBf16, narrowToF16, narrowToFloat8 } from "../ir/index.js";

/** Numbers, or exact 64-bit integers. */
export type HostValues = ArrayLike<number> | BigInt64Array;

/** Row-major elements in the device's format. Uses constructors, because from() is slow: it converts element by element. */
export function encodeElements(values: HostValues, dtype: Dtype): ArrayBufferView {
  if (values instanceof BigInt64Array)
    return dtype === "i64" ? values : encodeElements(asNumbers(values), dtype);
  switch (dtype) {
    case "f32":
      return values instanceof Float32Array ? values : new Float32Array(values);
    case "f64":
      return values instanceof Float64Array ? values : new Float64Array(values);
    case "i64":
      return BigInt64Array.from(values, asBigInt);
    case "i8":
      return values instanceof Int8Array ? values : new Int8Array(values);
    case "i32":
      return values instanceof Int32Array ? values : new Int32Array(values);
    case "u8":
      return values instanceof Uint8Array ? values : new Uint8Array(values);
    case "bool":
      return Uint8Array.from(values, (value) => (value ? 1 : 0));
    case "bf16":
      return narrowToBf16(new Float32Array(values));
    case "f16":
      return narrowToF16(new Float32Array(values));
    case "f8e4m3":
    case "f8e5m2":
      return narrowToFloat8(dtype, new Float32Array(values));
  }
}

/** As casts on a device: fractions are dropped, numbers beyond the range of i64 saturate, and NaN becomes 0. */
function asBigInt(value: number): bigint {
  if (Number.isNaN(value)) return 0n;
  if (value >= 2 ** 63) return 2n ** 63n - 1n;
  return value <= -(2 ** 63) ? -(2n ** 63n) : BigInt(Math.trunc(value));
}

/** 64-bit integers as numbers, rounded if they are beyond 2⁵³. */
export function asNumbers(values: BigInt64Array): Float64Array<ArrayBuffer> {
  const numbers = new Float64Array(values.length);
  for (let index = 0; index < values.length; index++) numbers[index] = Number(values[index]);
  return numbers;
}

/** 64-bit integers as numbers. Rejects one that a number cannot hold exactly. */
export function asExactNumbers(values: BigInt64Array, name: string): Float64Array<ArrayBuffer> {
  const numbers = asNumbers(values);
  for (let index = 0; index < numbers.length; index++) {
    if (Number.isSafeInteger(numbers[index])) continue;
    throw new HoldfastError(
      "BAD_DTYPE",
      `Element ${index} of "${name}" is ${values[index]}; JavaScript numbers hold whole numbers up to 2^53 exactly. ` +
        "Read it with bigInts().",
      { numbers: { index, value: String(values[index]) } },
    );
  }
  return numbers;
}

export function numberAt(values: ArrayLike<number>, index: number): number {
  return values[index] ?? Number.NaN;
}

/** The dtype of a typed array; undefined for 16-bit arrays, which are ambiguous, and for others without a dtype. */
export function dtypeOfArray(values: ArrayBufferView): Dtype | undefined {
  if (values instanceof Float32Array) return "f32";
  if (values instanceof Float64Array) return "f64";
  if (values instanceof BigInt64Array) return "i64";
  if (values instanceof Int32Array) return "i32";
  if (values instanceof Int8Array) return "i8";
  if (values instanceof Uint8Array || values instanceof Uint8ClampedArray) return "u8";
  return undefined;
}
