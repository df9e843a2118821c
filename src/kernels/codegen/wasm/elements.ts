/**
 * Loads that widen a dtype to its compute type, and stores that narrow it back, rounding to nearest even. A vector has 4 lanes of f32 or
 * i32, or 2 of f64 or i64; a single element is in lane 0.
 */

import type { Code, Local, MemoryOpcode } from "../../../driver/index.js";
import {
  type Dtype,
  dtypes,
  type Float8Format,
  float8Formats,
  float8Nan,
  isFloat8,
} from "../../../ir/index.js";

export type Lanes = 1 | 2 | 4;

/** Pushes `lanes` neighbouring elements, from the address on the stack plus `offset`, as a vector of the compute type. */
export function pushElements(code: Code, dtype: Dtype, lanes: Lanes, offset = 0): void {
  switch (dtype) {
    case "f32":
    case "i32":
      code.memory(lanes === 4 ? "v128.load" : lanes === 2 ? "v128.load64_zero" : "v128.load32_zero", offset);
      return;
    case "f64":
    case "i64":
      code.memory(lanes === 1 ? "v128.load64_zero" : "v128.load", offset);
      return;
    case "u8":
    case "bool":
      if (lanes === 4) widenBytes(code.memory("v128.load32_zero", offset));
      else if (lanes === 2) widenBytes(code.memory("i32.load16_u", offset).op("i32x4.splat"));
      else code.memory("i32.load8_u", offset).op("i32x4.splat");
      return;
    case "i8":
      if (lanes === 4) widenSignedBytes(code.memory("v128.load32_zero", offset));
      else if (lanes === 2) widenSignedBytes(code.memory("i32.load16_u", offset).op("i32x4.splat"));
      else code.memory("i32.load8_s", offset).op("i32x4.splat");
      return;
    case "f8e4m3":
    case "f8e5m2":
      if (lanes === 4) widenBytes(code.memory("v128.load32_zero", offset));
      else if (lanes === 2) widenBytes(code.memory("i32.load16_u", offset).op("i32x4.splat"));
      else code.memory("i32.load8_u", offset).op("i32x4.splat");
      widenHalves(code, dtype);
      return;
    case "bf16":
    case "f16":
      if (lanes === 4) code.memory("v128.load16x4_u", offset);
      else if (lanes === 2) code.memory("v128.load32_zero", offset).op("i32x4.extend_low_i16x8_u");
      else code.memory("i32.load16_u", offset).op("i32x4.splat");
      widenHalves(code, dtype);
  }
}

/** Splats one element, from the address on the stack. */
export function pushSplat(code: Code, dtype: Dtype): void {
  if (dtype === "f32" || dtype === "i32") code.memory("v128.load32_splat");
  else if (dtype === "f64" || dtype === "i64") code.memory("v128.load64_splat");
  else {
    code.memory(bitsLoadOf(dtype)).op("i32x4.splat");
    widenHalves(code, dtype);
  }
}

/** Gathers one element per lane, each from the address that `pushAddress` pushes. */
export function pushGathered(
  code: Code,
  dtype: Dtype,
  lanes: Lanes,
  pushAddress: (lane: number) => void,
): void {
  pushAddress(0);
  if (dtype === "f64" || dtype === "i64") {
    code.memory("v128.load64_zero");
    if (lanes === 1) return;
    pushAddress(1);
    if (dtype === "f64") code.memory("f64.load").lane("f64x2.replace_lane", 1);
    else code.memory("i64.load").lane("i64x2.replace_lane", 1);
    return;
  }
  code.memory(bitsLoadOf(dtype)).op("i32x4.splat");
  for (let lane = 1; lane < lanes; lane++) {
    pushAddress(lane);
    code.memory(bitsLoadOf(dtype)).lane("i32x4.replace_lane", lane);
  }
  widenHalves(code, dtype);
}

/** The load of an element's bits into the low end of an i32, sign-extended for i8. */
function bitsLoadOf(dtype: Exclude<Dtype, "f64" | "i64">): MemoryOpcode {
  if (dtype === "i8") return "i32.load8_s";
  return ({ 4: "i32.load", 2: "i32.load16_u", 1: "i32.load8_u" } as const)[dtypes[dtype].bytes];
}

/** Stores the first `lanes` lanes of a vector of the compute type as neighbouring elements. */
export function storeElements(code: Code, dtype: Dtype, lanes: Lanes, address: Local, value: Local): void {
  if (dtype === "f64" || dtype === "i64") {
    if (lanes > 1) code.get(address).get(value).memory("v128.store");
    else if (dtype === "f64") code.get(address).get(value).lane("f64x2.extract_lane", 0).memory("f64.store");
    else code.get(address).get(value).lane("i64x2.extract_lane", 0).memory("i64.store");
    return;
  }
  if ((dtype === "f32" || dtype === "i32") && lanes === 4) {
    code.get(address).get(value).memory("v128.store");
    return;
  }
  const narrowed = code.local("v128");
  code.get(value);
  if (dtype === "bf16") narrowToBf16(code, value);
  if (dtype === "f16") narrowToF16(code, value);
  if (isFloat8(dtype)) narrowToFloat8(code, value, float8Formats[dtype]);
  code.set(narrowed);
  const { bytes } = dtypes[dtype];
  const store = ({ 4: "i32.store", 2: "i32.store16", 1: "i32.store8" } as const)[bytes];
  for (let lane = 0; lane < lanes; lane++) {
    code
      .get(address)
      .get(narrowed)
      .lane("i32x4.extract_lane", lane)
      .memory(store, lane * bytes);
  }
}

/** Pushes the vector that a load gives after a store of `value` in the dtype. */
export function pushRounded(code: Code, dtype: "bf16" | "f16", value: Local): void {
  code.get(value);
  if (dtype === "bf16") narrowToBf16(code, value);
  else narrowToF16(code, value);
  widenHalves(code, dtype);
}

/** Extends the four bytes of the first lane to four lanes. */
function widenBytes(code: Code): void {
  code.op("i16x8.extend_low_i8x16_u").op("i32x4.extend_low_i16x8_u");
}

/** The same, with their signs. */
function widenSignedBytes(code: Code): void {
  code.op("i16x8.extend_low_i8x16_s").op("i32x4.extend_low_i16x8_s");
}

/** Converts 16-bit and 8-bit floats, one in the low end of each lane, to f32; other dtypes need no conversion. */
function widenHalves(code: Code, dtype: Dtype): void {
  if (dtype === "bf16") code.i32(16).op("i32x4.shl");
  else if (dtype === "f16") widenF16(code);
  else if (isFloat8(dtype)) widenFloat8(code, float8Formats[dtype]);
}

/** f16 bits to f32: shifts the bits to their positions and scales by 2^112, which is exact for subnormals too. */
function widenF16(code: Code): void {
  const bits = code.local("v128");
  const magnitude = code.local("v128");
  code.set(bits);
  code.get(bits).i32(0x7fff).op("i32x4.splat").op("v128.and").set(magnitude);
  code
    .get(magnitude)
    .i32(13)
    .op("i32x4.shl")
    .f32(2 ** 112)
    .op("f32x4.splat")
    .op("f32x4.mul");
  // Infinity and NaN need all exponent bits set, which scaling does not give.
  code.i32(0x7f800000).op("i32x4.splat");
  code.get(magnitude).i32(0x7bff).op("i32x4.splat").op("i32x4.gt_s").op("v128.and").op("v128.or");
  code.get(bits).i32(0x8000).op("i32x4.splat").op("v128.and").i32(16).op("i32x4.shl").op("v128.or");
}

/** The bf16 bits of a vector, in the low half of each lane; consumes the vector, which is on the stack too. */
function narrowToBf16(code: Code, value: Local): void {
  // bits + 0x7fff + the last kept bit carries exactly when rounding to nearest even goes up.
  code.i32(0x7fff).op("i32x4.splat").op("i32x4.add");
  code.get(value).i32(16).op("i32x4.shr_u").i32(1).op("i32x4.splat").op("v128.and").op("i32x4.add");
  code.i32(16).op("i32x4.shr_u");
  code.i32(0x7fc0).op("i32x4.splat");
  code.get(value).get(value).op("f32x4.eq").op("v128.bitselect");
}

/** The f16 bits of a vector, in the low half of each lane; consumes the vector, which is on the stack too. */
function narrowToF16(code: Code, value: Local): void {
  const magnitude = code.local("v128");
  const normal = code.local("v128");
  code.i32(0x7fffffff).op("i32x4.splat").op("v128.and").set(magnitude);
  // Normal results: rebias the exponent by -112 and round to nearest even at bit 13.
  code
    .get(magnitude)
    .i32(0xc8000fff | 0)
    .op("i32x4.splat")
    .op("i32x4.add");
  code.get(magnitude).i32(13).op("i32x4.shr_u").i32(1).op("i32x4.splat").op("v128.and").op("i32x4.add");
  code.i32(13).op("i32x4.shr_u").set(normal);
  // Below 2^-14 the sum with 0.5 leaves the result's bits at the bottom of the significand, rounded by the adder.
  code.get(magnitude).f32(0.5).op("f32x4.splat").op("f32x4.add");
  code.i32(0x3f000000).op("i32x4.splat").op("i32x4.sub");
  code.get(normal);
  code.get(magnitude).i32(0x38800000).op("i32x4.splat").op("i32x4.lt_s").op("v128.bitselect").set(normal);
  // From 2^16 on: infinity, or NaN for NaN.
  code.i32(0x7e00).op("i32x4.splat").i32(0x7c00).op("i32x4.splat");
  code.get(magnitude).i32(0x7f800000).op("i32x4.splat").op("i32x4.gt_s").op("v128.bitselect");
  code.get(normal);
  code.get(magnitude).i32(0x477fffff).op("i32x4.splat").op("i32x4.gt_s").op("v128.bitselect");
  code.get(value).i32(16).op("i32x4.shr_u").i32(0x8000).op("i32x4.splat").op("v128.and").op("v128.or");
}

/** As `widenF16`, with the format's sizes. */
function widenFloat8(code: Code, { mantissaBits, bias, maxFinite, specialF32 }: Float8Format): void {
  const bits = code.local("v128");
  const magnitude = code.local("v128");
  const splat = (value: number): Code => code.i32(value).op("i32x4.splat");
  code.set(bits).get(bits);
  splat(0x7f).op("v128.and").set(magnitude);
  code
    .get(magnitude)
    .i32(23 - mantissaBits)
    .op("i32x4.shl");
  code
    .f32(2 ** (127 - bias))
    .op("f32x4.splat")
    .op("f32x4.mul");
  splat(specialF32).get(magnitude);
  splat(maxFinite).op("i32x4.gt_s").op("v128.and").op("v128.or");
  code.get(bits);
  splat(0x80).op("v128.and").i32(24).op("i32x4.shl").op("v128.or");
}

/** As `narrowToF16`, with the format's sizes: the bits in the low byte of each lane. */
function narrowToFloat8(
  code: Code,
  value: Local,
  { mantissaBits, bias, lastFiniteF32, overflow }: Float8Format,
): void {
  const magnitude = code.local("v128");
  const normal = code.local("v128");
  const shift = 23 - mantissaBits;
  const splat = (bits: number): Code => code.i32(bits | 0).op("i32x4.splat");
  splat(0x7fffffff).op("v128.and").set(magnitude);
  // Normal results: rebias the exponent, and round to nearest even at the last kept bit.
  code.get(magnitude);
  splat(((bias - 127) << 23) + 2 ** (shift - 1) - 1).op("i32x4.add");
  code.get(magnitude).i32(shift).op("i32x4.shr_u");
  splat(1).op("v128.and").op("i32x4.add");
  code.i32(shift).op("i32x4.shr_u").set(normal);
  // Below them: the last bit of the sum is a unit of the subnormal results, so the adder rounds to them.
  const magic = 2 ** (24 - bias - mantissaBits);
  code.get(magnitude).f32(magic).op("f32x4.splat").op("f32x4.add");
  code.f32(magic).op("f32x4.splat").op("i32x4.sub");
  code.get(normal).get(magnitude);
  splat((128 - bias) << 23)
    .op("i32x4.lt_s")
    .op("v128.bitselect")
    .set(normal);
  splat(float8Nan);
  splat(overflow).get(magnitude);
  splat(0x7f800000).op("i32x4.gt_s").op("v128.bitselect");
  code.get(normal).get(magnitude);
  splat(lastFiniteF32).op("i32x4.gt_s").op("v128.bitselect");
  code.get(value).i32(24).op("i32x4.shr_u");
  splat(0x80).op("v128.and").op("v128.or");
}
