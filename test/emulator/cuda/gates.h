/** Gates (mbarriers): threads and copies pass them, others wait until all have. */
#pragma once

#include <string>

#include "launch.h"

namespace emulator {

void hookGate(EmulatorGateAct act, unsigned long long* gate, unsigned number, int line);
void hookBring(void* to, const void* from, unsigned bytes, unsigned long long* gate, int line);
void hookBringBox(void* to, const void* map, int column, int row, int matrix, unsigned long long* gate, int line);

/** Lets one of the copies come that are still to come; false where there is none, or where it ends the launch. */
bool deliverCopy(Launch& own);
bool hasCopiesFor(const Launch& own, unsigned rank);

/** What a gate that nobody gets through waits for. */
std::string describeGate(const uint64_t* gate);

}  // namespace emulator
