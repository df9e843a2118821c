/** Threads of a kernel as fibers of one thread: each has a stack, and runs until it hands control back. */
#pragma once

#include <cstddef>

namespace emulator {

/** A stack for every thread of the blocks that run side by side. They are kept from one block to the next. */
class Stacks {
 public:
  /** The top of a stack, where a fiber begins. */
  char* top(size_t index);
};

/** Leaves the running fiber, keeps its stack pointer in `from`, and goes on where the other left. */
extern "C" void emulator_switch(void** from, void* to);

/** A stack pointer that starts `entry` when it is first switched to; `entry` must not return. */
void* prepareFiber(char* top, void (*entry)());

}  // namespace emulator
