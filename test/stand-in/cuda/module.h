/** Compiled kernels that are loaded. */
#pragma once

#include <cstddef>

namespace standin {

size_t moduleCount();

}  // namespace standin
