/** Numbers as the bytes of a float dtype, and back. */

import { type Dtype, narrowToBf16, narrowToF16, widenBf16, widenF16 } from "../../src/ir/index.js";

export type FloatName = Extract<Dtype, "f32" | "f64" | "f16" | "bf16">;

export const floatBytes: Readonly<Record<FloatName, number>> = { f32: 4, f64: 8, f16: 2, bf16: 2 };

export function encodeFloats(values: ArrayLike<number>, dtype: FloatName): ArrayBufferView<ArrayBuffer> {
  if (dtype === "f64") return Float64Array.from(values);
  const singles = Float32Array.from(values);
  if (dtype === "f32") return singles;
  return dtype === "f16" ? narrowToF16(singles) : narrowToBf16(singles);
}

export function decodeFloats(bytes: Uint8Array<ArrayBuffer>, dtype: FloatName): Float64Array {
  if (dtype === "f64") return new Float64Array(bytes.buffer);
  if (dtype === "f32") return Float64Array.from(new Float32Array(bytes.buffer));
  const halves = new Uint16Array(bytes.buffer);
  return Float64Array.from(dtype === "f16" ? widenF16(halves) : widenBf16(halves));
}
