/**
 * The memory that a PDL launch sees before it waits, in the worst case: device memory from before the
 * preceding kernel. It is kept while the setting `early` is 1.
 */
#pragma once

#include <memory>
#include <vector>

#include "graph.h"

namespace emulator {

struct Snapshot;

/** Snapshots of the kernels directly before some work; empty if other work precedes it. */
using Snapshots = std::vector<std::shared_ptr<Snapshot>>;

/** Runs work that directly follows the kernels of these snapshots, and replaces them by its own. */
int runAfter(Snapshots& snapshots, int nodeType, const Work& work);

/** True if a kernel directly before the running one has changed anything. */
bool hasSnapshot();
/** From here on the running kernel sees the snapshot. */
void enterSnapshot();
/** Restores the current memory. False if a thread has written to it. */
bool leaveSnapshot();

/** True if a write to this address was interrupted for a snapshot. It can then continue. */
bool openPage(const void* address);
/** Memory that is mapped, unmapped or freed: its protection no longer belongs to the snapshots. */
void dropPages(uint64_t address, uint64_t size);

}  // namespace emulator
