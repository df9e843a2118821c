/** Compilation of a kernel with g++. */
#pragma once

#include <string>
#include <vector>

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

struct NamedSource {
  std::string name;
  std::string source;
};

/**
 * Compiles kernels without contraction, many in one call of g++, so that `compile` finds their objects. It reports nothing: what does not
 * compile here is compiled again, alone.
 */
void compileTogether(const std::vector<NamedSource>& kernels);

/** A number that changes with the emulation, so that no cache keeps an object of an older one. */
int emulationNumber();

}  // namespace emulator
