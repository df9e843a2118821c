/** Threads of a kernel as fibers of one thread: each has a stack, and runs until it yields. */
#pragma once

#include <cstddef>

namespace emulator {

/** A stack for every thread of the concurrent blocks. They are kept from one block to the next. */
class Stacks {
 public:
  /** The top of a stack, where a fiber begins. */
  char* top(size_t index);
};

/** Leaves the running fiber, saves its stack pointer in `from`, and resumes the other. */
extern "C" void emulator_switch(void** from, void* to);

/** A stack pointer that starts `entry` at the first switch; `entry` must not return. */
void* prepareFiber(char* top, void (*entry)());

}  // namespace emulator
