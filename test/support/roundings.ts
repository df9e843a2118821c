/** The roundings of the loop IR, on the host. */

import { narrowToBf16, narrowToF16, widenBf16, widenF16 } from "../../src/ir/index.js";

const float = new Float32Array(1);
const bits = new Uint32Array(float.buffer);

/** The nearest float with ten fraction bits, ties away from zero, as cvt.rna.tf32 rounds. */
export function roundToTf32(value: number): number {
  float[0] = value;
  if (!Number.isFinite(float[0])) return float[0];
  bits[0] = ((bits[0] ?? 0) + 0x1000) & ~0x1fff;
  return float[0];
}

export const roundToBf16 = (value: number): number => widenBf16(narrowToBf16(Float32Array.of(value)))[0] ?? 0;
export const roundToF16 = (value: number): number => widenF16(narrowToF16(Float32Array.of(value)))[0] ?? 0;
