/** Mbarriers: threads and copies arrive, and other threads wait until all have. */
#pragma once

#include <string>

#include "launch.h"

namespace emulator {

void hookGate(EmulatorGateAct act, unsigned long long* gate, unsigned number, int line);
void hookBring(void* to, const void* from, unsigned bytes, unsigned long long* gate, int line);
void hookBringBox(void* to, const void* map, int column, int row, int matrix, unsigned long long* gate, int line);

/** Completes one of the pending copies; false if there is none, or if it ends the launch. */
bool deliverCopy(Launch& own);
bool hasCopiesFor(const Launch& own, unsigned rank);

/** What an mbarrier that blocks its waiting threads lacks. */
std::string describeGate(const uint64_t* gate);

}  // namespace emulator
