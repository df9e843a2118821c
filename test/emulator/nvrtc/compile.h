/** One kernel's way through g++. */
#pragma once

#include <string>

namespace emulator {

struct Compiled {
  /** 0, or NVRTC's number for what went wrong. */
  int status;
  std::string log;
  /** What cuModuleLoadData takes. */
  std::string image;
};

struct CompileOptions {
  /** 90 for sm_90; 0 where machine code was not asked for. */
  unsigned architecture = 0;
  bool fusesProducts = true;
};

Compiled compile(const std::string& source, const std::string& name, const CompileOptions& options);

/** A number that changes whenever the emulation does, so that nobody's cache keeps what an older one compiled. */
int emulationNumber();

}  // namespace emulator
