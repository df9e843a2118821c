/**
 * Approximate functions of f32, for kernels of steps in TF32 and bf16: their errors are far below the rounding of the operands of matrix
 * products. A few instructions replace the branches of the CUDA math library. Kernels in f32 precision never call them.
 *
 * Infinities and large arguments give the exact limits, such as tanh(±1e4) = ±1. NaN stays NaN, and tanh(−0) is −0. Results below 2^-126
 * are zeros.
 */

import { device, type Intrinsic, onlyOnDevice } from "./intrinsic.js";

/** The maximum relative error of each function, over all floats whose exact result is at least 2^-126. */
export const fastMathErrors = {
  /** The rounding of x · log2(e), which is at most 128. */
  exp: 2 ** -17,
  sigmoid: 2 ** -17,
  tanh: 2 ** -20,
  /** The error of the fit. */
  normalCdf: 2 ** -14,
} as const;

/** ex2.approx: a relative error of at most 2^-22; −Infinity gives 0. */
export const ex2Approx = `${device} float ex2Approx(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}`;

/** lg2.approx: an absolute error of 2^-22 between 1/2 and 2, and a relative error of 2^-21 elsewhere. */
export const lg2Approx = `${device} float lg2Approx(float x) {
  float result;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}`;

/** rcp.approx: an error of at most one ulp. Results below 2^-126 are zeros. */
export const rcpApprox = `${device} float rcpApprox(float x) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}`;

/** exp(−x²/2) is 2 to the power of this times x². */
const power = Math.fround(-0.5 * Math.LOG2E);

export const fastMathIntrinsics = {
  ex2Approx: { code: onlyOnDevice(ex2Approx) },
  rcpApprox: { code: onlyOnDevice(rcpApprox) },
  /** x < limit ? below : above. The compiler would branch around the computation of one of them, which divides warps and vectors. */
  selectBelow: {
    code: onlyOnDevice(`${device} float selectBelow(float x, float limit, float below, float above) {
  float result;
  asm("{\\n.reg .pred isBelow;\\nsetp.lt.f32 isBelow, %1, %2;\\nselp.f32 %0, %3, %4, isBelow;\\n}"
      : "=f"(result) : "f"(x), "f"(limit), "f"(below), "f"(above));
  return result;
}`),
  },
  fast_exp_f32: {
    needs: ["ex2Approx"],
    code: `${device} float fast_exp_f32(float x) { return ex2Approx(x * 1.44269504f); }`,
  },
  fast_sigmoid_f32: {
    needs: ["ex2Approx", "rcpApprox"],
    code: `${device} float fast_sigmoid_f32(float x) { return rcpApprox(ex2Approx(x * -1.44269504f) + 1.0f); }`,
  },
  /** 1 − 2 / (exp(2x) + 1). This cancels near 0, so there it is x · (1 + x² · P(x²)), fitted for |x| < 1/2 to 2^-20.5. */
  fast_tanh_f32: {
    needs: ["ex2Approx", "rcpApprox", "selectBelow"],
    code: `${device} float fast_tanh_f32(float x) {
  const float square = x * x;
  const float p = fmaf(fmaf(-0.0447504293f, square, 0.132053535f), square, -0.33328159f);
  const float far = fmaf(-2.0f, rcpApprox(ex2Approx(x * 2.88539008f) + 1.0f), 1.0f);
  return selectBelow(fabsf(x), 0.5f, x * fmaf(p, square, 1.0f), far);
}`,
  },
  /**
   * Φ(−|x|) = exp(−x²/2) · P(t), with t = 1 / (1 + p |x|): the form of Abramowitz and Stegun 26.2.17. P is fitted to the least relative
   * error for |x| < 14, so that Φ keeps its digits far below 0. The power is computed as in the density, which shares the instructions.
   */
  fast_normal_cdf_f32: {
    needs: ["ex2Approx", "rcpApprox"],
    code: `${device} float fast_normal_cdf_f32(float x) {
  const float t = rcpApprox(fmaf(0.376517102f, fabsf(x), 1.0f));
  const float p = fmaf(fmaf(fmaf(fmaf(-0.0909661865f, t, 0.197949762f), t, 0.0853010073f), t, 0.158008336f), t, 0.149692841f);
  const float tail = ex2Approx(x * x * ${power}f) * (p * t);
  return x < 0.0f ? tail : 1.0f - tail;
}`,
  },
} satisfies Record<string, Intrinsic>;
