/**
 * Dynamic shared memory for blocks that run concurrently: equal slots, each followed by a guard, so that an
 * access beyond the end is found.
 */
#pragma once

#include <cstddef>
#include <cstdint>

namespace emulator {

/** Closes all slots, and returns the address at which the first block's memory of this size begins. */
uint64_t prepareClusterMemory(size_t bytes);
/** Opens a block's memory, filled with NaN of every format. */
void openClusterMemory(unsigned rank, size_t bytes);
/** A block has ended: its memory must not be accessed any more. */
void closeClusterMemory(unsigned rank);
/** The block whose memory contains this address; -1 for none. */
int clusterRankOf(const void* address);

}  // namespace emulator
