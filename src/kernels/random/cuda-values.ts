/** Values of distributions in CUDA C++: the operations and their order are those of the reference on the host. No multiply-add is fused. */

import type { CudaCode, Parameter } from "../../driver/index.js";
import { cudaKernel } from "../codegen/cuda/cuda-function.js";
import { elementTypes } from "../codegen/cuda/element-types.js";
import { counter, seed } from "../codegen/cuda/intrinsics/philox.js";
import { preludeOf } from "../codegen/cuda/prelude.js";
import type { Distribution, Integers } from "./distribution.js";
import { centralSquare, centralWidth, farTail, nearShift, quantiles } from "./inverse-normal.js";
import { atanhCoefficients, cosineCoefficients, sineCoefficients } from "./normal.js";
import { uses } from "./random-stream.js";

const device = "static __device__ __forceinline__";

/** A double that C++ reads as the same bits. */
function literal(value: number): string {
  const text = String(value);
  return /[.e]/.test(text) ? text : `${text}.0`;
}

/** Horner's rule, as an expression. */
function powerSeries(coefficients: readonly number[], x: string): string {
  return coefficients.map(literal).reduceRight((sum, coefficient) => `(${sum} * ${x} + ${coefficient})`);
}

const logarithm = `
${device} double logarithm(double x) {
  const unsigned long long bits = (unsigned long long)__double_as_longlong(x);
  const double mantissa = __longlong_as_double((long long)((bits & 0xfffffffffffffull) | 0x3fe0000000000000ull));
  const int exponent = (int)(bits >> 52) - 1022;
  const bool isSmall = mantissa < ${literal(Math.SQRT1_2)};
  const double near = isSmall ? mantissa * 2.0 : mantissa;
  const double s = (near - 1.0) / (near + 1.0), square = s * s;
  return (isSmall ? exponent - 1 : exponent) * ${literal(Math.LN2)} + 2.0 * s * ${powerSeries(atanhCoefficients, "square")};
}`;

/** Two words to two values. */
const standardPair = `
${device} float2 standardPair(unsigned radiusWord, unsigned angleWord) {
  const double radius = sqrt(-2.0 * logarithm((radiusWord + 1.0) * ${literal(2 ** -32)}));
  const unsigned quarters = (angleWord + 0x20000000u) >> 30;
  const double angle = (int)(angleWord - (quarters << 30)) * ${literal(Math.PI / 2 ** 31)};
  const double square = angle * angle;
  const double s = angle * ${powerSeries(sineCoefficients, "square")};
  const double c = ${powerSeries(cosineCoefficients, "square")};
  const double cosine = quarters & 1 ? s : c, sine = quarters & 1 ? c : s;
  const bool isLeft = quarters == 1 || quarters == 2;
  return {(float)(radius * (isLeft ? -cosine : cosine)), (float)(radius * (quarters & 2 ? -sine : sine))};
}`;

function rational(name: keyof typeof quantiles, x: string, factor = ""): string {
  const { numerator, denominator } = quantiles[name];
  return `(${factor}${powerSeries(numerator, x)}) / ${powerSeries(denominator, x)}`;
}

const inverseNormalCdf = `
${device} double inverseNormalCdf(double p) {
  const double q = p - 0.5;
  if (fabs(q) <= ${literal(centralWidth)}) {
    const double rest = ${literal(centralSquare)} - q * q;
    return ${rational("central", "rest", "q * ")};
  }
  const double r = sqrt(-logarithm(q < 0.0 ? p : 1.0 - p));
  double distance;
  if (r > ${literal(farTail)}) {
    const double far = r - ${literal(farTail)};
    distance = ${rational("far", "far")};
  } else {
    const double near = r - ${literal(nearShift)};
    distance = ${rational("near", "near")};
  }
  return q < 0.0 ? -distance : distance;
}`;

/** The kinds of values that a kernel draws. */
export type ValueKind = Distribution["kind"] | Integers["kind"];

/** What each distribution declares before its kernel, and how it sets the four values of the words `four`. */
const kinds: Readonly<Record<ValueKind, { declarations: string; values: string }>> = {
  uniform: {
    declarations: "",
    values: `
  const unsigned words[4] = {four.x, four.y, four.z, four.w};
  for (int i = 0; i < 4; i++) values[i] = (float)(a + b * ((words[i] >> 8) * ${literal(2 ** -24)}));`,
  },
  normal: {
    declarations: logarithm + standardPair,
    values: `
  const float2 first = standardPair(four.x, four.y), second = standardPair(four.z, four.w);
  values[0] = (float)(a + b * first.x);
  values[1] = (float)(a + b * first.y);
  values[2] = (float)(a + b * second.x);
  values[3] = (float)(a + b * second.y);`,
  },
  truncNormal: {
    declarations: logarithm + inverseNormalCdf,
    values: `
  const unsigned words[4] = {four.x, four.y, four.z, four.w};
  for (int i = 0; i < 4; i++) {
    const double value = a + b * inverseNormalCdf(c + d * ((words[i] + 0.5) * ${literal(2 ** -32)}));
    const double raised = value < low ? low : value;
    values[i] = (float)(raised > high ? high : raised);
  }`,
  },
  exponential: {
    declarations: logarithm,
    values: `
  const unsigned words[4] = {four.x, four.y, four.z, four.w};
  for (int i = 0; i < 4; i++) values[i] = (float)(a * logarithm((words[i] + 0.5) * ${literal(2 ** -32)}));`,
  },
  integers: {
    declarations: "",
    values: `
  const unsigned words[4] = {four.x, four.y, four.z, four.w};
  for (int i = 0; i < 4; i++) values[i] = a + (unsigned)((unsigned long long)words[i] * b >> 32);`,
  },
};

/** The stream of a launch: its arguments, or a draw in memory. */
export type StreamSource = "arguments" | "draw";

/** Each thread computes four values. */
export function valuesCode(
  kind: ValueKind,
  dtype: "f32" | "f64" | "bf16" | "f16" | "i32",
  source: StreamSource,
  parameters: Readonly<Record<string, Parameter>>,
  valuesPerBlock: number,
): CudaCode {
  const threads = valuesPerBlock / 4;
  const { type, narrow } = elementTypes[dtype];
  const { declarations, values } = kinds[kind];
  const isDraw = source === "draw";
  const stream = isDraw
    ? `${uses.draws}u, ${[counter, counter + 1, seed, seed + 1].map((word) => `draw[${word}]`).join(", ")}`
    : `${uses.values}u, idLow, idHigh, seedLow, seedHigh`;
  return cudaKernel({
    name: `${kind} ${dtype}${isDraw ? " of a draw" : ""}`,
    parameters,
    elements: type,
    ...(isDraw && { pointers: { draw: "unsigned" } }),
    threads,
    declarations: `${preludeOf(new Set(narrow ? [narrow, "philox"] : ["philox"]))}${declarations}`,
    body: `
  const unsigned long long at = (blockIdx.x * ${threads}ull + threadIdx.x) * 4;
  if (at >= count) return;
  const uint4 four = philox(firstCounter + (unsigned)(at / 4), ${stream});
  ${dtype === "i32" ? "unsigned" : "float"} values[4];${values}
  for (int i = 0; i < 4; i++)
    if (at + i < count) out[at + i] = ${narrow ? `${narrow}(values[i])` : "values[i]"};`,
  }).cuda;
}
