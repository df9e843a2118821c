/** C++: copies of the k-tiles of both operands from global to shared memory, as floats. */

import type { ConvolutionDirection } from "../problem.js";
import { tileK } from "./configs.js";

/** `copyElement`: one element, or 0. f32 is copied asynchronously; 16-bit floats pass through a register. */
export function declareCopyElement(isAsync: boolean): string {
  return `static __device__ __forceinline__ void copyElement(float* smem, const Element* matrix, unsigned offset, bool isInside) {
  ${isAsync ? "cpAsync<4>(smem, matrix + (isInside ? offset : 0), isInside ? 4 : 0);" : "*smem = isInside ? Conversion::widen(matrix[offset]) : 0.0f;"}
}`;
}

/**
 * `loadMatrix`: A[firstM…, k…], which is K-major in shared memory. A lane has one k, or four neighbours if they are neighbours in memory
 * and aligned; a warp has one row at a time, or four.
 */
export function loadMatrix(direction: ConvolutionDirection, copiesVectors: boolean): string {
  const offset = {
    forward: "index",
    "input-gradient": "windows.tapOffset(index, matrixStride * m, kernelWidth)",
    "weight-gradient": "windows.otherOffset(index)",
  }[direction];
  const lanes = copiesVectors ? tileK / 4 : tileK;
  const copy = copiesVectors
    ? "cpAsync<16>(tile + row * strideA + inTile, matrix + (isInside ? offset + (firstM + row) * matrixStride : 0), isInside ? 16 : 0);"
    : "copyElement(tile + row * strideA + inTile, matrix, offset + (firstM + row) * matrixStride, isInside);";
  return `
  auto loadMatrix = [&](float* tile, unsigned kTile) {
    const unsigned inTile = lane % ${lanes} * ${copiesVectors ? 4 : 1}, index = kTile * tileK + inTile;
    const unsigned offset = index < k ? ${offset} : 0;
#pragma unroll
    for (unsigned row = warp * ${32 / lanes} + lane / ${lanes}; row < tileM; row += warps * ${32 / lanes}) {
      const bool isInside = index < k && firstM + row < m;
      ${copy}
    }
  };`;
}

/**
 * `loadImage`: B, gathered. Lanes have positions, which are neighbours in memory, and a warp has one tap at a time. In shared memory a
 * row has the positions of one tap: B is N-major if positions are columns, and K-major if they are k.
 */
export function loadImage(direction: ConvolutionDirection): string {
  if (direction === "weight-gradient") {
    return `
  __shared__ Place taps[tileN];
  for (unsigned column = threadIdx.x; column < tileN; column += 32 * warps) taps[column] = windows.tapOf(firstN + column, n);
  __syncthreads();
  auto loadImage = [&](float* tile, unsigned kTile) {
    const Place place = windows.placeOf(kTile * tileK + lane, k);
#pragma unroll 4
    for (unsigned column = warp; column < tileN; column += warps) {
      const Place tap = taps[column];
      copyElement(tile + column * strideB + lane, image, place.offset + tap.offset, windows.contains(place, tap));
    }
  };`;
  }
  return `
  Place places[tileN / 32];
#pragma unroll
  for (unsigned part = 0; part < tileN / 32; part++) places[part] = windows.placeOf(firstN + 32 * part + lane, n);
  auto loadImage = [&](float* tile, unsigned kTile) {
#pragma unroll 2
    for (unsigned row = warp; row < tileK; row += warps) {
      const Place tap = windows.tapOf(kTile * tileK + row, k);
#pragma unroll
      for (unsigned part = 0; part < tileN / 32; part++) {
        float* const element = tile + row * strideB + 32 * part + lane;
        copyElement(element, image, places[part].offset + tap.offset, windows.contains(places[part], tap));
      }
    }
  };`;
}
