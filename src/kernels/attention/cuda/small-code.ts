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
 * to. `Row::store` stores a vector of a result, and of the last one what is there of so many elements.
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
static __device__ __forceinline__ uint2 loadVector(const uint2* row, unsigned place) {
  return row[place];
}

template <unsigned LENGTH>
static __device__ __forceinline__ uint2 loadVector(const unsigned short* row, unsigned place) {
  const auto half = [&](unsigned i) { return place * lanes + i < LENGTH ? (unsigned)row[place * lanes + i] : 0u; };
  return {half(0) | half(1) << 16, half(2) | half(3) << 16};
}

struct Row {
  static __device__ __forceinline__ void store(StoredVector* row, unsigned, unsigned place, Vector vector) {
    row[place] = Rounding::of(vector);
  }

  static __device__ __forceinline__ void store(Stored* row, unsigned length, unsigned place, Vector vector) {
    const Scalar* parts = reinterpret_cast<const Scalar*>(&vector);
    for (unsigned i = 0; i < lanes; i++) {
      if (place * lanes + i < length) row[place * lanes + i] = Rounding::of(parts[i]);
    }
  }
};

template <unsigned COUNT, unsigned LENGTH, class Held>
struct Staged {
  static constexpr unsigned perRow = (LENGTH + lanes - 1) / lanes;
  Held held[(COUNT * perRow + threads - 1) / threads];

  template <class Memory>
  __device__ __forceinline__ void load(const Memory* from, unsigned rowStride) {
    if constexpr (threads % perRow == 0) {
      // A thread stays at its place in the rows, and steps over as many rows each time.
      const Memory* const first = from + (long long)(threadIdx.x / perRow) * rowStride;
      forTasks<COUNT * perRow>([&](unsigned, unsigned round) {
        held[round] = loadVector<LENGTH>(first + (long long)round * (threads / perRow) * rowStride, threadIdx.x % perRow);
      });
    } else {
      forTasks<COUNT * perRow>([&](unsigned task, unsigned round) {
        held[round] = loadVector<LENGTH>(from + (long long)(task / perRow) * rowStride, task % perRow);
      });
    }
  }

  __device__ __forceinline__ void store(Vector* to) const {
    forTasks<COUNT * perRow>([&](unsigned task, unsigned round) { to[task] = Widening::of(held[round]); });
  }
};

template <unsigned COUNT, unsigned LENGTH, class Memory>
static __device__ __forceinline__ auto stage(const Memory* from, unsigned rowStride) {
  Staged<COUNT, LENGTH, decltype(loadVector<LENGTH>(from, 0u))> staged;
  staged.load(from, rowStride);
  return staged;
}`;

/**
 * `Team`: what a thread's team owns where each of THREADS threads' teams owns ROWS rows, from `first` on; and which of the
 * team's lanes the thread is.
 *
 * `meet` waits for all threads of the block. `reduceTeam` joins a number for each of the team's rows over its lanes.
 */
export const declareTeam = `
template <unsigned ROWS, unsigned THREADS>
struct Team {
  const unsigned lane = threadIdx.x % teamLanes;
  const unsigned first = (THREADS == threads ? threadIdx.x : threadIdx.x % THREADS) / teamLanes * ROWS;

  /** Is the team's r-th row there, of so many? */
  __device__ __forceinline__ bool has(unsigned r, unsigned count) const {
    return THREADS / teamLanes * ROWS == count || first + r < count;
  }
};

static __device__ __forceinline__ void meet() {
  if (threads > 32) {
    __syncthreads();
  } else {
    __syncwarp();
  }
}

/** What the lane of the same team has whose number differs in this bit. */
static __device__ __forceinline__ Scalar exchange(Scalar value, unsigned bit) {
  return __shfl_xor_sync(0xffffffffu, value, bit);
}

template <unsigned ROWS, class Join>
static __device__ __forceinline__ void reduceTeam(Scalar (&values)[ROWS], Join join) {
  for (unsigned bit = teamLanes / 2; bit > 0; bit /= 2) {
    for (unsigned r = 0; r < ROWS; r++) values[r] = join(values[r], exchange(values[r], bit));
  }
}`;

/**
 * `multiplyRows`: store(r, column, own[r] · from[column]) for the team's rows and its group's share of the columns, all of
 * LENGTH elements. Each lane sums over its share of the vectors; then lanes exchange partial sums, half of what they have at
 * a time while that goes, until each has some of the sums whole. Its loop stays one: a warp runs it once, and must fetch all
 * of it.
 *
 * `loadOwn` asks for the team's rows of [rows, LENGTH]; those behind the last one are 0.
 */
export const multiplyRows = `
template <unsigned LENGTH>
struct Share {
  static constexpr unsigned vectors = (LENGTH + lanes - 1) / lanes, steps = (vectors + teamLanes - 1) / teamLanes;
  static constexpr bool isEven = vectors % teamLanes == 0;
};

template <unsigned LENGTH, class Held>
struct OwnRows {
  Held held[teamRows][Share<LENGTH>::steps];
};

template <unsigned LENGTH, class Memory>
static __device__ __forceinline__ auto loadOwn(
    const Memory* from, unsigned rowStride, Team<teamRows, groupThreads> team) {
  OwnRows<LENGTH, decltype(loadVector<LENGTH>(from, 0u))> own = {};
  const Memory* const first = from + (long long)team.first * rowStride;
  for (unsigned r = 0; r < teamRows; r++) {
    for (unsigned step = 0; step < Share<LENGTH>::steps; step++) {
      const unsigned place = step * teamLanes + team.lane;
      const bool isThere = team.has(r, rows) && (Share<LENGTH>::isEven || place < Share<LENGTH>::vectors);
      if (isThere) own.held[r][step] = loadVector<LENGTH>(first + (long long)r * rowStride, place);
    }
  }
  return own;
}

/** Of sums[COLUMNS, ROWS], from a column and a row on: LANES lanes have a part of each. */
template <unsigned COLUMNS, unsigned ROWS, unsigned LANES, class Store>
static __device__ __forceinline__ void combineAccumulators(Scalar* sums, unsigned r, unsigned column, unsigned lane, Store store) {
  constexpr unsigned count = COLUMNS * ROWS, half = count / 2;
  if constexpr (LANES == 1) {
    #pragma unroll
    for (unsigned i = 0; i < count; i++) store(r + i % ROWS, column + i / ROWS, sums[i]);
  } else if constexpr (count % 2 == 1) {
    for (unsigned i = 0; i < count; i++) sums[i] += exchange(sums[i], LANES / 2);
    combineAccumulators<COLUMNS, ROWS, LANES / 2>(sums, r, column, lane, store);
  } else {
    const bool isUpper = (lane & (LANES / 2)) != 0;
    for (unsigned i = 0; i < half; i++) {
      const Scalar kept = isUpper ? sums[i + half] : sums[i];
      const Scalar given = isUpper ? sums[i] : sums[i + half];
      sums[i] = kept + exchange(given, LANES / 2);
    }
    if constexpr (COLUMNS > 1) {
      combineAccumulators<COLUMNS / 2, ROWS, LANES / 2>(sums, r, column + (isUpper ? COLUMNS / 2 : 0), lane, store);
    } else {
      combineAccumulators<1, ROWS / 2, LANES / 2>(sums, r + (isUpper ? ROWS / 2 : 0), column, lane, store);
    }
  }
}

template <unsigned LENGTH, class Held, class Store>
static __device__ __forceinline__ void multiplyRows(
    const OwnRows<LENGTH, Held>& own, const Vector* from, unsigned group, unsigned lane, Store store) {
  typedef Share<LENGTH> Each;
  constexpr unsigned count = columnsAtOnce * teamRows, columnsOfRound = columnsAtOnce * groups;
  constexpr bool isEven = columns % columnsOfRound == 0;
  Vector left[teamRows][Each::steps];
  for (unsigned r = 0; r < teamRows; r++) {
    for (unsigned step = 0; step < Each::steps; step++) left[r][step] = Widening::of(own.held[r][step]);
  }
  #pragma unroll 1
  for (unsigned round = 0; round < (columns + columnsOfRound - 1) / columnsOfRound; round++) {
    const unsigned firstColumn = round * columnsOfRound + group * columnsAtOnce;
    Scalar sums[count];
    for (unsigned i = 0; i < count; i++) sums[i] = 0;
    for (unsigned c = 0; c < columnsAtOnce; c++) {
      const unsigned next = firstColumn + c, column = isEven || next < columns ? next : columns - 1;
      for (unsigned step = 0; step < Each::steps; step++) {
        const unsigned place = step * teamLanes + lane;
        if (Each::isEven || place < Each::vectors) {
          const Vector right = from[column * Each::vectors + place];
          for (unsigned r = 0; r < teamRows; r++) {
            sums[c * teamRows + r] = dot(left[r][step], right, sums[c * teamRows + r]);
          }
        }
      }
    }
    combineAccumulators<columnsAtOnce, teamRows, teamLanes>(
        sums, 0, firstColumn, lane, [&](unsigned r, unsigned column, Scalar sum) {
          if (isEven || column < columns) store(r, column, sum);
        });
  }
}`;

/**
 * `sumTerms`: store(t, place, Σ weights[t, term] · from[term]) for TARGETS targets, over the terms in their order, each of so
 * many vectors, of which a lane has its share: STEPS at most. `weights` stands at the first target.
 */
export const sumTerms = `
template <unsigned TARGETS, unsigned STEPS, class Store>
static __device__ __forceinline__ void sumTerms(
    const Vector* weights, unsigned terms, const Vector* from, unsigned vectors, unsigned lane, Store store) {
  const unsigned termVectors = (terms + lanes - 1) / lanes;
  Vector sums[TARGETS][STEPS];
  for (unsigned t = 0; t < TARGETS; t++) {
    for (unsigned step = 0; step < STEPS; step++) sums[t][step] = zero();
  }
  #pragma unroll 1
  for (unsigned next = 0; next < termVectors; next++) {
    Vector weight[TARGETS];
    for (unsigned t = 0; t < TARGETS; t++) weight[t] = weights[t * termVectors + next];
    for (unsigned i = 0; i < lanes; i++) {
      const unsigned term = next * lanes + i;
      if (terms % lanes == 0 || term < terms) {
        for (unsigned step = 0; step < STEPS; step++) {
          const unsigned place = step * teamLanes + lane;
          if (place < vectors) {
            const Vector added = from[term * vectors + place];
            for (unsigned t = 0; t < TARGETS; t++) addWeighted(sums[t][step], partOf(weight[t], i), added);
          }
        }
      }
    }
  }
  for (unsigned t = 0; t < TARGETS; t++) {
    for (unsigned step = 0; step < STEPS; step++) {
      const unsigned place = step * teamLanes + lane;
      if (place < vectors) store(t, place, sums[t][step]);
    }
  }
}`;

/**
 * `forScores`: visit(r, own, isSeen) for the lane's scores of the team's rows, the own-th of the r-th row. `placeOf` says where
 * that is in [rows, stride], counted from the lane's first score. Unrolled, so that arrays of scores are registers.
 */
export const forScores = `
static constexpr unsigned laneColumns = (columns + teamLanes - 1) / teamLanes;

static __device__ __forceinline__ constexpr unsigned placeOf(unsigned r, unsigned own, unsigned stride) {
  return r * stride + own * teamLanes;
}

template <unsigned ROWS, unsigned THREADS, class Visit>
static __device__ __forceinline__ void forScores(Team<ROWS, THREADS> team, Visit visit) {
  #pragma unroll
  for (unsigned r = 0; r < ROWS; r++) {
    const unsigned row = team.first + r, seen = isCausal && row + 1 < columns ? row + 1 : columns;
    #pragma unroll
    for (unsigned own = 0; own < laneColumns; own++) {
      const unsigned column = own * teamLanes + team.lane;
      if (columns % teamLanes == 0 || column < columns) visit(r, own, column < seen);
    }
  }
}`;
