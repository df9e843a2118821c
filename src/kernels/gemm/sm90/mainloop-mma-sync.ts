/**
 * The mma.sync mainloop: small TF32 GEMMs with MN-major operands, from the same TMA tiles as wgmma. Fragment rows, columns and k can be
 * assigned to lanes in any way in which A and B agree on k. Here a lane loads and stores four neighbours at once, and eight lanes use
 * different banks.
 */

/** The consumer warps of a CTA: each computes a quarter of the tile. */
const [warpsM, warpsN] = [2, 2];

/** A warp accumulates blocks of 32 × 32; a lane has four rows from 4 · group on, and eight columns from 8 · member on. */
export const mmaSyncMainloop = `
  const unsigned lane = threadIdx.x % 32, group = lane / 4, member = lane % 4;
  constexpr unsigned blocksM = tileM / ${warpsM} / 32, blocksN = tileN / ${warpsN} / 32;
  const unsigned warpM = threadIdx.x / 32 / ${warpsN} * (32 * blocksM), warpN = threadIdx.x / 32 % ${warpsN} * (32 * blocksN);
  float acc[blocksM][blocksN][2][4][4];
#pragma unroll
  for (unsigned i = 0; i < blocksM * blocksN * 32; i++) (&acc[0][0][0][0][0])[i] = 0;
  for (unsigned kTile = 0; kTile < kTiles; kTile++) {
    const unsigned stage = kTile % stages;
    mbarrierWait(full + stage, kTile / stages % 2);
    const unsigned char* const tileA = stageTiles + stage * (TileA::bytes + TileB::bytes) + warpM / 32 * TileA::boxBytes;
    const unsigned char* const tileB = stageTiles + stage * (TileA::bytes + TileB::bytes) + TileA::bytes + warpN / 32 * TileB::boxBytes;
#pragma unroll
    for (unsigned kStep = 0; kStep < tileK; kStep += 8) {
      float rows[blocksM][2][4], columns[blocksN][2][4];
#pragma unroll
      for (unsigned half = 0; half < 2; half++) {
        const unsigned offset = TileA::swizzledOffset(kStep + 2 * member + half, group);
#pragma unroll
        for (unsigned i = 0; i < blocksM; i++) loadFloat4(rows[i][half], tileA + i * TileA::boxBytes + offset);
#pragma unroll
        for (unsigned j = 0; j < blocksN; j++) loadFloat4(columns[j][half], tileB + j * TileB::boxBytes + offset);
      }
#pragma unroll
      for (unsigned i = 0; i < blocksM; i++) {
#pragma unroll
        for (unsigned pair = 0; pair < 2; pair++) {
          const float fragmentA[4] = {rows[i][0][2 * pair], rows[i][0][2 * pair + 1], rows[i][1][2 * pair], rows[i][1][2 * pair + 1]};
#pragma unroll
          for (unsigned j = 0; j < blocksN; j++) {
#pragma unroll
            for (unsigned next = 0; next < 4; next++) {
              const float fragmentB[2] = {columns[j][0][next], columns[j][1][next]};
              mmaSync(acc[i][j][pair][next], fragmentA, fragmentB);
            }
          }
        }
      }
    }
    __syncwarp();
    if (lane == 0) mbarrierArrive(empty + stage);
  }`;

export const loadFloat4 = `
static __device__ __forceinline__ void loadFloat4(float (&values)[4], const unsigned char* smem) {
  const float4 vec = *reinterpret_cast<const float4*>(smem);
  values[0] = vec.x;
  values[1] = vec.y;
  values[2] = vec.z;
  values[3] = vec.w;
}`;

export const mmaSyncEpilogueStore = `
#pragma unroll
  for (unsigned i = 0; i < blocksM; i++) {
#pragma unroll
    for (unsigned blockRow = 0; blockRow < 4; blockRow++) {
      const int row = firstM + (int)(warpM + 32 * i + 4 * group + blockRow);
#pragma unroll
      for (unsigned j = 0; j < blocksN; j++) {
#pragma unroll
        for (unsigned half = 0; half < 2; half++) {
          const int column = firstN + (int)(warpN + 32 * j + 8 * member + 4 * half);
          if (row >= m || column >= n) continue;
          const auto& fragment = acc[i][j][blockRow / 2];
          const unsigned e = blockRow % 2 * 2 + half;
          *reinterpret_cast<float4*>(c + matrix * cBatch + (long long)row * cStride + column) =
              make_float4(fragment[0][e], fragment[1][e], fragment[2][e], fragment[3][e]);
        }
      }
    }
  }`;
