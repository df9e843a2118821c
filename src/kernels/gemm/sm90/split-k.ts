/**
 * Split-K over the CTAs of a cluster: each accumulates a range of the k-tiles of the same tile of C. In the SS mainloop each CTA then
 * reduces one slice of the accumulators, which the others send it through distributed shared memory. A slice is summed in the order of the
 * ranks, so the bits never depend on timing.
 */

/** Which share of K this CTA accumulates. */
export const splitKRank = (splits: number): string => `
  const unsigned rank = cta % ${splits};
  cta /= ${splits};`;

/** The k-tiles of this CTA, after those of the ranks before it. A CTA may have none. */
export const splitKTiles = (splits: number): string => `
  const unsigned allKTiles = (k + tileK - 1) / tileK, firstKTile = rank * allKTiles / ${splits};
  const unsigned kTiles = (rank + 1) * allKTiles / ${splits} - firstKTile;`;

/** The number of cluster barriers in `storeFromRegisters`: all threads of the cluster take part in them. */
export const splitKBarriers = 2;

/** A thread's accumulators as vectors of four: two neighbouring columns in one row, and in the row that is eight below. */
const vectors = (splits: number): string => `
  constexpr unsigned vecsPerRow = mmaN / 8, vecs = mmaM * vecsPerRow, slots = (vecs + ${splits - 1}) / ${splits};
  auto vecOf = [&](unsigned vec) {
    const unsigned i = vec / vecsPerRow, e = vec % vecsPerRow * 4;
    return make_float4(acc[i][e], acc[i][e + 1], acc[i][e + 2], acc[i][e + 3]);
  };`;

/** Sends the slices of the other ranks. The stages receive slices as soon as no CTA of the cluster reads them any more. */
const exchange = (splits: number): string => `
  float4* const received = reinterpret_cast<float4*>(stageTiles) + threadIdx.x;
  clusterArrive();
  clusterWait();
#pragma unroll
  for (unsigned to = 0; to < ${splits}; to++) {
    if (to == rank) continue;
    float4* const sent = mapaShared(received + rank * (slots * consumers), to);
#pragma unroll
    for (unsigned slot = 0; slot < slots; slot++)
      if (to * slots + slot < vecs) sent[slot * consumers] = vecOf(to * slots + slot);
  }
  clusterArrive();
  clusterWait();
  auto reduced = [&](unsigned slot) {
    float4 own = vecOf(slot);
#pragma unroll
    for (unsigned of = 1; of < ${splits}; of++)
      if (of == rank && of * slots + slot < vecs) own = vecOf(of * slots + slot);
    float4 sum = rank == 0 ? own : received[slot * consumers];
#pragma unroll
    for (unsigned from = 1; from < ${splits}; from++) {
      const float4 next = from == rank ? own : received[(from * slots + slot) * consumers];
      sum = make_float4(sum.x + next.x, sum.y + next.y, sum.z + next.z, sum.w + next.w);
    }
    return sum;
  };`;

/** C++: stores C from registers, after the reduction if a cluster splits K. Four lanes store the 32-byte sector of a row. */
export const storeFromRegisters = (splits: number): string => `${vectors(splits)}${
  splits > 1 ? exchange(splits) : ""
}
  const unsigned lane = threadIdx.x % 32, firstVec = ${splits > 1 ? "rank * slots" : "0"};
  const int firstRow = firstM + warpgroupM + threadIdx.x % 128 / 32 * 16 + lane / 4;
  const int firstColumn = firstN + warpgroupN + lane % 4 * 2;
  float* const result = c + matrix * cBatch + (long long)firstRow * cStride + firstColumn;
#pragma unroll
  for (unsigned slot = 0; slot < slots; slot++) {
    if (firstVec + slot >= vecs) break;
    const float4 sums = ${splits > 1 ? "reduced" : "vecOf"}(slot);
    const int row = (firstVec + slot) / vecsPerRow * 64, column = (firstVec + slot) % vecsPerRow * 8;
    if (firstColumn + column >= n) continue;
    float* const upper = result + (long long)row * cStride + column;
    if (firstRow + row < m) *reinterpret_cast<float2*>(upper) = make_float2(sums.x, sums.y);
    if (firstRow + row + 8 < m) *reinterpret_cast<float2*>(upper + 8ll * cStride) = make_float2(sums.z, sums.w);
  }`;
