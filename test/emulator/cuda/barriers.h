/** How threads of a block, of a warp and of a cluster wait for each other: the functions that a kernel calls. */
#pragma once

#include "../kernel-table.h"

namespace emulator {

void hookBarrier(int line);
void hookGridDependencyWait();
unsigned long long hookExchange(EmulatorExchange kind, unsigned mask, unsigned long long value, unsigned source);
void hookNamedBarrier(unsigned barrier, unsigned threads, int line);
void hookClusterArrive(int line);
void hookClusterWait(int line);

}  // namespace emulator
