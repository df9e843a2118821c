/** Plain device memory, pinned host memory, and the budget of the device: cuMemAlloc, cuMemHostAlloc and their like. */
#include "memory.h"

#include <sys/mman.h>

#include <map>

#include "control.h"
#include "snapshot.h"
#include "stream.h"

namespace emulator {

namespace {

using Blocks = std::map<uint64_t, uint64_t>;  // address → size
Blocks plain;
Blocks pinned;
uint64_t used = 0;

/** True if one block contains the whole range. An empty range may begin directly after a block. */
bool holds(const Blocks& blocks, uint64_t address, uint64_t size) {
  auto next = blocks.upper_bound(address);
  if (next == blocks.begin()) return false;
  const auto& [start, length] = *--next;
  return address - start <= length && size <= length - (address - start);
}

uint64_t wholePages(uint64_t size) { return (size + pageBytes - 1) / pageBytes * pageBytes; }

/** Followed by a guard page. */
uint64_t mapBlock(uint64_t size) {
  const uint64_t whole = wholePages(size);
  void* memory = mmap(nullptr, whole + pageBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return 0;
  mprotect(memory, whole, PROT_READ | PROT_WRITE);
  return reinterpret_cast<uint64_t>(memory);
}

void unmapBlock(uint64_t address, uint64_t size) {
  munmap(reinterpret_cast<void*>(address), wholePages(size) + pageBytes);
}

}  // namespace

uint64_t usedMemory() { return used; }

bool takeMemory(uint64_t size) {
  const auto total = static_cast<uint64_t>(setting("totalMemory"));
  const auto foreign = static_cast<uint64_t>(setting("foreignMemory"));
  if (foreign + used > total || size > total - foreign - used) return false;
  used += size;
  return true;
}

void giveMemory(uint64_t size) { used -= size; }

bool holdsPlain(uint64_t address, uint64_t size) { return holds(plain, address, size); }

void forEachDeviceMemory(const std::function<void(uint64_t, uint64_t)>& visit) {
  for (const auto& [address, size] : plain) visit(address, wholePages(size));
  forEachMapped(visit);
}

bool holdsDevice(uint64_t address, uint64_t size) {
  if (holdsPlain(address, size)) return true;
  while (size > 0) {
    const uint64_t here = mappedBytesAt(address);
    if (here == 0) return false;
    if (here >= size) return true;
    address += here;
    size -= here;
  }
  return true;
}

bool mayPointTo(uint64_t address) {
  const auto isMapped = [](uint64_t at) { return mappedBytesAt(at) > 0; };
  return isMapped(address) || isMapped(address - 1) || holds(plain, address, 0) || holds(pinned, address, 0);
}

size_t allocationCount() { return plain.size(); }
size_t hostAllocationCount() { return pinned.size(); }

}  // namespace emulator

using namespace emulator;

int emulator_holds(uint64_t address, uint64_t size) {
  std::lock_guard<std::recursive_mutex> hold(lock());
  return holdsDevice(address, size) ? 1 : 0;
}

int emulator_is_allocated(uint64_t address, uint64_t size) {
  std::lock_guard<std::recursive_mutex> hold(lock());
  return holdsPlain(address, size) ? 1 : 0;
}

EMULATOR_EXPORT int cuMemGetInfo_v2(size_t* free, size_t* total) {
  ENTER(context);
  const auto all = static_cast<uint64_t>(setting("totalMemory"));
  const uint64_t taken = static_cast<uint64_t>(setting("foreignMemory")) + used;
  *free = taken > all ? 0 : all - taken;
  *total = all;
  return success;
}

EMULATOR_EXPORT int cuMemAlloc_v2(uint64_t* memory, size_t size) {
  ENTER_OUTSIDE_CAPTURE(context);
  if (size == 0 || memory == nullptr) return invalidValue;
  if (!takeMemory(size)) return outOfMemory;
  const uint64_t address = mapBlock(size);
  if (address == 0) {
    giveMemory(size);
    return outOfMemory;
  }
  plain[address] = size;
  *memory = address;
  return success;
}

EMULATOR_EXPORT int cuMemFree_v2(uint64_t memory) {
  ENTER_OUTSIDE_CAPTURE(context);
  const auto found = plain.find(memory);
  if (found == plain.end()) return invalidValue;
  if (const int status = runAllWork()) return status;
  unmapBlock(memory, found->second);
  dropPages(memory, wholePages(found->second));
  giveMemory(found->second);
  plain.erase(found);
  return success;
}

EMULATOR_EXPORT int cuMemHostAlloc(uint64_t* memory, size_t size, unsigned flags) {
  ENTER_OUTSIDE_CAPTURE(context);
  if (size == 0 || memory == nullptr || flags > 7) return invalidValue;
  const uint64_t address = mapBlock(size);
  if (address == 0) return outOfMemory;
  pinned[address] = size;
  *memory = address;
  return success;
}

EMULATOR_EXPORT int cuMemFreeHost(uint64_t memory) {
  ENTER_OUTSIDE_CAPTURE(context);
  const auto found = pinned.find(memory);
  if (found == pinned.end()) return invalidValue;
  if (const int status = runAllWork()) return status;
  unmapBlock(memory, found->second);
  pinned.erase(found);
  return success;
}
