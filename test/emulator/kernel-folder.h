/**
 * The folder of compiled kernels, and how they are opened. The folder is next to that of the libraries, so that kernels outlive changes
 * of the emulator.
 */
#pragma once

#include <dlfcn.h>

#include <string>

#include "kernel-table.h"

namespace emulator {

/** The folder of the calling library. */
inline std::string libraryFolder() {
  static const char mark = 0;
  Dl_info info;
  dladdr(&mark, &info);
  const std::string path = info.dli_fname;
  return path.substr(0, path.rfind('/'));
}

inline std::string kernelFolder() {
  const std::string folder = libraryFolder();
  return folder.substr(0, folder.rfind('/')) + "/holdfast-emulator-kernels";
}

/** Opens a kernel's object, after the library whose mathematical functions it calls. Null if that fails. */
inline void* openKernel(const std::string& path) {
  static void* const math = dlopen("libm.so.6", RTLD_NOW | RTLD_GLOBAL);
  return math == nullptr ? nullptr : dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
}

/** The table of a module; null if the object does not have it. */
inline const EmulatorModule* findModule(void* object, const std::string& name) {
  return static_cast<const EmulatorModule*>(dlsym(object, ("emulator_module_" + name).c_str()));
}

}  // namespace emulator
