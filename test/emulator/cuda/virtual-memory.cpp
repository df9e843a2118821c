/**
 * The virtual memory API: an address range is reserved without memory. Physical memory is created, mapped
 * into it and made accessible, in multiples of 2 MiB. Other addresses can't be accessed. Physical memory has
 * one mapping at a time, and its bytes do not outlive the mapping.
 */
#include <sys/mman.h>

#include <map>

#include "control.h"
#include "memory.h"
#include "snapshot.h"
#include "stream.h"

namespace emulator {

namespace {

struct Reservation {
  uint64_t size;
  /** The range that the system gave, from which an aligned range was cut. */
  uint64_t raw;
  uint64_t rawSize;
};

struct Physical {
  uint64_t size;
  bool isMapped = false;
  bool isReleased = false;
};

struct Mapping {
  uint64_t size;
  uint64_t handle;
  bool isAccessible;
};

struct Location {
  int type;
  int id;
};

struct AllocationProperty {
  int type;
  int handleTypes;
  Location location;
  void* windows;
  unsigned char flags[8];
};

struct AccessDescription {
  Location location;
  int flags;
};

std::map<uint64_t, Reservation> reservations;
std::map<uint64_t, Mapping> mappings;
Registry<Physical> physical(0x50);

constexpr int reservedPages = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
constexpr int pinnedType = 1, deviceLocation = 1, readWrite = 3;

bool isWhole(uint64_t size) { return size > 0 && size % granularity == 0; }

bool isUsable(const AllocationProperty* property) {
  return property != nullptr && property->type == pinnedType && property->location.type == deviceLocation &&
         property->location.id >= 0 && property->location.id < setting("devices") && property->handleTypes == 0;
}

/** The last entry that begins at or before the address, or the end. */
template <class Map>
auto floorOf(Map& map, uint64_t address) {
  auto next = map.upper_bound(address);
  return next == map.begin() ? map.end() : --next;
}

/** True if a range consists of whole mappings, with no gap. */
bool isOfWholeMappings(uint64_t address, uint64_t size) {
  const uint64_t end = address + size;
  while (address < end) {
    const auto found = mappings.find(address);
    if (found == mappings.end()) return false;
    address += found->second.size;
  }
  return address == end;
}

void giveIfUnused(uint64_t handle) {
  Physical* memory = physical.find(handle);
  if (memory == nullptr || memory->isMapped || !memory->isReleased) return;
  giveMemory(memory->size);
  physical.remove(handle);
}

}  // namespace

uint64_t mappedBytesAt(uint64_t address) {
  const auto found = floorOf(mappings, address);
  if (found == mappings.end() || !found->second.isAccessible) return 0;
  const uint64_t offset = address - found->first;
  return offset < found->second.size ? found->second.size - offset : 0;
}

void forEachMapped(const std::function<void(uint64_t, uint64_t)>& visit) {
  for (const auto& [address, mapping] : mappings) {
    if (mapping.isAccessible) visit(address, mapping.size);
  }
}

size_t reservationCount() { return reservations.size(); }

}  // namespace emulator

using namespace emulator;

EMULATOR_EXPORT int cuMemGetAllocationGranularity(size_t* size, const AllocationProperty* property, int option) {
  ENTER(init);
  if (size == nullptr || !isUsable(property) || option < 0 || option > 1) return invalidValue;
  if (!setting("virtualMemory")) return notSupported;
  *size = granularity;
  return success;
}

EMULATOR_EXPORT int cuMemAddressReserve(uint64_t* address, size_t size, size_t alignment, uint64_t, uint64_t flags) {
  ENTER_OUTSIDE_CAPTURE(context);
  if (!setting("virtualMemory")) return notSupported;
  if (address == nullptr || !isWhole(size) || flags != 0) return invalidValue;
  if ((alignment & (alignment - 1)) != 0) return invalidValue;
  const uint64_t step = alignment > granularity ? alignment : granularity;
  const uint64_t rawSize = size + step;
  void* raw = mmap(nullptr, rawSize, PROT_NONE, reservedPages, -1, 0);
  if (raw == MAP_FAILED) return outOfMemory;
  const auto start = reinterpret_cast<uint64_t>(raw);
  *address = (start + step - 1) / step * step;
  reservations[*address] = {size, start, rawSize};
  return success;
}

EMULATOR_EXPORT int cuMemAddressFree(uint64_t address, size_t size) {
  ENTER_OUTSIDE_CAPTURE(context);
  const auto found = reservations.find(address);
  if (found == reservations.end() || found->second.size != size) return invalidValue;
  const auto mapped = mappings.lower_bound(address);
  if (mapped != mappings.end() && mapped->first < address + size) return invalidValue;
  munmap(reinterpret_cast<void*>(found->second.raw), found->second.rawSize);
  reservations.erase(found);
  return success;
}

EMULATOR_EXPORT int cuMemCreate(uint64_t* handle, size_t size, const AllocationProperty* property, uint64_t flags) {
  ENTER_OUTSIDE_CAPTURE(context);
  if (!setting("virtualMemory")) return notSupported;
  if (handle == nullptr || !isUsable(property) || !isWhole(size) || flags != 0) return invalidValue;
  if (!takeMemory(size)) return outOfMemory;
  *handle = physical.add({size});
  return success;
}

EMULATOR_EXPORT int cuMemRelease(uint64_t handle) {
  ENTER_OUTSIDE_CAPTURE(context);
  Physical* memory = physical.find(handle);
  if (memory == nullptr || memory->isReleased) return invalidValue;
  memory->isReleased = true;
  giveIfUnused(handle);
  return success;
}

EMULATOR_EXPORT int cuMemMap(uint64_t address, size_t size, size_t offset, uint64_t handle, uint64_t flags) {
  ENTER_OUTSIDE_CAPTURE(context);
  if (!setting("canMap")) return notSupported;
  Physical* memory = physical.find(handle);
  if (memory == nullptr || memory->isReleased || offset != 0 || flags != 0) return invalidValue;
  if (!isWhole(size) || size > memory->size || address % granularity != 0) return invalidValue;
  if (memory->isMapped) return notSupported;
  const auto range = floorOf(reservations, address);
  if (range == reservations.end() || address + size > range->first + range->second.size) return invalidValue;
  const auto before = floorOf(mappings, address + size - 1);
  if (before != mappings.end() && before->first + before->second.size > address) return invalidValue;
  memory->isMapped = true;
  mappings[address] = {size, handle, false};
  return success;
}

EMULATOR_EXPORT int cuMemSetAccess(uint64_t address, size_t size, const AccessDescription* descriptions, size_t count) {
  ENTER_OUTSIDE_CAPTURE(context);
  if (descriptions == nullptr || count != 1 || descriptions->location.type != deviceLocation) return invalidValue;
  if (size == 0 || !isOfWholeMappings(address, size)) return invalidValue;
  if (descriptions->flags != readWrite && descriptions->flags != 0) return notSupported;
  const bool isAccessible = descriptions->flags == readWrite;
  if (mprotect(reinterpret_cast<void*>(address), size, isAccessible ? PROT_READ | PROT_WRITE : PROT_NONE) != 0) {
    return outOfMemory;
  }
  dropPages(address, size);
  for (auto each = mappings.find(address); each != mappings.end() && each->first < address + size; ++each) {
    each->second.isAccessible = isAccessible;
  }
  return success;
}

EMULATOR_EXPORT int cuMemUnmap(uint64_t address, size_t size) {
  ENTER_OUTSIDE_CAPTURE(context);
  if (size == 0 || !isOfWholeMappings(address, size)) return invalidValue;
  if (const int status = runAllWork()) return status;
  // A fresh inaccessible mapping frees the old pages.
  mmap(reinterpret_cast<void*>(address), size, PROT_NONE, reservedPages | MAP_FIXED, -1, 0);
  dropPages(address, size);
  for (auto each = mappings.find(address); each != mappings.end() && each->first < address + size;) {
    const uint64_t handle = each->second.handle;
    physical.find(handle)->isMapped = false;
    each = mappings.erase(each);
    giveIfUnused(handle);
  }
  return success;
}
