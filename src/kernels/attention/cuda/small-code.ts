/** Device functions that the forward and backward kernels for short sequences share. */

/** Declares the constants of the plan that the code uses. */
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
 * `Staged`: COUNT rows of LENGTH elements in flight to shared memory, where rows are padded to whole vectors. `stage` issues the loads
 * and `store` uses them, so that all loads are in flight before the first wait; 16-bit elements are widened in `store`. Memory is a
 * pointer to vectors, or to elements if rows are not aligned to vectors; strides are in units of that type. `Row::store` stores a vector of
 * a result, or the part of the last one that is inside of the row.
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
static __device__ __forceinline__ Vector loadVector(const Vector* row, unsigned v) {
  return row[v];
}

template <unsigned LENGTH>
static __device__ __forceinline__ Vector loadVector(const Scalar* row, unsigned v) {
  Vector vector = zero();
  Scalar* components = reinterpret_cast<Scalar*>(&vector);
  for (unsigned i = 0; i < lanes; i++) {
    if (v * lanes + i < LENGTH) components[i] = row[v * lanes + i];
  }
  return vector;
}

template <unsigned LENGTH>
static __device__ __forceinline__ uint2 loadVector(const uint2* row, unsigned v) {
  return row[v];
}

template <unsigned LENGTH>
static __device__ __forceinline__ uint2 loadVector(const unsigned short* row, unsigned v) {
  const auto half = [&](unsigned i) { return v * lanes + i < LENGTH ? (unsigned)row[v * lanes + i] : 0u; };
  return {half(0) | half(1) << 16, half(2) | half(3) << 16};
}

struct Row {
  static __device__ __forceinline__ void store(StoredVector* row, unsigned, unsigned v, Vector vector) {
    row[v] = Rounding::of(vector);
  }

  static __device__ __forceinline__ void store(Stored* row, unsigned length, unsigned v, Vector vector) {
    const Scalar* components = reinterpret_cast<const Scalar*>(&vector);
    for (unsigned i = 0; i < lanes; i++) {
      if (v * lanes + i < length) row[v * lanes + i] = Rounding::of(components[i]);
    }
  }
};

template <unsigned COUNT, unsigned LENGTH, class Loaded>
struct Staged {
  static constexpr unsigned perRow = (LENGTH + lanes - 1) / lanes;
  Loaded vectors[(COUNT * perRow + threads - 1) / threads];

  template <class Memory>
  __device__ __forceinline__ void load(const Memory* from, unsigned rowStride) {
    if constexpr (threads % perRow == 0) {
      // A thread keeps its column and advances by whole rows.
      const Memory* const first = from + (long long)(threadIdx.x / perRow) * rowStride;
      forTasks<COUNT * perRow>([&](unsigned, unsigned round) {
        vectors[round] = loadVector<LENGTH>(first + (long long)round * (threads / perRow) * rowStride, threadIdx.x % perRow);
      });
    } else {
      forTasks<COUNT * perRow>([&](unsigned task, unsigned round) {
        vectors[round] = loadVector<LENGTH>(from + (long long)(task / perRow) * rowStride, task % perRow);
      });
    }
  }

  __device__ __forceinline__ void store(Vector* to) const {
    forTasks<COUNT * perRow>([&](unsigned task, unsigned round) { to[task] = Widening::of(vectors[round]); });
  }
};

template <unsigned COUNT, unsigned LENGTH, class Memory>
static __device__ __forceinline__ auto stage(const Memory* from, unsigned rowStride) {
  Staged<COUNT, LENGTH, decltype(loadVector<LENGTH>(from, 0u))> staged;
  staged.load(from, rowStride);
  return staged;
}`;

/**
 * `Team`: a few lanes of a warp that share ROWS rows, from `first` on. `lane` is the thread's lane in its team.
 *
 * `syncBlock` is a barrier for the block. `reduceTeam` reduces one value per row over the team's lanes (butterfly).
 */
export const declareTeam = `
template <unsigned ROWS, unsigned THREADS>
struct Team {
  const unsigned lane = threadIdx.x % teamLanes;
  const unsigned first = (THREADS == threads ? threadIdx.x : threadIdx.x % THREADS) / teamLanes * ROWS;

  /** True if the team's r-th row exists. */
  __device__ __forceinline__ bool has(unsigned r, unsigned count) const {
    return THREADS / teamLanes * ROWS == count || first + r < count;
  }
};

static __device__ __forceinline__ void syncBlock() {
  if (threads > 32) {
    __syncthreads();
  } else {
    __syncwarp();
  }
}

/** The value of the lane whose index differs in this bit. */
static __device__ __forceinline__ Scalar exchange(Scalar value, unsigned bit) {
  return __shfl_xor_sync(0xffffffffu, value, bit);
}

template <unsigned ROWS, class Combine>
static __device__ __forceinline__ void reduceTeam(Scalar (&values)[ROWS], Combine combine) {
  for (unsigned bit = teamLanes / 2; bit > 0; bit /= 2) {
    for (unsigned r = 0; r < ROWS; r++) values[r] = combine(values[r], exchange(values[r], bit));
  }
}`;

/**
 * `multiplyRows`: store(r, column, rows[r] · matrix[column]) for the team's rows and its group's share of the columns, all of LENGTH
 * elements. Each lane accumulates its share of the vectors; then lanes exchange halves of their partials (reduce-scatter) until each
 * has some complete dot products. The loop is not unrolled: a warp runs it once, and instruction fetches would dominate.
 *
 * `loadTeamRows` loads the team's rows of [rows, LENGTH]; those after the last row are 0.
 */
export const multiplyRows = `
template <unsigned LENGTH>
struct Share {
  static constexpr unsigned vectors = (LENGTH + lanes - 1) / lanes, steps = (vectors + teamLanes - 1) / teamLanes;
  static constexpr bool isEven = vectors % teamLanes == 0;
};

template <unsigned LENGTH, class Loaded>
struct TeamRows {
  Loaded vectors[teamRows][Share<LENGTH>::steps];
};

template <unsigned LENGTH, class Memory>
static __device__ __forceinline__ auto loadTeamRows(
    const Memory* from, unsigned rowStride, Team<teamRows, groupThreads> team) {
  TeamRows<LENGTH, decltype(loadVector<LENGTH>(from, 0u))> loaded = {};
  const Memory* const first = from + (long long)team.first * rowStride;
  for (unsigned r = 0; r < teamRows; r++) {
    for (unsigned step = 0; step < Share<LENGTH>::steps; step++) {
      const unsigned v = step * teamLanes + team.lane;
      const bool exists = team.has(r, rows) && (Share<LENGTH>::isEven || v < Share<LENGTH>::vectors);
      if (exists) loaded.vectors[r][step] = loadVector<LENGTH>(first + (long long)r * rowStride, v);
    }
  }
  return loaded;
}

/** Reduce-scatter of acc[COLUMNS, ROWS] over LANES lanes. */
template <unsigned COLUMNS, unsigned ROWS, unsigned LANES, class Store>
static __device__ __forceinline__ void reduceScatter(Scalar* acc, unsigned r, unsigned column, unsigned lane, Store store) {
  constexpr unsigned count = COLUMNS * ROWS, half = count / 2;
  if constexpr (LANES == 1) {
    #pragma unroll
    for (unsigned i = 0; i < count; i++) store(r + i % ROWS, column + i / ROWS, acc[i]);
  } else if constexpr (count % 2 == 1) {
    for (unsigned i = 0; i < count; i++) acc[i] += exchange(acc[i], LANES / 2);
    reduceScatter<COLUMNS, ROWS, LANES / 2>(acc, r, column, lane, store);
  } else {
    const bool isUpper = (lane & (LANES / 2)) != 0;
    for (unsigned i = 0; i < half; i++) {
      const Scalar local = isUpper ? acc[i + half] : acc[i];
      const Scalar peer = isUpper ? acc[i] : acc[i + half];
      acc[i] = local + exchange(peer, LANES / 2);
    }
    if constexpr (COLUMNS > 1) {
      reduceScatter<COLUMNS / 2, ROWS, LANES / 2>(acc, r, column + (isUpper ? COLUMNS / 2 : 0), lane, store);
    } else {
      reduceScatter<1, ROWS / 2, LANES / 2>(acc, r + (isUpper ? ROWS / 2 : 0), column, lane, store);
    }
  }
}

template <unsigned LENGTH, class Loaded, class Store>
static __device__ __forceinline__ void multiplyRows(
    const TeamRows<LENGTH, Loaded>& teamRow, const Vector* from, unsigned group, unsigned lane, Store store) {
  typedef Share<LENGTH> Each;
  constexpr unsigned count = columnsPerRound * teamRows, columnsOfAllGroups = columnsPerRound * groups;
  constexpr bool isEven = columns % columnsOfAllGroups == 0;
  Vector left[teamRows][Each::steps];
  for (unsigned r = 0; r < teamRows; r++) {
    for (unsigned step = 0; step < Each::steps; step++) left[r][step] = Widening::of(teamRow.vectors[r][step]);
  }
  #pragma unroll 1
  for (unsigned round = 0; round < (columns + columnsOfAllGroups - 1) / columnsOfAllGroups; round++) {
    const unsigned firstColumn = round * columnsOfAllGroups + group * columnsPerRound;
    Scalar acc[count];
    for (unsigned i = 0; i < count; i++) acc[i] = 0;
    for (unsigned c = 0; c < columnsPerRound; c++) {
      const unsigned next = firstColumn + c, column = isEven || next < columns ? next : columns - 1;
      for (unsigned step = 0; step < Each::steps; step++) {
        const unsigned v = step * teamLanes + lane;
        if (Each::isEven || v < Each::vectors) {
          const Vector right = from[column * Each::vectors + v];
          for (unsigned r = 0; r < teamRows; r++) {
            acc[c * teamRows + r] = dot(left[r][step], right, acc[c * teamRows + r]);
          }
        }
      }
    }
    reduceScatter<columnsPerRound, teamRows, teamLanes>(
        acc, 0, firstColumn, lane, [&](unsigned r, unsigned column, Scalar sum) {
          if (isEven || column < columns) store(r, column, sum);
        });
  }
}`;

/**
 * `multiplyWeights`: store(t, v, Σ_k weights[t, k] · matrix[k]) for TARGETS targets, in the order of k. A row of the matrix has `vectors`
 * vectors, of which a lane has at most STEPS. `weights` points to the first target.
 */
export const multiplyWeights = `
template <unsigned TARGETS, unsigned STEPS, class Store>
static __device__ __forceinline__ void multiplyWeights(
    const Vector* weights, unsigned kSize, const Vector* from, unsigned vectors, unsigned lane, Store store) {
  const unsigned kVectors = (kSize + lanes - 1) / lanes;
  Vector acc[TARGETS][STEPS];
  for (unsigned t = 0; t < TARGETS; t++) {
    for (unsigned step = 0; step < STEPS; step++) acc[t][step] = zero();
  }
  #pragma unroll 1
  for (unsigned next = 0; next < kVectors; next++) {
    Vector weight[TARGETS];
    for (unsigned t = 0; t < TARGETS; t++) weight[t] = weights[t * kVectors + next];
    for (unsigned i = 0; i < lanes; i++) {
      const unsigned k = next * lanes + i;
      if (kSize % lanes == 0 || k < kSize) {
        for (unsigned step = 0; step < STEPS; step++) {
          const unsigned v = step * teamLanes + lane;
          if (v < vectors) {
            const Vector added = from[k * vectors + v];
            for (unsigned t = 0; t < TARGETS; t++) axpy(acc[t][step], laneOf(weight[t], i), added);
          }
        }
      }
    }
  }
  for (unsigned t = 0; t < TARGETS; t++) {
    for (unsigned step = 0; step < STEPS; step++) {
      const unsigned v = step * teamLanes + lane;
      if (v < vectors) store(t, v, acc[t][step]);
    }
  }
}`;

/**
 * `forScores`: visit(r, s, isVisible) for the lane's scores: the s-th of the team's r-th row. `scoreOffset` is its offset in
 * [rows, stride] from the lane's first score. Unrolled, so that arrays of scores stay in registers.
 */
export const forScores = `
static constexpr unsigned laneColumns = (columns + teamLanes - 1) / teamLanes;

static __device__ __forceinline__ constexpr unsigned scoreOffset(unsigned r, unsigned s, unsigned stride) {
  return r * stride + s * teamLanes;
}

template <unsigned ROWS, unsigned THREADS, class Visit>
static __device__ __forceinline__ void forScores(Team<ROWS, THREADS> team, Visit visit) {
  #pragma unroll
  for (unsigned r = 0; r < ROWS; r++) {
    const unsigned row = team.first + r, visible = isCausal && row + 1 < columns ? row + 1 : columns;
    #pragma unroll
    for (unsigned s = 0; s < laneColumns; s++) {
      const unsigned column = s * teamLanes + team.lane;
      if (columns % teamLanes == 0 || column < columns) visit(r, s, column < visible);
    }
  }
}`;
