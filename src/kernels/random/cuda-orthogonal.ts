/** The kernels of random orthogonal matrices in CUDA C++. No multiply-add is fused. */

import type { CudaCode } from "../../driver/index.js";
import { cudaKernel } from "../codegen/cuda/cuda-function.js";
import { lanes } from "./orthogonal.js";

/** A thread per row: its sum has the order of the elements. */
export function scaleReflectorsCode(rowsPerBlock: number): CudaCode {
  return cudaKernel({
    name: "scaleReflectors",
    parameters: { reflectors: "inout", count: "u32", length: "u32", stride: "u32" },
    elements: "float",
    threads: lanes,
    body: `
  const unsigned row = blockIdx.x * ${rowsPerBlock}u + threadIdx.x;
  if (threadIdx.x >= ${rowsPerBlock}u || row >= count) return;
  float* vector = reflectors + (size_t)row * stride;
  double sum = 0.0;
  for (unsigned i = row; i < length; i++) sum += (double)vector[i] * vector[i];
  double pivot = vector[row];
  if (!(sum > 0.0)) pivot = sum = 1.0;
  const double norm = sqrt(sum);
  const double scale = 1.0 / sqrt(sum + fabs(pivot) * norm);
  for (unsigned i = 0; i < stride; i++) vector[i] = i > row && i < length ? (float)(vector[i] * scale) : 0.0f;
  vector[row] = (float)((pivot < 0.0 ? pivot - norm : pivot + norm) * scale);`,
  }).cuda;
}

/** A warp per vector; a lane reads and writes its own elements only. */
export function reflectUnitsCode(rowsPerBlock: number): CudaCode {
  return cudaKernel({
    name: "reflectUnits",
    parameters: { vectors: "out", reflectors: "in", count: "u32", stride: "u32", gain: "f64" },
    elements: "float",
    threads: lanes * rowsPerBlock,
    body: `
  const unsigned row = blockIdx.x * ${rowsPerBlock}u + threadIdx.x / ${lanes}u, lane = threadIdx.x % ${lanes}u;
  if (row >= count) return;
  float* vector = vectors + (size_t)row * stride;
  for (unsigned i = lane; i < stride; i += ${lanes}u) vector[i] = i == row ? 1.0f : 0.0f;
  for (unsigned k = row + 1; k-- > 0;) {
    const float* reflector = reflectors + (size_t)k * stride;
    const unsigned first = k - k % ${lanes}u + lane;
    float sum = 0.0f;
    for (unsigned i = first; i < stride; i += ${lanes}u) sum += reflector[i] * vector[i];
    for (int mask = ${lanes / 2}; mask > 0; mask >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, mask);
    for (unsigned i = first; i < stride; i += ${lanes}u) vector[i] -= sum * reflector[i];
  }
  const double scale = reflectors[(size_t)row * stride + row] < 0.0f ? gain : -gain;
  for (unsigned i = lane; i < stride; i += ${lanes}u) vector[i] = (float)(scale * vector[i]);`,
  }).cuda;
}
