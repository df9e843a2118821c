/** Rounds four floats: to TF32, the operands of tensor cores, and to the 16-bit floats that a store would round them to. */

import { pushRounded } from "../elements.js";
import { abs32, addBits32, andNot, f32, isLess32, read, select } from "./expression.js";
import { vectorFunction } from "./vector-function.js";

/** Floats with these bits. */
const ofBits = (bits: number) => f32(new Float32Array(Uint32Array.of(bits).buffer)[0] ?? 0);

/** Adding half of the last kept bit carries exactly when rounding goes up. Infinity and NaN stay as they are. */
export const roundTf32 = vectorFunction("roundTf32", 1, (_, x) => {
  const rounded = andNot(addBits32(read(x), ofBits(0x1000)), ofBits(0x1fff));
  return select(isLess32(abs32(read(x)), f32(Number.POSITIVE_INFINITY)), rounded, read(x));
});

export const roundBf16 = vectorFunction("roundBf16", 1, (_, x) => (code) => pushRounded(code, "bf16", x));
export const roundF16 = vectorFunction("roundF16", 1, (_, x) => (code) => pushRounded(code, "f16", x));
