/** Runs the blocks of a launch. */
#pragma once

#include <string>

#include "../kernel-table.h"

namespace standin {

struct Fault {
  int status = 0;
  std::string text;
};

/** Runs all blocks of a grid, one cluster after the other. A fault ends the launch. */
Fault runGrid(const StandinModule& module, const StandinKernel& kernel, unsigned blocks, unsigned threads,
              unsigned sharedBytes, void** arguments);

}  // namespace standin
