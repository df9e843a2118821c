/**
 * Approximate functions of f32, for kernels of steps in TF32 and bf16: their errors are far below the rounding of the operands of matrix
 * products. A few instructions replace the branches of the CUDA math library. Kernels in f32 precision never call them.
 *
 * Infinities and large arguments give the exact limits, such as tanh(±1e4) = ±1. NaN stays NaN, and tanh(−0) is −0. Results below 2^-126
 * are zeros, and derivatives below 2^-117.
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
  /** The rounding of the power, which is at most 128. */
  tanhCdf: 2 ** -16,
  /** These derivatives are sums Φ + x · Φ′ that cancel: their errors are relative to Φ + |x| · Φ′. */
  geluDerivative: 2 ** -14,
  geluTanhDerivative: 2 ** -16,
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
/** The density of a normal variable at 0, as a power of 2. */
const log2Density = Math.fround(-0.5 * Math.log2(2 * Math.PI));

/** GELU's approximation of Φ(x) is sigmoid(slope · x + cubic · x³). */
const slope = 2 * Math.sqrt(2 / Math.PI);
const cubic = slope * 0.044715;
/** The same as 1 / (1 + 2 to the power of x · (powerSlope + powerCubic · x²)). */
const [powerSlope, powerCubic] = [slope, cubic].map((factor) => Math.fround(-factor * Math.LOG2E));

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
  /**
   * Φ(x) + x · φ(x), the derivative of GELU. For −|x| it is φ(x) · (R − |x|). R is Mills' ratio, t · P(t) as above. The limit changes no
   * result: it only keeps 0 · ∞ out.
   */
  fast_gelu_derivative_f32: {
    needs: ["min_f32", "ex2Approx", "rcpApprox"],
    code: `${device} float fast_gelu_derivative_f32(float x) {
  const float size = min_f32(fabsf(x), 16.0f);
  const float t = rcpApprox(fmaf(0.459821552f, size, 1.0f));
  const float p = fmaf(fmaf(fmaf(-0.29826166f, t, 0.734392861f), t, 0.345125714f), t, 0.472028574f);
  const float density = ex2Approx(fmaf(size * size, ${power}f, ${log2Density}f));
  const float tail = density * fmaf(p, t, -size);
  return x < 0.0f ? tail : 1.0f - tail;
}`,
  },
  /** sigmoid(2 √(2/π) · (x + 0.044715 x³)), which the tanh approximation of GELU takes for Φ(x). */
  fast_tanh_cdf_f32: {
    needs: ["ex2Approx", "rcpApprox"],
    code: `${device} float fast_tanh_cdf_f32(float x) {
  return rcpApprox(ex2Approx(x * fmaf(x * x, ${powerCubic}f, ${powerSlope}f)) + 1.0f);
}`,
  },
  /** s + x · s′ with that sigmoid s, as s + s · (1 − s) · x · u′. The limit changes no result: it only keeps 0 · ∞ out. */
  fast_gelu_tanh_derivative_f32: {
    needs: ["min_f32", "max_f32", "ex2Approx", "rcpApprox"],
    code: `${device} float fast_gelu_tanh_derivative_f32(float x) {
  const float near = max_f32(min_f32(x, 16.0f), -16.0f), square = near * near;
  const float s = rcpApprox(ex2Approx(near * fmaf(square, ${powerCubic}f, ${powerSlope}f)) + 1.0f);
  const float change = near * fmaf(square, ${Math.fround(3 * cubic)}f, ${Math.fround(slope)}f);
  return fmaf(s, fmaf(-s, change, change), s);
}`,
  },
} satisfies Record<string, Intrinsic>;
