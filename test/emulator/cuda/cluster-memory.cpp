/** One reservation with a slot for each block of a cluster; a block's memory ends at the end of its slot. */
#include "cluster-memory.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "../kernel-table.h"

namespace emulator {

namespace {

constexpr size_t partBytes = 256 << 10, reservedBytes = emulatorClusterLimit * emulatorClusterStride;
static_assert(partBytes >= emulatorDynamicSharedLimit && partBytes < emulatorClusterStride, "a guard after each slot");

char* reserved() {
  static char* const memory = [] {
    void* made = mmap(nullptr, reservedBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (made == MAP_FAILED) std::abort();
    return static_cast<char*>(made);
  }();
  return memory;
}

/** As near to the end of its slot as tiles of 1024 bytes allow. */
size_t offsetOf(size_t bytes) { return (partBytes - bytes) / 1024 * 1024; }

}  // namespace

uint64_t prepareClusterMemory(size_t bytes) {
  mprotect(reserved(), reservedBytes, PROT_NONE);
  return reinterpret_cast<uint64_t>(reserved() + offsetOf(bytes));
}

void openClusterMemory(unsigned rank, size_t bytes) {
  char* part = reserved() + static_cast<size_t>(rank) * emulatorClusterStride;
  const size_t offset = offsetOf(bytes), opened = offset & ~size_t{4095};
  if (opened == partBytes) return;
  mprotect(part + opened, partBytes - opened, PROT_READ | PROT_WRITE);
  std::memset(part + offset, 0xff, partBytes - offset);
}

void closeClusterMemory(unsigned rank) {
  mprotect(reserved() + static_cast<size_t>(rank) * emulatorClusterStride, partBytes, PROT_NONE);
}

int clusterRankOf(const void* address) {
  const uint64_t distance = reinterpret_cast<uint64_t>(address) - reinterpret_cast<uint64_t>(reserved());
  return distance < reservedBytes ? static_cast<int>(distance / emulatorClusterStride) : -1;
}

}  // namespace emulator
