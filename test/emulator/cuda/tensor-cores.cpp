/**
 * wgmma for one thread: the elements of its rows and columns are read once, then multiplied and added in the
 * order of K. If threads run in reverse order, a product reads shared memory and changes the accumulators when
 * the thread waits for its group. So a tile that is overwritten too early is found, and a result that is read
 * too early.
 */
#include "tensor-cores.h"

#include <cstdint>
#include <cstring>

#include "../kernel-table.h"
#include "launch.h"

// Most of the time of an emulated GEMM is spent here.
#pragma GCC push_options
#pragma GCC optimize("O3")

namespace emulator {

namespace {

constexpr unsigned maxK = 16;

inline float ofBits(unsigned bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

/** The value that a tensor core reads from an element's bits. */
template <int element>
inline float widen(const unsigned char* at) {
  if constexpr (element == emulatorTf32) {
    unsigned bits;
    std::memcpy(&bits, at, 4);
    return ofBits(bits & 0xffffe000u);
  }
  uint16_t half;
  std::memcpy(&half, at, 2);
  if constexpr (element == emulatorBf16) return ofBits(static_cast<unsigned>(half) << 16);
  // Not every C++ compiler has a type for it.
  const unsigned exponent = half >> 10 & 31, fraction = half & 1023;
  const float size = exponent == 0 ? static_cast<float>(fraction) * 0x1p-24f : 0;
  unsigned bits;
  std::memcpy(&bits, &size, 4);
  if (exponent > 0) bits = (exponent == 31 ? 255 : exponent + 112) << 23 | fraction << 13;
  return ofBits(bits | static_cast<unsigned>(half >> 15) << 31);
}

/** MN-major tiles of as many rows as columns, 128 bytes each. */
template <int element>
constexpr unsigned defaultLeadingBytes = 128 * (element == emulatorTf32 ? 32 : 64);

/** Where a swizzled tile has the byte of this address: bits 4 to 6 are XORed with bits 7 to 9. */
inline const unsigned char* swizzled(uint64_t address) {
  return reinterpret_cast<const unsigned char*>(address ^ (address >> 7 & 7) << 4);
}

/** A row of a swizzled tile along K. Sixteen bytes that are contiguous in the matrix are contiguous in the tile. */
template <int element>
inline void readAlongK(float* elements, const unsigned char* tile, bool isKMajor, unsigned row, unsigned leadingBytes) {
  constexpr unsigned bytes = element == emulatorTf32 ? 4 : 2, across = 128 / bytes, chunk = 16 / bytes;
  if (isKMajor) {
    for (unsigned half = 0; half < 2; ++half) {
      const unsigned char* start = swizzled(reinterpret_cast<uint64_t>(tile) + row * 128 + half * 16);
      for (unsigned k = 0; k < chunk; ++k) elements[half * chunk + k] = widen<element>(start + k * bytes);
    }
    return;
  }
  const auto start = reinterpret_cast<uint64_t>(tile) + row / across * leadingBytes + row % across * bytes;
  for (unsigned k = 0; k < 32 / bytes; ++k) elements[k] = widen<element>(swizzled(start + k * 128));
}

/** Elements of two rows and two columns: those of the first row come first. */
typedef float Square __attribute__((vector_size(16)));

/** Of every eight columns a lane has two, of both of its rows. */
template <int element>
inline void multiply(unsigned columns, bool isBKMajor, unsigned member, float* acc, const float (*left)[maxK],
                     const unsigned char* right, unsigned leadingBytes = defaultLeadingBytes<element>) {
  constexpr unsigned depth = element == emulatorTf32 ? 8 : 16;
  Square rows[depth];
  for (unsigned k = 0; k < depth; ++k) rows[k] = Square{left[0][k], left[0][k], left[1][k], left[1][k]};
  for (unsigned eight = 0; eight < columns / 8; ++eight, acc += 4) {
    float first[maxK], second[maxK];
    readAlongK<element>(first, right, isBKMajor, eight * 8 + member * 2, leadingBytes);
    readAlongK<element>(second, right, isBKMajor, eight * 8 + member * 2 + 1, leadingBytes);
    Square sums;
    std::memcpy(&sums, acc, sizeof sums);
    for (unsigned k = 0; k < depth; ++k) sums += rows[k] * Square{first[k], second[k], first[k], second[k]};
    std::memcpy(acc, &sums, sizeof sums);
  }
}

template <int element>
inline void multiplySs(unsigned columns, bool isAKMajor, bool isBKMajor, unsigned thread, float* acc,
                            const unsigned char* left, const unsigned char* right) {
  const unsigned lane = thread % 32, row = thread / 32 * 16 + lane / 4;
  float elements[2][maxK];
  readAlongK<element>(elements[0], left, isAKMajor, row, defaultLeadingBytes<element>);
  readAlongK<element>(elements[1], left, isAKMajor, row + 8, defaultLeadingBytes<element>);
  multiply<element>(columns, isBKMajor, lane % 4, acc, elements, right);
}

}  // namespace

namespace {

/** Multiplies now, or when the thread waits for it. */
template <class Multiply>
void multiplyNowOrLater(Multiply multiply) {
  Launch& current = *launch;
  if (!current.isReversed || current.threads.empty()) return multiply();
  PendingProducts& pending = current.products[current.running];
  pending.products.push_back({pending.groups, multiply});
}

void clearUnless(bool accumulates, float* acc, unsigned columns) {
  if (!accumulates) std::memset(acc, 0, columns / 2 * sizeof *acc);
}

/** The registers of the four lanes that have a lane's rows. */
template <class Register>
struct Quad {
  Register left[4][4];

  Quad(const Register (*lanes)[4], unsigned lane) { std::memcpy(left, lanes[lane / 4 * 4], sizeof left); }
};

}  // namespace

void hookWgmmaCommit() {
  if (!launch->products.empty()) launch->products[launch->running].groups += 1;
}

void hookWgmmaWait(unsigned left) {
  if (launch->products.empty()) return;
  PendingProducts& pending = launch->products[launch->running];
  while (!pending.products.empty() && pending.products.front().group + left < pending.groups) {
    pending.products.front().multiply();
    pending.products.pop_front();
  }
}

/**
 * acc[64, columns] += left[64, 32 bytes] · right[32 bytes, columns], spread over four warps. A lane of group
 * g and member t has two of every eight columns, from 2t on, in rows g and g + 8 of its warp's 16.
 */
void hookWgmmaSs(int element, unsigned columns, bool isAKMajor, bool isBKMajor, bool accumulates, unsigned warpgroupThread,
                       float* acc, const unsigned char* left, const unsigned char* right) {
  const auto run = element == emulatorBf16  ? multiplySs<emulatorBf16>
                   : element == emulatorF16 ? multiplySs<emulatorF16>
                                            : multiplySs<emulatorTf32>;
  multiplyNowOrLater([=] {
    clearUnless(accumulates, acc, columns);
    run(columns, isAKMajor, isBKMajor, warpgroupThread, acc, left, right);
  });
}

/**
 * acc[64, columns] += left[64, 8] · right[8, columns] of floats, with A in registers. A lane of group g and
 * member t has rows g and g + 8 of its warp's 16 at k = t, then at k = t + 4. `left` has the registers of all
 * lanes of the warp.
 */
void hookWgmmaRs(unsigned columns, unsigned lane, float* acc, const double (*left)[4], const unsigned char* right) {
  multiplyNowOrLater([=, quad = Quad(left, lane)] {
    float elements[2][maxK];
    for (unsigned row = 0; row < 2; ++row) {
      for (unsigned k = 0; k < 8; ++k) elements[row][k] = static_cast<float>(quad.left[k % 4][k / 4 * 2 + row]);
    }
    multiply<emulatorTf32>(columns, true, lane % 4, acc, elements, right);
  });
}

namespace {

template <int element>
inline void multiplyRsHalves(unsigned columns, bool isBKMajor, unsigned member, float* acc, const unsigned (*left)[4],
                             const unsigned char* right, unsigned leadingBytes) {
  float elements[2][maxK];
  for (unsigned row = 0; row < 2; ++row) {
    for (unsigned k = 0; k < 16; ++k) {
      const unsigned word = left[k % 8 / 2][k / 8 * 2 + row];
      const auto half = static_cast<uint16_t>(word >> 16 * (k % 2));
      elements[row][k] = widen<element>(reinterpret_cast<const unsigned char*>(&half));
    }
  }
  multiply<element>(columns, isBKMajor, member, acc, elements, right, leadingBytes);
}

}  // namespace

/**
 * acc[64, columns] += left[64, 16] · right[16, columns] of 16-bit elements. A lane of group g and member t has rows g and g + 8 of its
 * warp's 16 at k = 2t and 2t + 1, then at k = 2t + 8 and 2t + 9. `left` has the registers of all lanes of the warp.
 */
void hookWgmmaRsHalves(int element, unsigned columns, bool isBKMajor, bool accumulates, unsigned lane, float* acc, const unsigned (*left)[4],
                       const unsigned char* right, unsigned leadingBytes) {
  const auto run = element == emulatorBf16 ? multiplyRsHalves<emulatorBf16> : multiplyRsHalves<emulatorF16>;
  multiplyNowOrLater([=, quad = Quad(left, lane)] {
    clearUnless(accumulates, acc, columns);
    run(columns, isBKMajor, lane % 4, acc, quad.left, right, leadingBytes);
  });
}

}  // namespace emulator

#pragma GCC pop_options
