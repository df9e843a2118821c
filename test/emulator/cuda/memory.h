/** Which memory there is: what may be used as device memory, what is pinned, and how much of the device is taken. */
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace emulator {

/** The unit of the virtual memory API, and of everything that is reserved, created or mapped with it. */
constexpr uint64_t granularity = 2ull << 20;
/** The largest page of the machines that this runs on; all memory has whole ones of its own. */
constexpr uint64_t pageBytes = 64 << 10;

uint64_t usedMemory();
/** Takes bytes of a device, or answers false where it has no more. */
bool takeMemory(uint64_t size);
void giveMemory(uint64_t size);

bool holdsPlain(uint64_t address, uint64_t size);
/** How many bytes from here on are mapped and may be used. */
uint64_t mappedBytesAt(uint64_t address);

/** The memory that is mapped and may be used. */
void forEachMapped(const std::function<void(uint64_t address, uint64_t size)>& visit);
/** All device memory that may be used, in whole pages. */
void forEachDeviceMemory(const std::function<void(uint64_t address, uint64_t size)>& visit);

/** Device memory, all of the range. */
bool holdsDevice(uint64_t address, uint64_t size);
/** Where a kernel's pointer may point: into device or pinned memory, or right behind it. */
bool mayPointTo(uint64_t address);

size_t reservationCount();
size_t allocationCount();
size_t hostAllocationCount();

}  // namespace emulator
