/** Runs the blocks of a launch. */
#pragma once

#include <string>

#include "../kernel-table.h"

namespace emulator {

struct Fault {
  int status = 0;
  std::string text;
};

/** How a kernel is launched. */
struct Grid {
  unsigned blocks, threads, sharedBytes;
  /** True if it may start before the preceding kernel has ended (programmatic stream serialization). */
  bool isPdl;
};

/** Runs all blocks of a grid, one cluster after the other. A fault ends the launch. */
Fault runGrid(const EmulatorModule& module, const EmulatorKernel& kernel, const Grid& grid, void** arguments);

}  // namespace emulator
