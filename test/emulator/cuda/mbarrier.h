/** Mbarriers: threads and copies arrive, and other threads wait until all have. */
#pragma once

#include <string>

#include "launch.h"

namespace emulator {

void hookMbarrier(EmulatorMbarrierOp op, unsigned long long* mbarrier, unsigned number, int line);
void hookCpAsyncBulk(void* to, const void* from, unsigned bytes, unsigned long long* mbarrier, int line);
void hookTmaLoad(void* to, const void* map, int column, int row, int matrix, unsigned long long* mbarrier, int line);
void hookTmaStore(const void* map, const void* from, int column, int row, int matrix, int line);
void hookBulkCommit();
void hookBulkWaitRead(unsigned pending);

/** True if a copy from shared memory, which the running thread has started, may still read it. */
bool hasStores(const Launch& current);

/** Completes one of the pending copies; false if there is none, or if it ends the launch. */
bool deliverCopy(Launch& current);
bool hasCopiesFor(const Launch& current, unsigned rank);

/** What an mbarrier that blocks its waiting threads lacks. */
std::string describeMbarrier(const uint64_t* mbarrier);

}  // namespace emulator
