/**
 * NVTX as compute-sanitizer's memcheck sees it: the pools, and the regions of them that are in use. A pool is memory of
 * cuMemAlloc. Invalid parameters are errors of the program: the tool counts them like a stray access.
 */

#include <cstdint>
#include <iterator>
#include <map>

#include "../emulator.h"

namespace {

constexpr uint16_t version = 0x0102;

struct Range {
  uint64_t size;
  uint64_t address;
};

struct PoolDescription {
  uint16_t version, size;
  uint32_t reserved, usage, type;
  uint64_t rangeSize;
  const Range* range;
  uint32_t category, messageType;
  const char* message;
};

struct Regions {
  uint16_t version, size;
  uint32_t type;
  uint64_t pool, count, rangeSize;
  const Range* ranges;
  void* handles;
};

struct References {
  uint16_t version, size;
  uint32_t type;
  uint64_t count, referenceSize;
  const uint64_t* addresses;
};

constexpr uint32_t subAllocator = 1, virtualAddress = 1, byPointer = 1;
constexpr uint64_t domain = 0xd0;

/** By address, with their sizes. */
std::map<uint64_t, uint64_t> pools;
std::map<uint64_t, uint64_t> regions;
uint64_t errors = 0;

bool holds(const std::map<uint64_t, uint64_t>& ranges, uint64_t address, uint64_t size) {
  auto next = ranges.upper_bound(address);
  if (next == ranges.begin()) return false;
  auto found = std::prev(next);
  return address + size <= found->first + found->second;
}

}  // namespace

EMULATOR_EXPORT uint64_t nvtxDomainCreateA(const char* name) { return name ? domain : 0; }

EMULATOR_EXPORT void nvtxDomainDestroy(uint64_t) {}

EMULATOR_EXPORT uint64_t nvtxMemHeapRegister(uint64_t owner, const PoolDescription* pool) {
  // NVTX's result without a tool.
  if (emulator_note("nvtxMemHeapRegister") != 0) return UINT64_MAX;
  bool isSound = owner == domain && pool->version == version && pool->size == sizeof *pool &&
                 pool->usage == subAllocator && pool->type == virtualAddress && pool->rangeSize == sizeof(Range) &&
                 emulator_is_allocated(pool->range->address, pool->range->size) != 0;
  if (!isSound) {
    errors++;
    return 0;
  }
  pools[pool->range->address] = pool->range->size;
  return pool->range->address;
}

EMULATOR_EXPORT void nvtxMemHeapUnregister(uint64_t, uint64_t pool) {
  auto found = pools.find(pool);
  if (found == pools.end()) return;
  regions.erase(regions.lower_bound(pool), regions.lower_bound(pool + found->second));
  pools.erase(found);
}

EMULATOR_EXPORT void nvtxMemRegionsRegister(uint64_t owner, const Regions* batch) {
  bool isSound = owner == domain && batch->version == version && batch->size == sizeof *batch &&
                 batch->type == virtualAddress && batch->rangeSize == sizeof(Range) && pools.count(batch->pool);
  if (!isSound) {
    errors++;
    return;
  }
  for (uint64_t index = 0; index < batch->count; index++) {
    const Range& range = batch->ranges[index];
    bool isInside = range.address >= batch->pool && range.address + range.size <= batch->pool + pools[batch->pool];
    if (isInside)
      regions[range.address] = range.size;
    else
      errors++;
  }
}

EMULATOR_EXPORT void nvtxMemRegionsUnregister(uint64_t owner, const References* batch) {
  bool isSound = owner == domain && batch->version == version && batch->size == sizeof *batch &&
                 batch->type == byPointer && batch->referenceSize == sizeof(uint64_t);
  if (!isSound) {
    errors++;
    return;
  }
  for (uint64_t index = 0; index < batch->count; index++) errors += regions.erase(batch->addresses[index]) == 0;
}

/** True if the tool knows this range as part of one pool. */
EMULATOR_EXPORT int emulator_pool_holds(uint64_t address, uint64_t size) { return holds(pools, address, size); }

/** True if the tool knows this range as one region in use. */
EMULATOR_EXPORT int emulator_region_holds(uint64_t address, uint64_t size) { return holds(regions, address, size); }

/** The number of pools and regions that it knows. */
EMULATOR_EXPORT uint64_t emulator_pools() { return pools.size(); }

EMULATOR_EXPORT uint64_t emulator_regions() { return regions.size(); }

/** The number of calls with invalid parameters. */
EMULATOR_EXPORT uint64_t emulator_nvtx_errors() { return errors; }
