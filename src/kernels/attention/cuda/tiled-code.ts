/**
 * The form for sequences of any length: products in tiles, with scores in memory between them. A block makes a strip of
 * one pair's rows, or columns. Every sum runs in the order of its terms, whatever the sizes.
 */

/** Rows, or columns, in the strip of a block; its products are made in tiles of so many squared. */
export const stripLength = 64;
export const tiledThreads = 256;
/** Terms that lie in shared memory at once. */
const depth = 16;
const warp = 32;

/**
 * `Matrix`: an operand whose element [row, term] lies at `row · rowStride + term · termStride`.
 *
 * `multiply`: store(row, column, Σ a[row, term] · b[column, term]) for up to a strip of rows, and any number of columns
 * and terms, by way of the block's `Tiles` in shared memory. All threads of the block take part.
 */
export const multiplyTiles = `
static constexpr unsigned strip = ${stripLength}, depth = ${depth}, threads = ${tiledThreads};
// A thread makes so many rows by so many columns of a tile.
static constexpr unsigned part = 4, across = strip / part;

template <class Element>
struct Matrix {
  const Element* at;
  long long rowStride, termStride;
};

template <class Element>
static __device__ __forceinline__ Matrix<Element> matrixOf(const Element* at, long long rowStride, long long termStride) {
  return {at, rowStride, termStride};
}

// A strip's elements of some terms, [terms, strip], with room against conflicts of banks.
typedef Vector Tile[depth][strip / lanes + 1];
struct Tiles {
  Tile a, b;
};

// What is not there becomes 0. Neighbouring threads take what lies side by side.
template <class Element>
static __device__ __forceinline__ void bring(Tile& to, const Matrix<Element>& from, unsigned rows, unsigned terms) {
  const bool isAcross = from.termStride == 1;
  for (unsigned own = threadIdx.x; own < strip * depth; own += threads) {
    const unsigned row = isAcross ? own / depth : own % strip, term = isAcross ? own % depth : own / strip;
    const bool isThere = row < rows && term < terms;
    reinterpret_cast<Scalar*>(to[term])[row] = isThere ? Widening::of(from.at[row * from.rowStride + term * from.termStride]) : 0;
  }
}

template <class Left, class Right, class Store>
static __device__ __forceinline__ void multiply(
    Tiles& tiles, const Matrix<Left>& a, const Matrix<Right>& b, unsigned rows, unsigned columns, unsigned terms, Store store) {
  const unsigned firstRow = threadIdx.x / across * part, firstColumn = threadIdx.x % across * part;
  for (unsigned start = 0; start < columns; start += strip) {
    Scalar sums[part][part];
    for (unsigned i = 0; i < part; i++) {
      for (unsigned j = 0; j < part; j++) sums[i][j] = 0;
    }
    for (unsigned done = 0; done < terms; done += depth) {
      const Matrix<Left> nextA = {a.at + done * a.termStride, a.rowStride, a.termStride};
      const Matrix<Right> nextB = {b.at + start * b.rowStride + done * b.termStride, b.rowStride, b.termStride};
      __syncthreads();
      bring(tiles.a, nextA, rows, terms - done);
      bring(tiles.b, nextB, columns - start, terms - done);
      __syncthreads();
      for (unsigned term = 0; term < depth; term++) {
        Vector left[part / lanes], right[part / lanes];
        for (unsigned i = 0; i < part / lanes; i++) {
          left[i] = tiles.a[term][firstRow / lanes + i];
          right[i] = tiles.b[term][firstColumn / lanes + i];
        }
        for (unsigned i = 0; i < part; i++) {
          for (unsigned j = 0; j < part; j++) {
            sums[i][j] = fused(partOf(left[i / lanes], i % lanes), partOf(right[j / lanes], j % lanes), sums[i][j]);
          }
        }
      }
    }
    for (unsigned i = 0; i < part; i++) {
      for (unsigned j = 0; j < part; j++) {
        const unsigned row = firstRow + i, column = start + firstColumn + j;
        if (row < rows && column < columns) store(row, column, sums[i][j]);
      }
    }
  }
}`;

/** `forRows`: visit(row, lane) for every row of a strip, a warp each. `seenBy`: how many columns a row sees. */
export const forStripRows = `
template <class Visit>
static __device__ __forceinline__ void forRows(unsigned rows, Visit visit) {
  for (unsigned row = threadIdx.x / ${warp}; row < rows; row += threads / ${warp}) visit(row, threadIdx.x % ${warp});
}

static __device__ __forceinline__ unsigned seenBy(unsigned row, unsigned columns, unsigned isCausal) {
  return isCausal != 0 && row + 1 < columns ? row + 1 : columns;
}`;
