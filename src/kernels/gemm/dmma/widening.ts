/**
 * C++: floats become doubles. "convert" is an instruction that an SM executes for few lanes at once. "bits" takes integer instructions, for
 * finite floats; a CTA that has read another value starts again with "convert". Both have the same bits.
 */

export type Widening = "convert" | "bits";

const convert = `
struct Convert {
  static __device__ __forceinline__ double ofA(float value) { return value; }
  static __device__ __forceinline__ double ofB(float value) { return value; }
  static __device__ __forceinline__ void probe(float, const float (&)[4]) {}
};`;

/**
 * A shift moves the bits of a finite float x to their places in a double, whose exponent has a bias that is larger by 896. So the double is
 * x · 2⁻⁸⁹⁶, exactly, also for zeros and subnormal floats. Products of two such doubles would underflow. So those of B are multiplied by
 * 2¹⁰²³, and sums are 2⁻⁷⁶⁹ times those of the floats. Nothing underflows: the last bit of a product of floats is at least 2⁻²⁹⁸, and
 * the smallest double is 2⁻¹⁰⁷⁴.
 */
const moveBits = `
struct MoveBits {
  static __device__ __forceinline__ double ofA(float value) {
    const int bits = __float_as_int(value);
    return __hiloint2double((bits >> 3) & 0x8fffffff, bits << 29);
  }
  static __device__ __forceinline__ double ofB(float value) { return ofA(value) * 0x1p1023; }
  // \`sum\` stays finite only if all values are finite: an infinity or NaN stays in a sum of products.
  static __device__ __forceinline__ void probe(float& sum, const float (&values)[4]) {
    sum = fmaf(values[0], values[1], fmaf(values[2], values[3], sum));
  }
};
static constexpr double unscaled = 0x1p769;`;

export function declareWidening(widening: Widening): string {
  return widening === "bits" ? `${convert}\n${moveBits}` : convert;
}

/** C++: `acc` by bits, or by conversion if a float of this CTA is not finite. `accumulateWith` is the mainloop by a struct. */
export const accumulateByBits = (accumulateWith: (widening: string) => string): string => `
  __shared__ unsigned isNonFinite;
  if (threadIdx.x == 0) isNonFinite = 0;
  // Barriers of the loop are between the stores of 0 and of 1.
${accumulateWith("MoveBits")}
  if (!(fabsf(probe) < 0x1p127f)) isNonFinite = 1;
  __syncthreads();
  if (isNonFinite) {
${accumulateWith("Convert")}
  } else {
#pragma unroll
    for (unsigned i = 0; i < blocksM; i++) {
#pragma unroll
      for (unsigned j = 0; j < blocksN; j++) {
#pragma unroll
        for (unsigned e = 0; e < 8; e++) acc[i][j][e / 4][e % 4] *= unscaled;
      }
    }
  }`;
