/** Maps of matrices (tensor maps), in the emulator's own form, and the copies of boxes that they allow. */
#pragma once

#include <cstdint>

namespace emulator {

/** What lies in a kernel's 128 bytes. */
struct TensorMap {
  uint64_t mark;
  uint64_t address;
  /** In elements: columns, rows, matrices. */
  uint64_t sizes[3];
  /** In bytes: from row to row, from matrix to matrix. */
  uint64_t strides[2];
  uint32_t box[3];
  uint32_t elementBytes;
  uint64_t reserved[7];
};
static_assert(sizeof(TensorMap) == 128, "a tensor map has 128 bytes");

/** Swizzled copies of boxes have rows of so many bytes here. */
constexpr unsigned boxRowBytes = 128;

/** Where in a map a box begins. */
struct Corner {
  int column, row, matrix;
};

/** What is wrong with a map for `copyBox`, or nullptr. */
const char* findFaultOf(const TensorMap& map);

/** Is all of a box that lies inside its matrix device memory? */
bool holdsBox(const TensorMap& map, Corner corner);

/**
 * Copies a box to shared memory, its rows after each other with their 16 bytes swizzled: bits 4 to 6 of an address are crossed
 * with bits 7 to 9. What lies outside the matrix is 0.
 */
void copyBox(void* to, const TensorMap& map, Corner corner);

inline unsigned boxBytesOf(const TensorMap& map) { return boxRowBytes * map.box[1]; }

}  // namespace emulator
