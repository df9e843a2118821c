/** What the forward and the backward kernel for short sequences are made of: C++ over the plan's constants. */

/** The plan's numbers, and what else is fixed when the code is printed, as constants: those that the code names. */
export function declareConstants(
  constants: Readonly<Record<string, number | boolean>>,
  ...code: readonly string[]
): string {
  const words = new Set(code.join("\n").match(/\w+/g));
  return Object.entries(constants)
    .filter(([name]) => words.has(name))
    .map(
      ([name, value]) =>
        `static constexpr ${typeof value === "number" ? "unsigned" : "bool"} ${name} = ${value};`,
    )
    .join("\n");
}

/**
 * `forTasks`: visit(task) for the thread's share of COUNT tasks.
 *
 * `Staged`: COUNT rows of LENGTH elements on their way to shared memory, where each is padded to whole vectors. `stage` asks
 * for them and `store` waits, so that everything is under way before the first wait; half floats are widened behind it.
 * Memory is a pointer to vectors, or to elements where rows don't lie on boundaries of vectors; strides count what it points
 * to. Results go to a pointer to stored ones.
 */
export const moveRows = `
template <unsigned COUNT, class Visit>
static __device__ __forceinline__ void forTasks(Visit visit) {
  for (unsigned round = 0; round < (COUNT + threads - 1) / threads; round++) {
    const unsigned task = round * threads + threadIdx.x;
    if (COUNT % threads == 0 || task < COUNT) visit(task, round);
  }
}

template <unsigned LENGTH>
static __device__ __forceinline__ Vector loadVector(const Vector* row, unsigned place) {
  return row[place];
}

template <unsigned LENGTH>
static __device__ __forceinline__ Vector loadVector(const Scalar* row, unsigned place) {
  Vector vector = zero();
  Scalar* parts = reinterpret_cast<Scalar*>(&vector);
  for (unsigned i = 0; i < lanes; i++) {
    if (place * lanes + i < LENGTH) parts[i] = row[place * lanes + i];
  }
  return vector;
}

template <unsigned LENGTH>
static __device__ __forceinline__ ushort4 loadVector(const ushort4* row, unsigned place) {
  return row[place];
}

template <unsigned LENGTH>
static __device__ __forceinline__ ushort4 loadVector(const unsigned short* row, unsigned place) {
  ushort4 vector = {0, 0, 0, 0};
  unsigned short* parts = reinterpret_cast<unsigned short*>(&vector);
  for (unsigned i = 0; i < lanes; i++) {
    if (place * lanes + i < LENGTH) parts[i] = row[place * lanes + i];
  }
  return vector;
}

template <unsigned LENGTH>
static __device__ __forceinline__ void storeVector(StoredVector* row, unsigned place, Vector vector) {
  row[place] = Rounding::of(vector);
}

template <unsigned LENGTH>
static __device__ __forceinline__ void storeVector(Stored* row, unsigned place, Vector vector) {
  const Scalar* parts = reinterpret_cast<const Scalar*>(&vector);
  for (unsigned i = 0; i < lanes; i++) {
    if (place * lanes + i < LENGTH) row[place * lanes + i] = Rounding::of(parts[i]);
  }
}

template <unsigned COUNT, unsigned LENGTH, class Held>
struct Staged {
  static constexpr unsigned perRow = (LENGTH + lanes - 1) / lanes;
  Held held[(COUNT * perRow + threads - 1) / threads];

  template <class Memory>
  __device__ __forceinline__ void load(const Memory* from, unsigned rowStride) {
    forTasks<COUNT * perRow>([&](unsigned task, unsigned round) {
      held[round] = loadVector<LENGTH>(from + (long long)(task / perRow) * rowStride, task % perRow);
    });
  }

  __device__ __forceinline__ void store(Vector* to, unsigned vectors) const {
    forTasks<COUNT * perRow>([&](unsigned task, unsigned round) {
      to[task / perRow * vectors + task % perRow] = Widening::of(held[round]);
    });
  }
};

template <unsigned COUNT, unsigned LENGTH, class Memory>
static __device__ __forceinline__ auto stage(const Memory* from, unsigned rowStride) {
  Staged<COUNT, LENGTH, decltype(loadVector<LENGTH>(from, 0u))> staged;
  staged.load(from, rowStride);
  return staged;
}`;

/**
 * `multiplyRows`: store(row, column, a[row] · b[column]) for every row and column, of VECTORS vectors each. A tile of
 * scores is summed by neighbouring lanes, each over its share of the vectors; then they exchange partial sums, half of
 * what they have at a time, until each has some of the tile's sums whole.
 */
export const multiplyRows = `
template <unsigned COUNT, unsigned SPLIT>
static __device__ __forceinline__ unsigned joinSums(Scalar* sums, unsigned part) {
  if constexpr (SPLIT == 1) {
    return 0;
  } else if constexpr (COUNT == 1) {
    sums[0] += __shfl_xor_sync(0xffffffffu, sums[0], SPLIT / 2);
    return joinSums<1, SPLIT / 2>(sums, part);
  } else {
    constexpr unsigned half = COUNT / 2;
    const bool isUpper = (part & (SPLIT / 2)) != 0;
    for (unsigned i = 0; i < half; i++) {
      const Scalar kept = isUpper ? sums[i + half] : sums[i];
      const Scalar given = isUpper ? sums[i] : sums[i + half];
      sums[i] = kept + __shfl_xor_sync(0xffffffffu, given, SPLIT / 2);
    }
    return (isUpper ? half : 0) + joinSums<half, SPLIT / 2>(sums, part);
  }
}

template <unsigned VECTORS, class Store>
static __device__ __forceinline__ void multiplyRows(const Vector* a, const Vector* b, Store store) {
  constexpr unsigned across = (columns + tileColumns - 1) / tileColumns;
  constexpr unsigned tiles = (rows + tileRows - 1) / tileRows * across;
  constexpr unsigned count = tileRows * tileColumns;
  constexpr unsigned whole = count > split ? count / split : 1;
  const unsigned part = threadIdx.x % split;
  for (unsigned round = 0; round < (tiles * split + threads - 1) / threads; round++) {
    // All lanes of a warp take part in the exchange: those with no tile of their own do the last one, for nobody.
    const unsigned own = (round * threads + threadIdx.x) / split;
    const unsigned tile = own < tiles ? own : tiles - 1;
    const unsigned firstRow = tile / across * tileRows, firstColumn = tile % across * tileColumns;
    Scalar sums[count];
    for (unsigned i = 0; i < count; i++) sums[i] = 0;
    for (unsigned step = 0; step < (VECTORS + split - 1) / split; step++) {
      const unsigned at = step * split + part;
      if (VECTORS % split == 0 || at < VECTORS) {
        Vector left[tileRows], right[tileColumns];
        for (unsigned r = 0; r < tileRows; r++) {
          const unsigned row = firstRow + r;
          left[r] = a[(rows % tileRows == 0 || row < rows ? row : rows - 1) * VECTORS + at];
        }
        for (unsigned c = 0; c < tileColumns; c++) {
          const unsigned column = firstColumn + c;
          right[c] = b[(columns % tileColumns == 0 || column < columns ? column : columns - 1) * VECTORS + at];
        }
        for (unsigned r = 0; r < tileRows; r++) {
          for (unsigned c = 0; c < tileColumns; c++) {
            sums[r * tileColumns + c] = dot(left[r], right[c], sums[r * tileColumns + c]);
          }
        }
      }
    }
    const unsigned first = joinSums<count, split>(sums, part);
    for (unsigned i = 0; i < whole; i++) {
      const unsigned row = firstRow + (first + i) / tileColumns, column = firstColumn + (first + i) % tileColumns;
      if (own < tiles && row < rows && column < columns) store(row, column, sums[i]);
    }
  }
}`;

/**
 * `sumTerms`: store(t, Σ weights[term, t] · from[term]) for the targets of a tile, over terms in their order. `weights`
 * and `from` stand at the tile's first target and at the vector's place in the first term.
 */
export const sumTerms = `
template <class Store>
static __device__ __forceinline__ void sumTerms(
    const Vector* weights, unsigned weightVectors, const Vector* from, unsigned fromVectors, unsigned terms, Store store) {
  Vector sums[targetTile];
  for (unsigned t = 0; t < targetTile; t++) sums[t] = zero();
  for (unsigned term = 0; term < terms; term++) {
    const Vector next = from[term * fromVectors];
    for (unsigned group = 0; group < targetTile / lanes; group++) {
      const Vector weight = weights[term * weightVectors + group];
      for (unsigned i = 0; i < lanes; i++) addWeighted(sums[group * lanes + i], partOf(weight, i), next);
    }
  }
  for (unsigned t = 0; t < targetTile; t++) store(t, sums[t]);
}`;

/**
 * `forRows`: visit(row, lane, isThere) for every row, `rowLanes` lanes each; all lanes of a warp come along, and those
 * behind the last row must touch nothing of it: its own lanes are at work there. `forLane`: visit(column, own) for a
 * lane's columns, and perhaps one more; `own` counts them.
 */
export const forRows = `
template <class Visit>
static __device__ __forceinline__ void forRows(Visit visit) {
  for (unsigned round = 0; round < (rows * rowLanes + threads - 1) / threads; round++) {
    const unsigned own = (round * threads + threadIdx.x) / rowLanes;
    visit(own < rows ? own : rows - 1, threadIdx.x % rowLanes, own < rows);
  }
}

static constexpr unsigned laneColumns = (columns + rowLanes - 1) / rowLanes;

template <class Visit>
static __device__ __forceinline__ void forLane(unsigned lane, Visit visit) {
  for (unsigned own = 0; own < laneColumns; own++) visit(own * rowLanes + lane, own);
}

static __device__ __forceinline__ unsigned seenBy(unsigned row) {
  return isCausal && row + 1 < columns ? row + 1 : columns;
}`;
