/** Compiled kernels that are loaded. */
#pragma once

#include <cstddef>

namespace emulator {

size_t moduleCount();

}  // namespace emulator
