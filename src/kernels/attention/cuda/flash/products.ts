/** The products of flash attention: of two tiles in shared memory, and of accumulators with a tile. */

/** C++: the products of a warp's rows with a visited tile, over the tile's depth or over its rows. `unroll` is a pragma. */
export function declareProducts(unroll: string): string {
  return `
// acc[row, visited] += Σ_d stay[row, d] · visit[visited, d]
template <unsigned size>
static __device__ __forceinline__ void multiply(
    Real (&acc)[blocksM][tileN / 8][4], const Element* stay, unsigned warpRow, const Element* visit) {
${unroll}
  for (unsigned k = 0; k < size; k += mmaK) {
    Fragments::A a[blocksM];
#pragma unroll
    for (unsigned i = 0; i < blocksM; i++) Fragments::loadA<size + padding>(a[i], stay, warpRow + 16 * i, k);
#pragma unroll
    for (unsigned j = 0; j < tileN / 16; j++) {
      Fragments::B b;
      Fragments::loadB<size + padding>(b, visit, 16 * j, k);
#pragma unroll
      for (unsigned i = 0; i < blocksM; i++) {
        Fragments::multiply(acc[i][2 * j], a[i], b[0]);
        Fragments::multiply(acc[i][2 * j + 1], a[i], b[1]);
      }
    }
  }
}

// result[row, d] += Σ_visited acc[row, visited] · visit[visited, d]
template <unsigned size>
static __device__ __forceinline__ void multiplyAccumulators(
    Real (&result)[blocksM][size / 8][4], const Real (&acc)[blocksM][tileN / 8][4], const Element* visit) {
#pragma unroll
  for (unsigned step = 0; step < tileN / mmaK; step++) {
    Fragments::A a[blocksM];
#pragma unroll
    for (unsigned i = 0; i < blocksM; i++) Fragments::pack(a[i], acc[i], step);
#pragma unroll
    for (unsigned j = 0; j < size / 16; j++) {
      Fragments::B b;
      Fragments::loadTransposedB<size + padding>(b, visit, mmaK * step, 16 * j);
#pragma unroll
      for (unsigned i = 0; i < blocksM; i++) {
        Fragments::multiply(result[i][2 * j], a[i], b[0]);
        Fragments::multiply(result[i][2 * j + 1], a[i], b[1]);
      }
    }
  }
}`;
}
