/** Modules, their functions and launches. NVRTC's emulator compiles to a shared object, which is opened here. */
#include "module.h"

#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "../architecture.h"
#include "../kernel-folder.h"
#include "block.h"
#include "control.h"
#include "memory.h"
#include "stream.h"

namespace emulator {

namespace {

struct Module {
  void* object;
  const EmulatorModule* table;
};

struct Function {
  uint64_t module;
  const EmulatorKernel* kernel;
  /** The maximal dynamic shared memory of a launch. */
  unsigned maxDynamicShared = emulatorSharedLimit;
};

Registry<Module> modules(0xb0);
Registry<Function> functions(0xc0);

bool isForThisDevice(unsigned architecture) {
  const unsigned number = architecture & ~onlyThisCapability;
  const bool isExact = number == 10 * setting("computeMajor") + setting("computeMinor");
  if ((architecture & onlyThisCapability) != 0) return isExact;
  return number / 10 == setting("computeMajor") && number % 10 <= setting("computeMinor");
}

/** The object's file, written if it is missing: a kernel may come from a cache. */
std::string pathOf(const EmulatorImage& image) {
  const std::string folder = kernelFolder();
  const std::string path = folder + "/" + image.name + ".so";
  struct stat found;
  if (stat(path.c_str(), &found) == 0) return path;
  mkdir(folder.c_str(), 0700);
  const std::string unfinished = path + "." + std::to_string(getpid()) + ".part";
  std::FILE* file = std::fopen(unfinished.c_str(), "wb");
  if (file == nullptr) return "";
  std::fwrite(&image + 1, 1, image.size, file);
  std::fclose(file);
  std::rename(unfinished.c_str(), path.c_str());
  return path;
}

/**
 * A launch's arguments, copied: the caller may change them directly after the call. Each is aligned for a
 * tensor map.
 */
struct Arguments {
  struct alignas(64) Line {
    char bytes[64];
  };
  std::vector<Line> lines;
  std::vector<void*> pointers;

  Arguments(const EmulatorKernel& kernel, void** values) {
    const auto linesOf = [&](unsigned index) { return (kernel.sizes[index] + sizeof(Line) - 1) / sizeof(Line); };
    size_t count = 0;
    for (unsigned index = 0; index < kernel.parameterCount; ++index) count += linesOf(index);
    lines.resize(count);
    count = 0;
    for (unsigned index = 0; index < kernel.parameterCount; ++index) {
      std::memcpy(&lines[count], values[index], kernel.sizes[index]);
      pointers.push_back(&lines[count]);
      count += linesOf(index);
    }
  }

  /** What is wrong with a pointer among them. */
  Fault findFault(const EmulatorKernel& kernel) const {
    for (unsigned index = 0; index < kernel.parameterCount; ++index) {
      const unsigned alignment = kernel.pointeeAlignments[index];
      if (alignment == 0) continue;
      const uint64_t address = *static_cast<const uint64_t*>(pointers[index]);
      const auto faultOf = [&](int status, const char* what) -> Fault {
        return {status, kernel.name + (": parameter " + std::to_string(index)) + what};
      };
      if (address != 0 && !mayPointTo(address)) return faultOf(illegalAddress, " is an invalid pointer");
      if (address % alignment != 0) return faultOf(misalignedAddress, " is a pointer to a misaligned address");
    }
    return {};
  }
};

int runFunction(uint64_t handle, const Grid& grid, Arguments& arguments) {
  const Function* function = functions.find(handle);
  Module* module = function ? modules.find(function->module) : nullptr;
  if (module == nullptr) {
    setStickyError(illegalAddress, "a launch of a kernel whose module was unloaded");
    return illegalAddress;
  }
  const EmulatorKernel& kernel = *function->kernel;
  Fault fault = arguments.findFault(kernel);
  if (fault.status == success) fault = runGrid(*module->table, kernel, grid, arguments.pointers.data());
  if (fault.status != success) setStickyError(fault.status, fault.text);
  return fault.status;
}

}  // namespace

size_t moduleCount() { return modules.size(); }

}  // namespace emulator

using namespace emulator;

EMULATOR_EXPORT int cuModuleLoadData(uint64_t* module, const EmulatorImage* image) {
  ENTER_OUTSIDE_CAPTURE(context);
  if (module == nullptr || image == nullptr) return invalidValue;
  if (std::memcmp(image->magic, EMULATOR_IMAGE_MAGIC, sizeof image->magic) != 0) return invalidImage;
  if (!isForThisDevice(image->architecture)) return noBinaryForGpu;
  void* object = openKernel(pathOf(*image));
  if (object == nullptr) return invalidImage;
  const EmulatorModule* table = findModule(object, image->name);
  if (table == nullptr) return invalidImage;
  *module = modules.add({object, table});
  return success;
}

EMULATOR_EXPORT int cuModuleUnload(uint64_t handle) {
  ENTER_OUTSIDE_CAPTURE(context);
  Module* module = modules.find(handle);
  if (module == nullptr) return invalidHandle;
  if (const int status = runAllWork()) return status;
  for (auto each = functions.begin(); each != functions.end();) {
    const uint64_t function = each->first;
    const bool isItsOwn = each->second.module == handle;
    ++each;
    if (isItsOwn) functions.remove(function);
  }
  dlclose(module->object);
  modules.remove(handle);
  return success;
}

EMULATOR_EXPORT int cuModuleGetFunction(uint64_t* function, uint64_t handle, const char* name) {
  ENTER(context);
  const Module* module = modules.find(handle);
  if (module == nullptr) return invalidHandle;
  if (function == nullptr || name == nullptr) return invalidValue;
  for (unsigned index = 0; index < module->table->kernelCount; ++index) {
    if (std::strcmp(module->table->kernels[index].name, name) != 0) continue;
    *function = functions.add({handle, &module->table->kernels[index]});
    return success;
  }
  return notFound;
}

EMULATOR_EXPORT int cuFuncGetAttribute(int* value, int attribute, uint64_t handle) {
  ENTER(context);
  const Function* function = functions.find(handle);
  if (function == nullptr) return invalidHandle;
  const EmulatorModule& table = *modules.find(function->module)->table;
  switch (attribute) {
    case 0: *value = static_cast<int>(function->kernel->maxThreads); return success;
    case 1: *value = static_cast<int>(table.sharedEnd - table.sharedStart); return success;
    case 2: case 3: *value = 0; return success;
    case 4: *value = 32; return success;
    case 5: case 6: *value = static_cast<int>(10 * setting("computeMajor") + setting("computeMinor")); return success;
    case 8: *value = emulatorSharedLimit; return success;
    default: return invalidValue;
  }
}

/**
 * Dynamic shared memory is in the module already, or in memory for clusters, so that only its size is
 * checked.
 */
EMULATOR_EXPORT int cuFuncSetAttribute(uint64_t handle, int attribute, int value) {
  ENTER(context);
  Function* function = functions.find(handle);
  if (function == nullptr) return invalidHandle;
  if (attribute != 8) return success;
  const EmulatorModule& table = *modules.find(function->module)->table;
  if (value < 0 || value + (table.sharedEnd - table.sharedStart) > sharedLimit()) return invalidValue;
  function->maxDynamicShared = static_cast<unsigned>(value);
  return success;
}

static int sendLaunch(uint64_t handle, unsigned gridX, unsigned gridY, unsigned gridZ, unsigned blockX, unsigned blockY,
                      unsigned blockZ, unsigned sharedBytes, uint64_t stream, void** arguments, void** extra,
                      bool isPdl) {
  const Function* function = functions.find(handle);
  if (function == nullptr) return invalidHandle;
  const EmulatorKernel& kernel = *function->kernel;
  if (gridX == 0 || gridX > 0x7fffffff || blockX == 0 || extra != nullptr) return invalidValue;
  if (blockX > 1024 || blockX > kernel.maxThreads || sharedBytes > function->maxDynamicShared) return invalidValue;
  // Holdfast's kernels have grids and blocks of one dimension.
  if (gridY != 1 || gridZ != 1 || blockY != 1 || blockZ != 1) return notSupported;
  if (gridX % kernel.clusterSize != 0) return invalidClusterSize;
  if (arguments == nullptr && kernel.parameterCount > 0) return invalidValue;
  auto copied = std::make_shared<Arguments>(kernel, arguments);
  const Grid grid = {gridX, blockX, sharedBytes, isPdl};
  return submit(stream, kernelNode, [=] { return runFunction(handle, grid, *copied); });
}

EMULATOR_EXPORT int cuLaunchKernel(uint64_t handle, unsigned gridX, unsigned gridY, unsigned gridZ, unsigned blockX,
                                  unsigned blockY, unsigned blockZ, unsigned sharedBytes, uint64_t stream,
                                  void** arguments, void** extra) {
  ENTER(context);
  return sendLaunch(handle, gridX, gridY, gridZ, blockX, blockY, blockZ, sharedBytes, stream, arguments, extra, false);
}

namespace {

/** As in cuda.h: an attribute's value is a union, whose first number is a boolean. */
struct LaunchAttribute {
  int id;
  int padding;
  int value[16];
};
struct LaunchConfig {
  unsigned gridX, gridY, gridZ, blockX, blockY, blockZ, sharedBytes;
  uint64_t stream;
  const LaunchAttribute* attributes;
  unsigned count;
};

constexpr int programmaticSerialization = 6;

}  // namespace

/**
 * A PDL launch runs in its turn here; with the setting `early` it sees the memory that an early start would
 * see.
 */
EMULATOR_EXPORT int cuLaunchKernelEx(const LaunchConfig* config, uint64_t handle, void** arguments, void** extra) {
  ENTER(context);
  if (config == nullptr || (config->count > 0 && config->attributes == nullptr)) return invalidValue;
  bool isPdl = false;
  for (unsigned index = 0; index < config->count; ++index) {
    if (config->attributes[index].id != programmaticSerialization) return notSupported;
    isPdl = config->attributes[index].value[0] != 0;
  }
  return sendLaunch(handle, config->gridX, config->gridY, config->gridZ, config->blockX, config->blockY, config->blockZ,
                    config->sharedBytes, config->stream, arguments, extra, isPdl);
}
