/** Tensor maps, in the emulator's own format, and the copies of boxes that they describe. */
#pragma once

#include <cstdint>

namespace emulator {

/** The contents of a kernel's 128 bytes. */
struct TensorMap {
  uint64_t mark;
  uint64_t address;
  /** In elements: columns, rows, matrices. */
  uint64_t sizes[3];
  /** In bytes: from row to row, from matrix to matrix. */
  uint64_t strides[2];
  uint32_t box[3];
  uint32_t elementBytes;
  /** 1 if floats are rounded to TF32 while they are copied. */
  uint64_t roundsToTf32;
  uint64_t reserved[6];
};
static_assert(sizeof(TensorMap) == 128, "a tensor map has 128 bytes");

/** The row size of swizzled boxes, in bytes. */
constexpr unsigned boxRowBytes = 128;

/** The coordinates of a box. */
struct Corner {
  int column, row, matrix;
};

/** What is wrong with a tensor map for `copyBox`, or nullptr. */
const char* findFaultOf(const TensorMap& map);

/** True if the inside part of a box is device memory. */
bool holdsBox(const TensorMap& map, Corner corner);

/**
 * Copies a box to shared memory, row after row with swizzled chunks of 16 bytes: bits 4 to 6 of an address
 * are XORed with bits 7 to 9. Elements outside the tensor are 0. TF32 is rounded to nearest even, as on a
 * GPU; infinities and NaN stay as they are.
 */
void copyBox(void* to, const TensorMap& map, Corner corner);

/** Copies a box from shared memory. Elements outside the tensor are not written. */
void storeBox(const TensorMap& map, Corner corner, const void* from);

inline unsigned boxBytesOf(const TensorMap& map) { return boxRowBytes * map.box[1]; }

}  // namespace emulator
