/** Encodes host numbers as the bytes of a dtype. */

import { type Dtype, narrowToBf16, narrowToF16 } from "../ir/index.js";

/** Row-major elements in the device's format. Uses constructors, because from() is slow: it converts element by element. */
export function encodeElements(values: ArrayLike<number>, dtype: Dtype): ArrayBufferView {
  switch (dtype) {
    case "f32":
      return values instanceof Float32Array ? values : new Float32Array(values);
    case "f64":
      return values instanceof Float64Array ? values : new Float64Array(values);
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
  }
}

export function numberAt(values: ArrayLike<number>, index: number): number {
  return values[index] ?? Number.NaN;
}

/** The dtype of a typed array; undefined for 16-bit arrays, which are ambiguous, and for others without a dtype. */
export function dtypeOfArray(values: ArrayBufferView): Dtype | undefined {
  if (values instanceof Float32Array) return "f32";
  if (values instanceof Float64Array) return "f64";
  if (values instanceof Int32Array) return "i32";
  if (values instanceof Uint8Array || values instanceof Uint8ClampedArray) return "u8";
  return undefined;
}
