/**
 * The building blocks of attention over sequences of any length: tiled GEMMs, with the scores in global memory between them. A block
 * computes a strip of rows or columns of one (batch, head). Every dot product is accumulated in the order of k.
 */

import { warpSize } from "../../cost-model.js";

/** Rows or columns of a strip; also the edge of a GEMM tile. */
export const stripLength = 64;
export const tiledThreads = 256;
/** K of a tile in shared memory. */
const tileK = 16;

/**
 * `Matrix`: an operand whose element [row, k] is at `row · rowStride + k · kStride`.
 *
 * `multiply`: store(row, column, Σ_k a[row, k] · b[column, k]) for up to a strip of rows and any N and K, through the block's `Tiles` in
 * shared memory. All threads of the block take part.
 */
export const multiplyTiles = `
static constexpr unsigned strip = ${stripLength}, tileK = ${tileK}, threads = ${tiledThreads};
// A thread computes threadTile × threadTile elements of a tile.
static constexpr unsigned threadTile = 4, threadsN = strip / threadTile;

template <class Element>
struct Matrix {
  const Element* data;
  long long rowStride, kStride;
};

template <class Element>
static __device__ __forceinline__ Matrix<Element> matrixOf(const Element* at, long long rowStride, long long kStride) {
  return {at, rowStride, kStride};
}

// A k-tile of a strip, [tileK, strip], padded against bank conflicts.
typedef Vector Tile[tileK][strip / lanes + 1];
struct Tiles {
  Tile a, b;
};

// Zeros outside of the matrix. Neighbouring threads load neighbouring elements.
template <class Element>
static __device__ __forceinline__ void loadTile(Tile& smem, const Matrix<Element>& from, unsigned rows, unsigned kSize) {
  const bool isKMajor = from.kStride == 1;
  for (unsigned index = threadIdx.x; index < strip * tileK; index += threads) {
    const unsigned row = isKMajor ? index / tileK : index % strip, k = isKMajor ? index % tileK : index / strip;
    const bool exists = row < rows && k < kSize;
    reinterpret_cast<Scalar*>(smem[k])[row] = exists ? Widening::of(from.data[row * from.rowStride + k * from.kStride]) : 0;
  }
}

template <class Left, class Right, class Store>
static __device__ __forceinline__ void multiply(
    Tiles& tiles, const Matrix<Left>& a, const Matrix<Right>& b, unsigned rows, unsigned columns, unsigned kSize, Store store) {
  const unsigned firstRow = threadIdx.x / threadsN * threadTile, firstColumn = threadIdx.x % threadsN * threadTile;
  for (unsigned start = 0; start < columns; start += strip) {
    Scalar acc[threadTile][threadTile];
    for (unsigned i = 0; i < threadTile; i++) {
      for (unsigned j = 0; j < threadTile; j++) acc[i][j] = 0;
    }
    for (unsigned firstK = 0; firstK < kSize; firstK += tileK) {
      const Matrix<Left> nextA = {a.data + firstK * a.kStride, a.rowStride, a.kStride};
      const Matrix<Right> nextB = {b.data + start * b.rowStride + firstK * b.kStride, b.rowStride, b.kStride};
      __syncthreads();
      loadTile(tiles.a, nextA, rows, kSize - firstK);
      loadTile(tiles.b, nextB, columns - start, kSize - firstK);
      __syncthreads();
      for (unsigned k = 0; k < tileK; k++) {
        Vector left[threadTile / lanes], right[threadTile / lanes];
        for (unsigned i = 0; i < threadTile / lanes; i++) {
          left[i] = tiles.a[k][firstRow / lanes + i];
          right[i] = tiles.b[k][firstColumn / lanes + i];
        }
        for (unsigned i = 0; i < threadTile; i++) {
          for (unsigned j = 0; j < threadTile; j++) {
            acc[i][j] = multiplyAdd(laneOf(left[i / lanes], i % lanes), laneOf(right[j / lanes], j % lanes), acc[i][j]);
          }
        }
      }
    }
    for (unsigned i = 0; i < threadTile; i++) {
      for (unsigned j = 0; j < threadTile; j++) {
        const unsigned row = firstRow + i, column = start + firstColumn + j;
        if (row < rows && column < columns) store(row, column, acc[i][j]);
      }
    }
  }
}`;

/** `forRows`: visit(row, lane) for every row of a strip, one warp each. `visibleColumns`: how many columns a row attends to. */
export const forStripRows = `
template <class Visit>
static __device__ __forceinline__ void forRows(unsigned rows, Visit visit) {
  for (unsigned row = threadIdx.x / ${warpSize}; row < rows; row += threads / ${warpSize}) visit(row, threadIdx.x % ${warpSize});
}

static __device__ __forceinline__ unsigned visibleColumns(unsigned row, unsigned columns, unsigned isCausal) {
  return isCausal != 0 && row + 1 < columns ? row + 1 : columns;
}`;
