/** C++: the sums of a bf16x6 GEMM are reduced over a cluster that splits K, scaled, and stored. */

import type { Bf16x6Config } from "./configs.js";
import { consumers } from "./mainloop.js";

/** Each CTA of the cluster owns some of a thread's vectors of four sums. It receives the others' in memory that no CTA reads any more. */
const exchange = (splits: number): string => `
  constexpr unsigned slots = 16 / ${splits};
  float4* const received = reinterpret_cast<float4*>(smem) + threadIdx.x;
  auto vecOf = [&](unsigned vec) { return make_float4(sums[4 * vec], sums[4 * vec + 1], sums[4 * vec + 2], sums[4 * vec + 3]); };
  clusterArrive();
  clusterWait();
#pragma unroll
  for (unsigned to = 0; to < ${splits}; to++) {
    if (to == rank) continue;
    float4* const sent = mapaShared(received + rank * (slots * ${consumers}), to);
#pragma unroll
    for (unsigned slot = 0; slot < slots; slot++) sent[slot * ${consumers}] = vecOf(to * slots + slot);
  }
  clusterArrive();
  clusterWait();
  auto total = [&](unsigned slot) {
    float4 own = vecOf(slot);
#pragma unroll
    for (unsigned of = 1; of < ${splits}; of++)
      if (of == rank) own = vecOf(of * slots + slot);
    float4 sum = rank == 0 ? own : received[slot * ${consumers}];
#pragma unroll
    for (unsigned from = 1; from < ${splits}; from++) {
      const float4 next = from == rank ? own : received[(from * slots + slot) * ${consumers}];
      sum = make_float4(sum.x + next.x, sum.y + next.y, sum.z + next.z, sum.w + next.w);
    }
    return sum;
  };`;

const ownTotal = `
  constexpr unsigned slots = 16, rank = 0;
  auto total = [&](unsigned vec) { return make_float4(sums[4 * vec], sums[4 * vec + 1], sums[4 * vec + 2], sums[4 * vec + 3]); };`;

export const epilogueStore = ({ hasBias, readsC, storesVectors, splitsK }: Bf16x6Config): string => `${
  splitsK > 1 ? exchange(splitsK) : ownTotal
}
  auto placeOf = [&](int row, int column) { return c + matrix * cBatch + (long long)row * cStride + column; };
  auto finish = [&](float sum, ${readsC ? "int row, int column" : hasBias ? "int, int column" : "int, int"}) {
    sum *= alpha;
    ${readsC ? "sum = fmaf(beta, *placeOf(row, column), sum);" : ""}
    ${hasBias ? "sum += bias[matrix * biasBatch + column];" : ""}
    return sum;
  };
  const int firstColumn = firstN + rank * slots * 8 + member * 2, firstRow = firstM + laneRow;
  unsigned notFinite = 0;
#pragma unroll
  for (unsigned slot = 0; slot < slots; slot++) {
    const float4 four = total(slot);
    const float pairs[2][2] = {{four.x, four.y}, {four.z, four.w}};
    const int column = firstColumn + 8 * slot;
#pragma unroll
    for (unsigned other = 0; other < 2; other++) {
      const int row = firstRow + other * otherRow;
      const float first = pairs[other][0], second = pairs[other][1];
      if (!(fabsf(first) + fabsf(second) < __uint_as_float(0x7f800000u))) {
        notFinite |= 1u << (2 * slot + other);
      } else if (row < m && column < n) {
        float* const result = placeOf(row, column);
        ${
          storesVectors
            ? `if (column + 1 < n) *reinterpret_cast<float2*>(result) = make_float2(finish(first, row, column), finish(second, row, column + 1));
        else *result = finish(first, row, column);`
            : `*result = finish(first, row, column);
        if (column + 1 < n) result[1] = finish(second, row, column + 1);`
        }
      }
    }
  }
  // An infinity or NaN in A or B makes some of its terms NaN, and so all sums of its row or column. The largest floats round to an infinite
  // term. Pairs with such a sum are computed again in float32.
#pragma unroll 1
  for (; notFinite != 0; notFinite &= notFinite - 1) {
    const unsigned pair = __ffs(notFinite) - 1;
    const int row = firstRow + pair % 2 * otherRow;
    if (row >= m) continue;
#pragma unroll 1
    for (int column = firstColumn + 8 * (pair / 2), next = 0; next < 2 && column < n; next++, column++) {
      const float* const left = aElements + matrix * aBatch + (isAKMajor ? (long long)row * aStride : row);
      const float* const right = bElements + matrix * bBatch + (isBKMajor ? (long long)column * bStride : column);
      float sum = 0;
#pragma unroll 1
      for (long long i = 0; i < k && sum == sum; i++)
        sum = fmaf(left[i * (isAKMajor ? 1 : aStride)], right[i * (isBKMajor ? 1 : bStride)], sum);
      *placeOf(row, column) = finish(sum, row, column);
    }
  }`;
