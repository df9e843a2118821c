/**
 * Conversion of f16 and bf16 arrays to f32 and back, on the host. Widening is exact. Narrowing rounds to nearest even; overflow becomes
 * infinity, and a NaN keeps its sign and the upper bits of its payload. All arithmetic is on bits, so that no engine can quiet a NaN or
 * round twice. The loops are counted: `Uint16Array.from` with a callback is forty times slower.
 */

const f32Infinity = 0x7f80_0000;

/** Widens f16 bits to f32. */
export function widenF16(halves: Uint16Array): Float32Array<ArrayBuffer> {
  const values = new Float32Array(halves.length);
  const bits = bitsOf(values);
  for (let index = 0; index < bits.length; index++) bits[index] = f16ToF32Bits(halves[index] ?? 0);
  return values;
}

/** Widens bf16 bits to f32. */
export function widenBf16(halves: Uint16Array): Float32Array<ArrayBuffer> {
  const values = new Float32Array(halves.length);
  const bits = bitsOf(values);
  // A bf16 is the upper half of an f32.
  for (let index = 0; index < bits.length; index++) bits[index] = (halves[index] ?? 0) << 16;
  return values;
}

/** Narrows f32 to f16 bits. */
export function narrowToF16(values: Float32Array): Uint16Array<ArrayBuffer> {
  const halves = new Uint16Array(values.length);
  const bits = bitsOf(values);
  for (let index = 0; index < bits.length; index++) halves[index] = f32ToF16Bits(bits[index] ?? 0);
  return halves;
}

/** Narrows f32 to bf16 bits. */
export function narrowToBf16(values: Float32Array): Uint16Array<ArrayBuffer> {
  const halves = new Uint16Array(values.length);
  const bits = bitsOf(values);
  for (let index = 0; index < bits.length; index++) halves[index] = f32ToBf16Bits(bits[index] ?? 0);
  return halves;
}

function bitsOf(values: Float32Array): Uint32Array {
  return new Uint32Array(values.buffer, values.byteOffset, values.length);
}

/** The exponent's bias is 15 in f16 and 127 in f32; the mantissa has 10 bits in f16 and 23 in f32. */
function f16ToF32Bits(half: number): number {
  const sign = (half & 0x8000) << 16;
  const exponent = (half >>> 10) & 0x1f;
  const mantissa = half & 0x3ff;
  if (exponent === 0x1f) return sign | f32Infinity | (mantissa << 13);
  if (exponent > 0) return sign | ((exponent + 112) << 23) | (mantissa << 13);
  if (mantissa === 0) return sign;
  // Subnormal in f16, normal in f32: the leading one becomes the implicit bit.
  const shift = Math.clz32(mantissa) - 21;
  return sign | ((113 - shift) << 23) | (((mantissa << shift) & 0x3ff) << 13);
}

function f32ToF16Bits(bits: number): number {
  const sign = (bits >>> 16) & 0x8000;
  const magnitude = bits & 0x7fff_ffff;
  if (magnitude > f32Infinity) return sign | 0x7e00 | ((magnitude >>> 13) & 0x3ff);
  const exponent = magnitude >>> 23;
  // 2¹⁶ and above. Between 65504 and 2¹⁶ the rounding below carries into infinity by itself.
  if (exponent >= 143) return sign | 0x7c00;
  // Normal in f16, 2⁻¹⁴ and above.
  if (exponent >= 113) return sign | roundedShift(magnitude - (112 << 23), 13);
  // Subnormal, a whole number of 2⁻²⁴. Below 2⁻²⁵ everything is nearer to zero.
  if (exponent < 102) return sign;
  return sign | roundedShift((magnitude & 0x7f_ffff) | 0x80_0000, 126 - exponent);
}

function f32ToBf16Bits(bits: number): number {
  const isNotANumber = (bits & 0x7fff_ffff) > f32Infinity;
  // Rounding could carry a NaN's payload away; the quiet bit keeps it a NaN.
  return isNotANumber ? (bits >>> 16) | 0x40 : roundedShift(bits, 16);
}

/** `value` without its lowest `shift` bits, rounded to nearest, ties to even. */
export function roundedShift(value: number, shift: number): number {
  const isOdd = (value >>> shift) & 1;
  return (value + (1 << (shift - 1)) - 1 + isOdd) >>> shift;
}
