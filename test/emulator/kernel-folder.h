/**
 * The folder of compiled kernels: next to the folder of the libraries, so that kernels outlive changes of the
 * emulator.
 */
#pragma once

#include <dlfcn.h>

#include <string>

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

}  // namespace emulator
