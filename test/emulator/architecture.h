/** The architecture of machine code, as an image has it. */
#pragma once

namespace emulator {

/** Added to the number of "sm_90a": its code runs on 9.0 alone. Code of "sm_120" also runs on 12.1. */
constexpr unsigned onlyThisCapability = 1u << 16;

}  // namespace emulator
