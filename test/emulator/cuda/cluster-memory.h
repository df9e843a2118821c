/**
 * Shared memory that comes with a launch, for blocks that run side by side: equal places for each, with nothing behind
 * them, so that who goes beyond the end is found out.
 */
#pragma once

#include <cstddef>
#include <cstdint>

namespace emulator {

/** Closes what was open, and answers where the first block's memory of this size begins. */
uint64_t prepareClusterMemory(size_t bytes);
/** Opens a block's memory, filled with NaN of every format. */
void openClusterMemory(unsigned rank, size_t bytes);
/** A block has ended: nobody may reach into its memory any more. */
void closeClusterMemory(unsigned rank);
/** Whose memory this address would be of; -1 where nobody's. */
int clusterRankOf(const void* address);

}  // namespace emulator
