/** Compilation of a kernel with g++. */
#pragma once

#include <string>

namespace emulator {

struct Compiled {
  /** 0, or NVRTC's error code. */
  int status;
  std::string log;
  /** The image that cuModuleLoadData accepts. */
  std::string image;
};

struct CompileOptions {
  /** 90 for sm_90, with `onlyThisCapability` for sm_90a; 0 if machine code was not requested. */
  unsigned architecture = 0;
  bool hasFma = true;
};

Compiled compile(const std::string& source, const std::string& name, const CompileOptions& options);

/** A number that changes with the emulation, so that no cache keeps an object of an older one. */
int emulationNumber();

}  // namespace emulator
