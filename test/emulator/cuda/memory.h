/** The existing memory: what is device memory, what is pinned, and how much of the device is used. */
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace emulator {

/** The granularity of the virtual memory API: of all ranges that are reserved, created or mapped. */
constexpr uint64_t granularity = 2ull << 20;
/** The largest page size of the supported machines; every allocation has whole pages. */
constexpr uint64_t pageBytes = 64 << 10;

uint64_t usedMemory();
/** Allocates bytes of a device, or returns false if it has no more. */
bool takeMemory(uint64_t size);
void giveMemory(uint64_t size);

bool holdsPlain(uint64_t address, uint64_t size);
/** The number of mapped and accessible bytes from this address on. */
uint64_t mappedBytesAt(uint64_t address);

/** The mapped and accessible memory. */
void forEachMapped(const std::function<void(uint64_t address, uint64_t size)>& visit);
/** All accessible device memory, in whole pages. */
void forEachDeviceMemory(const std::function<void(uint64_t address, uint64_t size)>& visit);

/** True if the whole range is device memory. */
bool holdsDevice(uint64_t address, uint64_t size);
/** True if a kernel's pointer may point here: into device or pinned memory, or directly after it. */
bool mayPointTo(uint64_t address);

size_t reservationCount();
size_t allocationCount();
size_t hostAllocationCount();

}  // namespace emulator
