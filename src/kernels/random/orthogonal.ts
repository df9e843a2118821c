/**
 * Random orthogonal matrices, uniform over all of them: the first vectors of a product of Householder reflections H₀ · H₁ · …, where
 * Hₖ is of a random normal vector whose first k elements are zero (Stewart, "The efficient generation of random orthogonal matrices", 1980).
 * This is the Q of the QR decomposition of a normal matrix, with a positive diagonal of R, but needs no decomposition.
 *
 * The vectors of the result are independent of each other, and every sum has a fixed order. So a device computes them in parallel, with
 * the bits of this reference.
 */

import { normal } from "./normal.js";
import type { RandomStream } from "./random-stream.js";

/** A sum of products has one partial sum per lane of a warp: lane l adds the elements l, l + 32, … */
export const lanes = 32;

/** `count` orthonormal vectors of `length` elements, at least as many, each padded with zeros to `stride` elements. */
export interface OrthogonalShape {
  readonly count: number;
  readonly length: number;
  readonly stride: number;
}

/** The shorter side of a matrix is the number of its orthonormal vectors. */
export function orthogonalShape(rows: number, columns: number): OrthogonalShape {
  const length = Math.max(rows, columns);
  return { count: Math.min(rows, columns), length, stride: lanes * Math.ceil(length / lanes) };
}

/**
 * A row-major [rows, columns] matrix whose rows are orthogonal, or whose columns are if it has more rows. Each has the norm `gain`.
 *
 * ```js
 * orthogonal(2, 2, 1, { seed: 42, id: 1 }); // Float32Array(4), a rotation or reflection
 * ```
 */
export function orthogonal(
  rows: number,
  columns: number,
  gain: number,
  stream: RandomStream,
): Float32Array<ArrayBuffer> {
  const shape = orthogonalShape(rows, columns);
  const { count, length, stride } = shape;
  const reflectors = normal(stream, count * stride);
  for (let k = 0; k < count; k++)
    scaleReflector(reflectors.subarray(k * stride, (k + 1) * stride), k, length);
  const matrix = new Float32Array(rows * columns);
  for (let j = 0; j < count; j++) {
    const vector = reflectUnit(reflectors, shape, j, gain);
    for (let i = 0; i < length; i++)
      matrix[rows <= columns ? j * columns + i : i * columns + j] = vector[i] ?? 0;
  }
  return matrix;
}

/**
 * Replaces the elements of a normal vector from `first` on by the w of the reflection I − w · wᵀ. The sum is in f64, in the order of the
 * elements.
 */
function scaleReflector(vector: Float32Array, first: number, length: number): void {
  let sum = 0;
  for (let i = first; i < length; i++) sum += (vector[i] ?? 0) * (vector[i] ?? 0);
  // A vector of zeros has no direction; it becomes the unit vector of its first element.
  const pivot = sum > 0 ? (vector[first] ?? 0) : 1;
  if (!(sum > 0)) sum = 1;
  const norm = Math.sqrt(sum);
  const scale = 1 / Math.sqrt(sum + Math.abs(pivot) * norm);
  for (let i = 0; i < vector.length; i++) vector[i] = i > first && i < length ? (vector[i] ?? 0) * scale : 0;
  vector[first] = (pivot < 0 ? pivot - norm : pivot + norm) * scale;
}

/** H₀ · … · Hⱼ · eⱼ, with the sign of the drawn vector j and the norm `gain`. */
function reflectUnit(
  reflectors: Float32Array,
  { stride }: OrthogonalShape,
  j: number,
  gain: number,
): Float32Array {
  const vector = new Float32Array(stride);
  vector[j] = 1;
  const partial = new Float32Array(lanes);
  for (let k = j; k >= 0; k--) {
    const row = k * stride;
    const start = k - (k % lanes);
    partial.fill(0);
    for (let i = start; i < stride; i++) {
      const lane = i % lanes;
      partial[lane] = (partial[lane] ?? 0) + Math.fround((reflectors[row + i] ?? 0) * (vector[i] ?? 0));
    }
    for (let half = lanes / 2; half >= 1; half /= 2)
      for (let lane = 0; lane < half; lane++)
        partial[lane] = (partial[lane] ?? 0) + (partial[lane + half] ?? 0);
    const product = partial[0] ?? 0;
    for (let i = start; i < stride; i++)
      vector[i] = (vector[i] ?? 0) - Math.fround(product * (reflectors[row + i] ?? 0));
  }
  const scale = (reflectors[j * stride + j] ?? 0) < 0 ? gain : -gain;
  for (let i = 0; i < stride; i++) vector[i] = scale * (vector[i] ?? 0);
  return vector;
}
