/**
 * CUDA C++ for g++: only the identifiers that Holdfast's kernels may use, so that a kernel which uses others
 * fails here. Math functions are declared by hand: headers would take longer to compile than the kernel.
 */
#pragma once

#include "kernel-table.h"

typedef decltype(sizeof(0)) size_t;
typedef EmulatorPoint uint3;
typedef EmulatorPoint dim3;

#define __global__
#define __device__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __cluster_dims__(...)
#define __align__(n) __attribute__((aligned(n)))
#ifdef EMULATOR_CLUSTERS
#define __shared__ _Pragma("GCC error \"the blocks of a cluster run concurrently: use dynamicSharedMemory, which each block has\"")
#else
// In one section of the kernel, so that libcuda can fill it with garbage before each block. Blocks run one after the other.
#define __shared__ static __attribute__((section("emulator_shared_" EMULATOR_MODULE_NAME)))
#endif

static EmulatorPosition emulatorPosition;
static EmulatorHooks emulatorHooks;

#define threadIdx emulatorPosition.thread
#define blockIdx emulatorPosition.block
#define blockDim emulatorPosition.blockSize
#define gridDim emulatorPosition.gridSize

// Barriers and exchanges.

#define __syncthreads() emulatorHooks.barrier(__LINE__)

static inline void __syncwarp(unsigned mask = 0xffffffffu) { emulatorHooks.exchange(emulatorWait, mask, 0, 0); }

static inline unsigned __ballot_sync(unsigned mask, int predicate) {
  return static_cast<unsigned>(emulatorHooks.exchange(emulatorBallot, mask, predicate != 0, 0));
}

static inline bool __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }

static inline unsigned emulatorLane() { return threadIdx.x & 31u; }

template <class T>
static inline T emulatorShuffleFrom(unsigned mask, T value, unsigned source) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "a shuffle carries four or eight bytes");
  unsigned long long bits = 0;
  __builtin_memcpy(&bits, &value, sizeof value);
  bits = emulatorHooks.exchange(emulatorShuffle, mask, bits, source);
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}

template <class T>
static inline T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
  const unsigned segment = emulatorLane() & ~static_cast<unsigned>(width - 1);
  return emulatorShuffleFrom(mask, value, segment | (static_cast<unsigned>(source) & static_cast<unsigned>(width - 1)));
}

template <class T>
static inline T __shfl_xor_sync(unsigned mask, T value, int other, int width = 32) {
  const unsigned lane = emulatorLane(), source = lane ^ static_cast<unsigned>(other);
  const unsigned segmentEnd = (lane & ~static_cast<unsigned>(width - 1)) + static_cast<unsigned>(width);
  return emulatorShuffleFrom(mask, value, source < segmentEnd ? source : lane);
}

template <class T>
static inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  const unsigned lane = emulatorLane(), inSegment = lane & static_cast<unsigned>(width - 1);
  return emulatorShuffleFrom(mask, value, inSegment + delta < static_cast<unsigned>(width) ? lane + delta : lane);
}

// Tensor core instructions and asynchronous copies: these functions replace the inline PTX.

#define HOLDFAST_EMULATOR

/** Launches run one after the other here; libcuda decides what a PDL launch sees before this wait. */
static inline void gridDependencyWait() { emulatorHooks.gridDependencyWait(); }

/** The warps of all blocks that run concurrently. */
enum { emulatorWarps = 32 * emulatorClusterLimit };
static inline unsigned emulatorWarp() { return 32 * emulatorPosition.rank + threadIdx.x / 32; }

static bool emulatorIsPending[emulatorWarps][32];

/** Waits for the other lanes; true in the first that continues, which then computes the results of all. */
static inline bool emulatorIsFirstOfWarp() {
  bool(&isPending)[32] = emulatorIsPending[emulatorWarp()];
  isPending[emulatorLane()] = true;
  __syncwarp();
  const bool isFirst = isPending[emulatorLane()];
  if (isFirst) __builtin_memset(isPending, 0, sizeof isPending);
  return isFirst;
}

/** What the lanes of a warp pass to an m16n8 product, and its accumulators. */
struct EmulatorFragments { double left[32][4], right[32][2], acc[32][4]; };
static EmulatorFragments emulatorFragments[emulatorWarps];

/**
 * acc[16, 8] += left[16, 8] · right[8, 8]. A lane of group g and member t has of A rows g and g + 8 at k = t,
 * then at k = t + 4; of B column g at both; and of the accumulators columns 2t and 2t + 1 of row g, then of
 * row g + 8.
 */
static inline void mmaSync(double (&acc)[4], const double (&left)[4], const double (&right)[2]) {
  EmulatorFragments& warp = emulatorFragments[emulatorWarp()];
  const unsigned lane = emulatorLane();
  __builtin_memcpy(warp.left[lane], left, sizeof left);
  __builtin_memcpy(warp.right[lane], right, sizeof right);
  __builtin_memcpy(warp.acc[lane], acc, sizeof acc);
  if (emulatorIsFirstOfWarp()) {
    for (unsigned other = 0; other < 32; ++other) {
      const unsigned group = other / 4, member = other % 4;
      for (unsigned k = 0; k < 8; ++k) {
        for (unsigned index = 0; index < 4; ++index) {
          const unsigned row = index / 2, column = 2 * member + index % 2;
          warp.acc[other][index] += warp.left[group * 4 + k % 4][k / 4 * 2 + row] * warp.right[column * 4 + k % 4][k / 4];
        }
      }
    }
  }
  __builtin_memcpy(acc, warp.acc[lane], sizeof acc);
}

/** A float's bits in TF32. */
static inline float emulatorTruncateTf32(float value) {
  unsigned bits;
  __builtin_memcpy(&bits, &value, 4);
  bits &= 0xffffe000u;
  __builtin_memcpy(&value, &bits, 4);
  return value;
}

/** The same with floats, rounded to TF32. */
static inline void mmaSync(float (&acc)[4], const float (&left)[4], const float (&right)[2]) {
  double wide[4], wideLeft[4], wideRight[2];
  for (unsigned index = 0; index < 4; ++index) wide[index] = acc[index], wideLeft[index] = emulatorTruncateTf32(left[index]);
  for (unsigned index = 0; index < 2; ++index) wideRight[index] = emulatorTruncateTf32(right[index]);
  mmaSync(wide, wideLeft, wideRight);
  for (unsigned index = 0; index < 4; ++index) acc[index] = static_cast<float>(wide[index]);
}

// Dynamic shared memory, which may be more than a block can declare. Each block of a cluster has its own.
#ifdef EMULATOR_CLUSTERS
#define dynamicSharedMemory(name, bytes) \
  unsigned char(&name)[bytes] = *(unsigned char(*)[bytes])emulatorDynamicShared(bytes, __LINE__)
#else
#define dynamicSharedMemory(name, bytes) static __attribute__((section("emulator_dynamic_shared_" EMULATOR_MODULE_NAME), aligned(16))) unsigned char name[bytes]
#define swizzledSharedMemory(name, bytes) static __attribute__((section("emulator_dynamic_shared_" EMULATOR_MODULE_NAME), aligned(1024))) unsigned char name[bytes]
#endif
static inline unsigned long long emulatorDynamicShared(unsigned long long bytes, int line) {
  if (emulatorPosition.dynamicSharedBytes < bytes) emulatorHooks.fault(700, "more dynamic shared memory than the launch has", line);
  return emulatorPosition.dynamicShared;
}

struct Bf16 { static constexpr unsigned bytes = 2; static constexpr int element = emulatorBf16; };
struct F16 { static constexpr unsigned bytes = 2; static constexpr int element = emulatorF16; };
struct Tf32 { static constexpr unsigned bytes = 4; static constexpr int element = emulatorTf32; };

/** The value of a 16-bit element in the lower half of a word. */
template <class Element>
static inline float emulatorWiden(unsigned word) {
  const unsigned half = word & 0xffffu;
  unsigned bits = half << 16;
  if (Element::element == emulatorF16) {
    const unsigned exponent = half >> 10 & 31, fraction = half & 1023;
    if (exponent == 0) return (half >> 15 ? -1.0f : 1.0f) * static_cast<float>(fraction) * 0x1p-24f;
    bits = (half >> 15) << 31 | (exponent == 31 ? 255 : exponent + 112) << 23 | fraction << 13;
  }
  float value;
  __builtin_memcpy(&value, &bits, 4);
  return value;
}

/** The operands of an m16n8k16 product, widened, and its accumulators. */
struct EmulatorPairs { float left[16][16], right[8][16], acc[32][4]; };
static EmulatorPairs emulatorPairs[emulatorWarps];

/**
 * acc[16, 8] += left[16, 16] · right[16, 8]. A lane of group g and member t has of A rows g and g + 8 at k = 2t and 2t + 1, then both at
 * k = 2t + 8 and 2t + 9; of B column g at the same k; and accumulators as above.
 */
template <class Element>
static inline void mmaSync(float (&acc)[4], const unsigned (&left)[4], const unsigned (&right)[2]) {
  EmulatorPairs& warp = emulatorPairs[emulatorWarp()];
  const unsigned lane = emulatorLane(), group = lane / 4, member = lane % 4;
  for (unsigned half = 0; half < 2; ++half) {
    for (unsigned high = 0; high < 2; ++high) {
      const unsigned shift = 16 * half, k = 2 * member + half + 8 * high;
      warp.left[group][k] = emulatorWiden<Element>(left[2 * high] >> shift);
      warp.left[group + 8][k] = emulatorWiden<Element>(left[2 * high + 1] >> shift);
      warp.right[group][k] = emulatorWiden<Element>(right[high] >> shift);
    }
  }
  __builtin_memcpy(warp.acc[lane], acc, sizeof acc);
  if (emulatorIsFirstOfWarp()) {
    for (unsigned other = 0; other < 32; ++other) {
      for (unsigned index = 0; index < 4; ++index) {
        const unsigned row = other / 4 + index / 2 * 8, column = other % 4 * 2 + index % 2;
        double sum = warp.acc[other][index];
        for (unsigned k = 0; k < 16; ++k) sum += static_cast<double>(warp.left[row][k]) * warp.right[column][k];
        warp.acc[other][index] = static_cast<float>(sum);
      }
    }
  }
  __builtin_memcpy(acc, warp.acc[lane], sizeof acc);
}

/** Dynamic shared memory begins after that of the system. In a cluster, the upper bits of an address are the rank of its block. */
static constexpr unsigned emulatorSystemSharedBytes = 1024;

static inline unsigned long long __cvta_generic_to_shared(const void* pointer) {
  const unsigned long long offset = reinterpret_cast<unsigned long long>(pointer) - emulatorPosition.dynamicShared;
  return static_cast<unsigned long long>(emulatorPosition.rank) << 24 | (offset + emulatorSystemSharedBytes);
}

/** The tile at the address that a descriptor has: 14 bits, in units of 16 bytes. The next bits are the leading byte offset. */
static inline const unsigned char* emulatorTile(unsigned address, int line) {
  if (address >> 14 != 0) emulatorHooks.fault(700, "the address of a tile reaches into the leading byte offset of its descriptor", line);
  return reinterpret_cast<const unsigned char*>(emulatorPosition.dynamicShared + address * 16ull - emulatorSystemSharedBytes);
}

template <class Element, unsigned columns, bool isAKMajor, bool isBKMajor>
static inline void wgmmaSs(float (&acc)[columns / 2], unsigned left, unsigned right, bool accumulates = true, int line = __builtin_LINE()) {
  emulatorHooks.wgmmaSs(Element::element, columns, isAKMajor, isBKMajor, accumulates, threadIdx.x % 128, acc, emulatorTile(left, line),
                        emulatorTile(right, line));
}

template <unsigned columns>
static inline void wgmmaRs(float (&acc)[columns / 2], const float (&left)[4], const unsigned char* right) {
  double(&lanes)[32][4] = emulatorFragments[emulatorWarp()].left;
  const unsigned lane = emulatorLane();
  for (unsigned index = 0; index < 4; ++index) lanes[lane][index] = emulatorTruncateTf32(left[index]);
  __syncwarp();
  emulatorHooks.wgmmaRs(columns, lane, acc, lanes, right);
  __syncwarp();
}

/** A tile of 16-bit elements in shared memory; `leadingBytes`: between blocks of 64 columns of an MN-major tile. */
struct SmemOperand { const unsigned char* tile; unsigned leadingBytes; };
static inline SmemOperand smemOperand(const unsigned char* tile, unsigned leadingBytes = 16) { return {tile, leadingBytes}; }
static inline SmemOperand advance(SmemOperand operand, unsigned bytes) { return {operand.tile + bytes, operand.leadingBytes}; }

template <class Element, unsigned columns, bool isAKMajor = true, bool isBKMajor = true>
static inline void wgmmaSs(float (&acc)[columns / 2], SmemOperand left, SmemOperand right, bool accumulates) {
  emulatorHooks.wgmmaSs(Element::element, columns, isAKMajor, isBKMajor, accumulates, threadIdx.x % 128, acc, left.tile, right.tile);
}

static unsigned emulatorHalves[emulatorWarps][32][4];

template <class Element, unsigned columns, bool isBKMajor = false>
static inline void wgmmaRs(float (&acc)[columns / 2], const unsigned (&left)[4], SmemOperand right, bool accumulates) {
  const unsigned warp = emulatorWarp(), lane = emulatorLane();
  for (unsigned index = 0; index < 4; ++index) emulatorHalves[warp][lane][index] = left[index];
  __syncwarp();
  emulatorHooks.wgmmaRsHalves(Element::element, columns, isBKMajor, accumulates, lane, acc, emulatorHalves[warp], right.tile, right.leadingBytes);
  __syncwarp();
}
template <unsigned count> static inline void setmaxnregDec() {}
template <unsigned count> static inline void setmaxnregInc() {}
static inline void fenceOperand(float&) {}
static inline void wgmmaFence() {}
static inline void wgmmaCommit() { emulatorHooks.wgmmaCommit(); }
template <unsigned left> static inline void wgmmaWait() { emulatorHooks.wgmmaWait(left); }
/** Lanes whose matrix stores no fence has made visible to asynchronous copies yet. */
static bool emulatorIsUnfenced[emulatorWarps][32];
static inline void fenceProxyAsync() { emulatorIsUnfenced[emulatorWarp()][emulatorLane()] = false; }
static inline float cvtRnaTf32(float value) {
  unsigned bits;
  __builtin_memcpy(&bits, &value, 4);
  if ((bits & 0x7f800000u) != 0x7f800000u) bits = (bits + 0x1000u) & 0xffffe000u;
  __builtin_memcpy(&value, &bits, 4);
  return value;
}

static const float* emulatorRows[emulatorWarps][32];

static inline void ldmatrixX4(float (&floats)[4], const float* row) {
  const unsigned warp = emulatorWarp(), lane = emulatorLane();
  if (reinterpret_cast<unsigned long long>(row) % 16 != 0) emulatorHooks.fault(716, "a row at a misaligned address", __LINE__);
  emulatorRows[warp][lane] = row;
  __syncwarp();
  for (unsigned matrix = 0; matrix < 4; ++matrix) floats[matrix] = emulatorRows[warp][8 * matrix + lane / 4][lane % 4];
  __syncwarp();
}

static const unsigned short* emulatorHalfRows[emulatorWarps][32];

/** A lane gets elements 2t and 2t + 1 of row g of each matrix, or of column g of a transposed one. */
template <bool isTransposed>
static inline void ldmatrixX4(unsigned (&words)[4], const unsigned short* row) {
  const unsigned warp = emulatorWarp(), lane = emulatorLane(), group = lane / 4, member = lane % 4;
  if (reinterpret_cast<unsigned long long>(row) % 16 != 0) emulatorHooks.fault(716, "a row at a misaligned address", __LINE__);
  emulatorHalfRows[warp][lane] = row;
  __syncwarp();
  for (unsigned matrix = 0; matrix < 4; ++matrix) {
    const unsigned short* const* rows = emulatorHalfRows[warp] + 8 * matrix;
    const unsigned low = isTransposed ? rows[2 * member][group] : rows[group][2 * member];
    const unsigned high = isTransposed ? rows[2 * member + 1][group] : rows[group][2 * member + 1];
    words[matrix] = low | high << 16;
  }
  __syncwarp();
}

static const unsigned char* emulatorByteRows[emulatorWarps][32];

/** Four matrices as a vector of eight elements: those of a lane in the first, in the second, … */
template <class Fragment>
static inline void ldmatrixVec(Fragment& fragment, const unsigned char* row) {
  unsigned words[4];
  ldmatrixX4<false>(words, reinterpret_cast<const unsigned short*>(row));
  for (unsigned index = 0; index < 8; ++index) fragment.element[index] = static_cast<unsigned short>(words[index / 2] >> index % 2 * 16);
}

template <class Fragment>
static inline void stmatrixVec(unsigned char* row, const Fragment& fragment) {
  const unsigned warp = emulatorWarp(), lane = emulatorLane();
  if (reinterpret_cast<unsigned long long>(row) % 16 != 0) emulatorHooks.fault(716, "a row at a misaligned address", __LINE__);
  emulatorByteRows[warp][lane] = row;
  __syncwarp();
  for (unsigned index = 0; index < 8; ++index) {
    const unsigned char* to = emulatorByteRows[warp][index / 2 * 8 + lane / 4] + lane % 4 * 4 + index % 2 * 2;
    *reinterpret_cast<unsigned short*>(const_cast<unsigned char*>(to)) = fragment.element[index];
  }
  emulatorIsUnfenced[warp][lane] = true;
  __syncwarp();
}

/** Completes at once, unlike the hardware: a read that is too early is not detected here. */
template <unsigned size>
static inline void cpAsync(void* to, const void* from, unsigned bytes) {
  static_assert(size == 4 || size == 8 || size == 16, "a copy has four, eight or sixteen bytes");
  const unsigned long long addresses = reinterpret_cast<unsigned long long>(to) | reinterpret_cast<unsigned long long>(from);
  if (addresses % size != 0) emulatorHooks.fault(716, "a copy at a misaligned address", __LINE__);
  if (bytes > size) emulatorHooks.fault(700, "a copy of more bytes than it has", __LINE__);
  __builtin_memset(to, 0, size);
  __builtin_memcpy(to, from, bytes);
}
static inline void cpAsyncCommit() {}
template <unsigned left> static inline void cpAsyncWait() {}

// Clusters, barriers of some of a block's threads, and mbarriers: libcuda resolves the waits.

static inline unsigned clusterCtaRank() { return emulatorPosition.rank; }

template <class T>
static inline T* mapaShared(T* pointer, unsigned rank, int line = __builtin_LINE()) {
  const unsigned long long address = reinterpret_cast<unsigned long long>(pointer);
  if (address - emulatorPosition.dynamicShared >= emulatorPosition.dynamicSharedBytes)
    emulatorHooks.fault(717, "a peer address of memory outside the block's dynamic shared memory", line);
  if (rank >= emulatorPosition.clusterSize) emulatorHooks.fault(700, "a peer that the cluster does not have", line);
  return reinterpret_cast<T*>(address + emulatorClusterStride * static_cast<unsigned long long>(rank) -
                              emulatorClusterStride * static_cast<unsigned long long>(emulatorPosition.rank));
}

static inline void clusterArrive(int line = __builtin_LINE()) { emulatorHooks.clusterArrive(line); }
static inline void clusterWait(int line = __builtin_LINE()) { emulatorHooks.clusterWait(line); }
static inline void namedBarrierSync(unsigned barrier, unsigned threads, int line = __builtin_LINE()) {
  emulatorHooks.namedBarrierSync(barrier, threads, line);
}

typedef unsigned long long Mbarrier;
static inline void mbarrierInit(Mbarrier* mbarrier, unsigned arrivals, int line = __builtin_LINE()) {
  emulatorHooks.mbarrier(emulatorMbarrierInit, mbarrier, arrivals, line);
}
static inline void fenceMbarrierInit() {}
static inline void mbarrierArrive(Mbarrier* mbarrier, int line = __builtin_LINE()) {
  emulatorHooks.mbarrier(emulatorMbarrierArrive, mbarrier, 0, line);
}
static inline void mbarrierArriveExpectTx(Mbarrier* mbarrier, unsigned bytes, int line = __builtin_LINE()) {
  emulatorHooks.mbarrier(emulatorMbarrierArriveExpectTx, mbarrier, bytes, line);
}
static inline void mbarrierWait(Mbarrier* mbarrier, unsigned parity, int line = __builtin_LINE()) {
  emulatorHooks.mbarrier(emulatorMbarrierWait, mbarrier, parity, line);
}
static inline void cpAsyncBulk(void* to, const void* from, unsigned bytes, Mbarrier* mbarrier, int line = __builtin_LINE()) {
  emulatorHooks.cpAsyncBulk(to, from, bytes, mbarrier, line);
}

/**
 * A tensor map: a matrix, or several with equal strides, from which boxes are copied. cuTensorMapEncodeTiled
 * defines its contents.
 */
struct __attribute__((aligned(64))) TensorMap { unsigned long long words[16]; };
static inline void tmaLoad(void* to, const TensorMap* map, int column, int row, int matrix, Mbarrier* mbarrier,
                            int line = __builtin_LINE()) {
  emulatorHooks.tmaLoad(to, map, column, row, matrix, mbarrier, line);
}
static inline void tmaStore(const TensorMap* map, const void* from, int column, int row, int matrix, int line = __builtin_LINE()) {
  for (bool isUnfenced : emulatorIsUnfenced[emulatorWarp()])
    if (isUnfenced) emulatorHooks.fault(719, "a copy of shared memory that a lane has written without a fence", line);
  emulatorHooks.tmaStore(map, from, column, row, matrix, line);
}
static inline void bulkCommit() { emulatorHooks.bulkCommit(); }
template <unsigned pending> static inline void bulkWaitRead() { emulatorHooks.bulkWaitRead(pending); }

// Bits.

static inline int __popc(unsigned value) { return __builtin_popcount(value); }
static inline int __ffs(int value) { return __builtin_ffs(value); }
static inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(static_cast<unsigned long long>(a) * b >> 32);
}

static inline unsigned atomicMin(unsigned* address, unsigned value) {
  unsigned old = __atomic_load_n(address, __ATOMIC_RELAXED);
  while (value < old && !__atomic_compare_exchange_n(address, &old, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  return old;
}

template <class To, class From>
static inline To emulatorBits(From value) {
  static_assert(sizeof(To) == sizeof(From), "the same bits under another type");
  To result;
  __builtin_memcpy(&result, &value, sizeof result);
  return result;
}
static inline unsigned __float_as_uint(float value) { return emulatorBits<unsigned>(value); }
static inline float __uint_as_float(unsigned value) { return emulatorBits<float>(value); }
static inline int __float_as_int(float value) { return emulatorBits<int>(value); }
static inline float __int_as_float(int value) { return emulatorBits<float>(value); }
static inline long long __double_as_longlong(double value) { return emulatorBits<long long>(value); }
static inline double __longlong_as_double(long long value) { return emulatorBits<double>(value); }
static inline double __hiloint2double(int high, int low) {
  return emulatorBits<double>(static_cast<unsigned long long>(static_cast<unsigned>(high)) << 32 | static_cast<unsigned>(low));
}

/** Rounds to nearest even. */
template <class Element>
static inline unsigned emulatorNarrow(float value) {
  const unsigned bits = __float_as_uint(value), magnitude = bits & 0x7fffffffu;
  if (Element::element == emulatorBf16) return value != value ? 0x7fffu : (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
  unsigned half = (magnitude + 0xc8000fffu + (magnitude >> 13 & 1u)) >> 13;
  if (magnitude < 0x38800000u) half = __float_as_uint(__uint_as_float(magnitude) + 0.5f) - 0x3f000000u;
  if (magnitude > 0x477fffffu) half = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
  return (half | (bits >> 16 & 0x8000u)) & 0xffffu;
}
template <class Element>
static inline unsigned packHalves(float low, float high) {
  return emulatorNarrow<Element>(low) | emulatorNarrow<Element>(high) << 16;
}

// Vectors.

#define EMULATOR_VECTORS(T, name, alignment2, alignment4)                                                     \
  struct __attribute__((aligned(alignment2))) name##2 { T x, y; };                                           \
  struct __attribute__((aligned(alignment4))) name##4 { T x, y, z, w; };                                     \
  static inline name##2 make_##name##2(T x, T y) { return {x, y}; }                                          \
  static inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
EMULATOR_VECTORS(float, float, 8, 16)
EMULATOR_VECTORS(unsigned, uint, 8, 16)
EMULATOR_VECTORS(int, int, 8, 16)
EMULATOR_VECTORS(unsigned short, ushort, 4, 8)
EMULATOR_VECTORS(unsigned char, uchar, 2, 4)
EMULATOR_VECTORS(signed char, char, 2, 4)
struct __attribute__((aligned(16))) double2 { double x, y; };
struct __attribute__((aligned(16))) longlong2 { long long x, y; };
struct __attribute__((aligned(16))) ulonglong2 { unsigned long long x, y; };
static inline double2 make_double2(double x, double y) { return {x, y}; }

// Math functions of the system's library.

#define EMULATOR_UNARY(name) extern "C" double name(double) noexcept; extern "C" float name##f(float) noexcept;
#define EMULATOR_BINARY(name) \
  extern "C" double name(double, double) noexcept; extern "C" float name##f(float, float) noexcept;
EMULATOR_UNARY(exp) EMULATOR_UNARY(exp2) EMULATOR_UNARY(expm1) EMULATOR_UNARY(log) EMULATOR_UNARY(log2)
EMULATOR_UNARY(log10) EMULATOR_UNARY(log1p) EMULATOR_UNARY(sin) EMULATOR_UNARY(cos) EMULATOR_UNARY(tan)
EMULATOR_UNARY(asin) EMULATOR_UNARY(acos) EMULATOR_UNARY(atan) EMULATOR_UNARY(sinh) EMULATOR_UNARY(cosh)
EMULATOR_UNARY(tanh) EMULATOR_UNARY(erf) EMULATOR_UNARY(erfc) EMULATOR_UNARY(sqrt) EMULATOR_UNARY(cbrt)
EMULATOR_UNARY(fabs) EMULATOR_UNARY(floor) EMULATOR_UNARY(ceil) EMULATOR_UNARY(trunc) EMULATOR_UNARY(round)
EMULATOR_UNARY(rint) EMULATOR_UNARY(nearbyint) EMULATOR_UNARY(asinh) EMULATOR_UNARY(acosh) EMULATOR_UNARY(atanh)
EMULATOR_UNARY(lgamma)
EMULATOR_BINARY(pow) EMULATOR_BINARY(fmod) EMULATOR_BINARY(fmin) EMULATOR_BINARY(fmax) EMULATOR_BINARY(atan2)
EMULATOR_BINARY(copysign)
extern "C" double fma(double, double, double) noexcept;
extern "C" float fmaf(float, float, float) noexcept;
static inline float __expf(float x) { return expf(x); }

// ex2, lg2 and rcp with approx.ftz: subnormal operands and results are zeros, and the last bit of a result may be wrong. Here it is 0.

static inline float emulatorFlush(float x) { return fabsf(x) < 0x1p-126f ? copysignf(0.0f, x) : x; }
static inline float emulatorApproximate(float x) {
  return __uint_as_float(__float_as_uint(emulatorFlush(x)) & (x == x ? ~1u : ~0u));
}
static inline unsigned shiftInCarry(unsigned bits, unsigned a, unsigned b) { return bits << 1 | (a + b < a); }
static inline float ex2Approx(float x) { return emulatorApproximate(exp2f(emulatorFlush(x))); }
static inline float lg2Approx(float x) { return emulatorApproximate(log2f(emulatorFlush(x))); }
static inline float selectBelow(float x, float limit, float below, float above) { return x < limit ? below : above; }
static inline float rcpApprox(float x) { return emulatorApproximate(1.0f / emulatorFlush(x)); }

static inline float __fdividef(float a, float b) { return a / b; }
static inline double rsqrt(double x) { return 1.0 / sqrt(x); }
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
template <class T> static inline bool isnan(T x) { return __builtin_isnan(x); }
template <class T> static inline bool isinf(T x) { return __builtin_isinf(x); }
template <class T> static inline bool isfinite(T x) { return __builtin_isfinite(x); }

// Faults of an access: an index outside its array, which g++ checks, and a misaligned vector.

extern "C" __attribute__((cold)) void __ubsan_handle_out_of_bounds(void* data, void*) {
  struct Location { const char* file; unsigned line, column; };
  emulatorHooks.fault(700, "an index outside its array", static_cast<int>(static_cast<const Location*>(data)->line));
}

template <class T> struct EmulatorPointee { static constexpr unsigned alignment = 0; };
template <class T> struct EmulatorPointee<T*> { static constexpr unsigned alignment = alignof(T); };

/**
 * A cast that checks the alignment of the pointer that it returns. A kernel gets pointers of other types by such casts and by its
 * parameters alone, and libcuda checks those. To check each access, as -fsanitize=alignment does, takes a sixth of the time of g++.
 */
template <class To, class From>
static inline To emulatorCast(From from, int line = __builtin_LINE()) {
  constexpr unsigned alignment = EmulatorPointee<To>::alignment;
  const unsigned long long address = (unsigned long long)from;
  if (alignment > 1 && (address & (alignment - 1)) != 0) emulatorHooks.fault(716, "a pointer to a misaligned address", line);
  return (To)address;
}
#define reinterpret_cast emulatorCast

// The module's table. NVRTC's emulator appends it to the source, each kernel with a comma. EMULATOR_MODULE_NAME is its name as a text.

template <class... Parameters>
struct EmulatorEntry {
  static constexpr unsigned count = sizeof...(Parameters);
  // One more than needed, because an array can't be empty.
  static constexpr unsigned sizes[] = {sizeof(Parameters)..., 0};
  static constexpr unsigned pointeeAlignments[] = {EmulatorPointee<Parameters>::alignment..., 0};

  template <void (*kernel)(Parameters...), int... index>
  static void call([[maybe_unused]] void** arguments, unsigned first, unsigned end) {
    for (unsigned thread = first; thread < end; ++thread) {
      threadIdx.x = thread;
      kernel(*static_cast<Parameters*>(arguments[index])...);
    }
  }
  template <void (*kernel)(Parameters...)>
  static void run(void** arguments, unsigned first, unsigned end) {
    call<kernel, __integer_pack(count)...>(arguments, first, end);
  }
};
template <class... Parameters>
EmulatorEntry<Parameters...> emulatorEntryOf(void (*)(Parameters...));

/** The value of __cluster_dims__. */
template <unsigned x, unsigned y = 1, unsigned z = 1>
struct EmulatorCluster {
  static_assert(y == 1 && z == 1, "the emulator's clusters have one dimension, as grids do");
  static_assert(x >= 1 && x <= emulatorClusterLimit, "a cluster has one to eight blocks");
  static constexpr unsigned size = x;
};

#define EMULATOR_KERNEL(name, maxThreads, isCooperative, ...)                                                    \
  {#name, &decltype(emulatorEntryOf(name))::run<name>, decltype(emulatorEntryOf(name))::count,                    \
   decltype(emulatorEntryOf(name))::sizes, decltype(emulatorEntryOf(name))::pointeeAlignments, maxThreads, isCooperative, \
   EmulatorCluster<__VA_ARGS__>::size}

#define EMULATOR_MODULE(name, count, ...)                                                                   \
  static const EmulatorKernel emulatorKernels[] = {__VA_ARGS__{0, 0, 0, 0, 0, 0, false, 0}};                   \
  extern "C" {                                                                                               \
  extern __attribute__((weak, visibility("hidden"))) char __start_emulator_shared_##name[];                    \
  extern __attribute__((weak, visibility("hidden"))) char __stop_emulator_shared_##name[];                     \
  extern __attribute__((weak, visibility("hidden"))) char __start_emulator_dynamic_shared_##name[];            \
  extern __attribute__((weak, visibility("hidden"))) char __stop_emulator_dynamic_shared_##name[];             \
  __attribute__((visibility("default"))) EmulatorModule emulator_module_##name = {                             \
      &emulatorPosition, &emulatorHooks, __start_emulator_shared_##name, __stop_emulator_shared_##name,        \
      __start_emulator_dynamic_shared_##name, __stop_emulator_dynamic_shared_##name, emulatorKernels, count};  \
  }
