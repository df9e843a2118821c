/**
 * Small products of floats whose terms lie apart in both operands, which warpgroups multiply from large tiles only: each warp by itself, as
 * TF32, from the same tiles. Which of C's rows and columns a lane has in an instruction is free to choose, and so are its terms: they are such that a lane
 * loads four neighbours at a time, eight lanes from different banks, and stores four.
 */

/** A block's warps, each with a quarter of its tile. */
const [warpsDown, warpsAcross] = [2, 2];

export const warpInstructions = `// sums[16, 8] += left[16, 8] · right[8, 8], spread over a warp, with the bits that TF32 has of floats; others are not looked at.
static __device__ __forceinline__ void multiplyAdd(float (&sums)[4], const float (&left)[4], const float (&right)[2]) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(__float_as_uint(left[0])), "r"(__float_as_uint(left[1])), "r"(__float_as_uint(left[2])),
        "r"(__float_as_uint(left[3])), "r"(__float_as_uint(right[0])), "r"(__float_as_uint(right[1])));
}`;

/** Pieces of 32 × 32, of which a lane has four rows from 4 · group on, and eight columns from 8 · member on. */
export const mmaSyncMainloop = `
  const unsigned lane = threadIdx.x % 32, group = lane / 4, member = lane % 4;
  constexpr unsigned down = tileRows / ${warpsDown} / 32, across = tileColumns / ${warpsAcross} / 32;
  const unsigned top = threadIdx.x / 32 / ${warpsAcross} * (32 * down), side = threadIdx.x / 32 % ${warpsAcross} * (32 * across);
  float sums[down][across][2][4][4];
#pragma unroll
  for (unsigned i = 0; i < down * across * 32; i++) (&sums[0][0][0][0][0])[i] = 0;
  for (unsigned step = 0; step < steps; step++) {
    const unsigned stage = step % stages;
    mbarrierWait(full + stage, step / stages % 2);
    const unsigned char* const left = tiles + stage * (Left::bytes + Right::bytes) + top / 32 * Left::boxBytes;
    const unsigned char* const right = tiles + stage * (Left::bytes + Right::bytes) + Left::bytes + side / 32 * Right::boxBytes;
#pragma unroll
    for (unsigned term = 0; term < depth; term += 8) {
      float rows[down][2][4], columns[across][2][4];
#pragma unroll
      for (unsigned half = 0; half < 2; half++) {
        const unsigned place = Left::placeOf(term + 2 * member + half, group);
#pragma unroll
        for (unsigned i = 0; i < down; i++) loadFour(rows[i][half], left + i * Left::boxBytes + place);
#pragma unroll
        for (unsigned j = 0; j < across; j++) loadFour(columns[j][half], right + j * Right::boxBytes + place);
      }
#pragma unroll
      for (unsigned i = 0; i < down; i++) {
#pragma unroll
        for (unsigned pair = 0; pair < 2; pair++) {
          const float own[4] = {rows[i][0][2 * pair], rows[i][0][2 * pair + 1], rows[i][1][2 * pair], rows[i][1][2 * pair + 1]};
#pragma unroll
          for (unsigned j = 0; j < across; j++) {
#pragma unroll
            for (unsigned near = 0; near < 4; near++) {
              const float others[2] = {columns[j][0][near], columns[j][1][near]};
              multiplyAdd(sums[i][j][pair][near], own, others);
            }
          }
        }
      }
    }
    __syncwarp();
    if (lane == 0) mbarrierArrive(free + stage);
  }`;

export const loadingFours = `
static __device__ __forceinline__ void loadFour(float (&floats)[4], const unsigned char* from) {
  const float4 four = *reinterpret_cast<const float4*>(from);
  floats[0] = four.x;
  floats[1] = four.y;
  floats[2] = four.z;
  floats[3] = four.w;
}`;

export const storeMmaSync = `
#pragma unroll
  for (unsigned i = 0; i < down; i++) {
#pragma unroll
    for (unsigned which = 0; which < 4; which++) {
      const int row = firstRow + (int)(top + 32 * i + 4 * group + which);
#pragma unroll
      for (unsigned j = 0; j < across; j++) {
#pragma unroll
        for (unsigned half = 0; half < 2; half++) {
          const int column = firstColumn + (int)(side + 32 * j + 8 * member + 4 * half);
          if (row >= m || column >= n) continue;
          const auto& own = sums[i][j][which / 2];
          const unsigned e = which % 2 * 2 + half;
          *reinterpret_cast<float4*>(c + product * cBatch + (long long)row * cStride + column) =
              make_float4(own[0][e], own[1][e], own[2][e], own[3][e]);
        }
      }
    }
  }`;
