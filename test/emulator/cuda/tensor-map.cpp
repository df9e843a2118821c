/** cuTensorMapEncodeTiled: makes the checks of the real one, and accepts only the options that Holdfast uses. */
#include "tensor-map.h"

#include <algorithm>
#include <cstring>

#include "control.h"
#include "memory.h"

namespace emulator {

namespace {

constexpr uint64_t mapMark = 0x70616d2d78697274;
constexpr unsigned mapDimensions = 3;

/** Of CUtensorMapDataType, without the packed types of less than a byte. */
constexpr int tfloat32 = 11, tfloat32Ftz = 12;
constexpr unsigned mapElementBytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};

/** The columns of a box that are inside its tensor: from the first up to the end. */
struct Inside {
  long first, end;
};

Inside columnsInside(const TensorMap& map, long column) {
  const long size = static_cast<long>(map.sizes[0]), across = static_cast<long>(map.box[0]);
  return {std::clamp(-column, 0l, across), std::clamp(size - column, 0l, across)};
}

/** The address of the first column of a box's row, if it were inside; 0 if no column of the row is. */
uint64_t addressOfRow(const TensorMap& map, Corner corner, long row) {
  const long matrix = corner.matrix, at = corner.row + row;
  if (matrix < 0 || matrix >= static_cast<long>(map.sizes[2])) return 0;
  if (at < 0 || at >= static_cast<long>(map.sizes[1])) return 0;
  const Inside inside = columnsInside(map, corner.column);
  if (inside.first >= inside.end) return 0;
  return map.address + static_cast<uint64_t>(matrix) * map.strides[1] + static_cast<uint64_t>(at) * map.strides[0] +
         static_cast<uint64_t>(static_cast<long>(corner.column) * static_cast<long>(map.elementBytes));
}

/** A row of floats, each rounded to TF32. */
void roundRow(char* row) {
  for (unsigned at = 0; at < boxRowBytes; at += 4) {
    uint32_t bits;
    std::memcpy(&bits, row + at, 4);
    if ((bits & 0x7f800000) != 0x7f800000) bits = (bits + 0xfff + (bits >> 13 & 1)) & ~0x1fffu;
    std::memcpy(row + at, &bits, 4);
  }
}

}  // namespace

const char* findFaultOf(const TensorMap& map) {
  if (map.mark != mapMark) return "a tensor map that was not encoded";
  if (map.box[0] * map.elementBytes != boxRowBytes) return "a box that is not 128 bytes across";
  return nullptr;
}

bool holdsBox(const TensorMap& map, Corner corner) {
  const Inside inside = columnsInside(map, corner.column);
  for (unsigned row = 0; row < map.box[1]; ++row) {
    const uint64_t start = addressOfRow(map, corner, row);
    if (start == 0) continue;
    const auto offset = static_cast<uint64_t>(inside.first) * map.elementBytes;
    if (!holdsDevice(start + offset, static_cast<uint64_t>(inside.end - inside.first) * map.elementBytes)) return false;
  }
  return true;
}

void copyBox(void* to, const TensorMap& map, Corner corner) {
  const Inside inside = columnsInside(map, corner.column);
  for (unsigned row = 0; row < map.box[1]; ++row) {
    char bytes[boxRowBytes] = {};
    if (const uint64_t start = addressOfRow(map, corner, row)) {
      const auto offset = static_cast<uint64_t>(inside.first) * map.elementBytes;
      std::memcpy(bytes + offset, reinterpret_cast<const char*>(start + offset),
                  static_cast<uint64_t>(inside.end - inside.first) * map.elementBytes);
    }
    if (map.roundsToTf32 == 1) roundRow(bytes);
    for (unsigned at = 0; at < boxRowBytes; at += 16) {
      const uint64_t address = reinterpret_cast<uint64_t>(to) + row * boxRowBytes + at;
      std::memcpy(reinterpret_cast<char*>(address ^ (address >> 7 & 7) << 4), bytes + at, 16);
    }
  }
}

void storeBox(const TensorMap& map, Corner corner, const void* from) {
  const Inside inside = columnsInside(map, corner.column);
  for (unsigned row = 0; row < map.box[1]; ++row) {
    const uint64_t start = addressOfRow(map, corner, row);
    if (start == 0) continue;
    char bytes[boxRowBytes];
    for (unsigned at = 0; at < boxRowBytes; at += 16) {
      const uint64_t address = reinterpret_cast<uint64_t>(from) + row * boxRowBytes + at;
      std::memcpy(bytes + at, reinterpret_cast<const char*>(address ^ (address >> 7 & 7) << 4), 16);
    }
    const auto offset = static_cast<uint64_t>(inside.first) * map.elementBytes;
    std::memcpy(reinterpret_cast<char*>(start + offset), bytes + offset,
                static_cast<uint64_t>(inside.end - inside.first) * map.elementBytes);
  }
}

}  // namespace emulator

using namespace emulator;

EMULATOR_EXPORT int cuTensorMapEncodeTiled(TensorMap* map, int type, unsigned rank, uint64_t address, const uint64_t* sizes,
                                          const uint64_t* strides, const uint32_t* box, const uint32_t* elementStrides,
                                          int interleave, int swizzle, int promotion, int fill) {
  ENTER(context);
  if (map == nullptr || sizes == nullptr || strides == nullptr || box == nullptr || elementStrides == nullptr) {
    return invalidValue;
  }
  if (reinterpret_cast<uint64_t>(map) % 64 != 0 || address == 0 || address % 16 != 0) return invalidValue;
  if (type < 0 || type > 15 || rank == 0 || rank > 5) return invalidValue;
  if (interleave < 0 || interleave > 2 || swizzle < 0 || swizzle > 6 || promotion < 0 || promotion > 3) return invalidValue;
  if (fill < 0 || fill > 1) return invalidValue;
  if (setting("computeMajor") < 9) return notSupported;
  // Holdfast uses none of the other options.
  if (type >= tfloat32Ftz || rank != mapDimensions || interleave != 0 || swizzle != 3 || fill != 0) return notSupported;
  const unsigned bytes = mapElementBytes[type];
  for (unsigned index = 0; index < rank; ++index) {
    if (sizes[index] == 0 || sizes[index] > 1ull << 32 || box[index] == 0 || box[index] > 256) return invalidValue;
    if (elementStrides[index] == 0 || elementStrides[index] > 8) return invalidValue;
    if (index + 1 < rank && (strides[index] % 16 != 0 || strides[index] >= 1ull << 40)) return invalidValue;
    if (elementStrides[index] != 1) return notSupported;
  }
  if (box[0] * bytes % 16 != 0 || box[0] * bytes > boxRowBytes) return invalidValue;
  if (box[2] != 1) return notSupported;
  *map = {mapMark, address, {sizes[0], sizes[1], sizes[2]}, {strides[0], strides[1]}, {box[0], box[1], box[2]}, bytes,
          type == tfloat32 ? 1ull : 0ull, {}};
  return success;
}
