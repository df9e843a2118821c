/** TF32 on the host: the nearest float with ten fraction bits, ties away from zero, as cvt.rna.tf32 rounds. */

const float = new Float32Array(1);
const bits = new Uint32Array(float.buffer);

export function roundToTf32(value: number): number {
  float[0] = value;
  if (!Number.isFinite(float[0])) return float[0];
  bits[0] = ((bits[0] ?? 0) + 0x1000) & ~0x1fff;
  return float[0];
}
