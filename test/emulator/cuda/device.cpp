/** Devices and their contexts. */
#include <cstring>
#include <map>

#include "control.h"

namespace emulator {

namespace {

bool initialized = false;
std::map<int, int> primaryContexts;  // by device: the number of retains
thread_local uint64_t currentContext = 0;

constexpr uint64_t contextBase = 0x1000;

bool isDevice(int device) { return device >= 0 && device < setting("devices"); }

long long attributeOf(int attribute) {
  switch (attribute) {
    case 1: return 1024;        // threads of a block
    case 2: case 3: return 1024;
    case 4: return 64;
    case 5: return 0x7fffffff;  // blocks of a grid
    case 6: case 7: return 65535;
    case 8: return 48 << 10;    // shared memory of a block
    case 10: return 32;         // threads of a warp
    case 12: return 65536;
    case 13: case 36: return 1'000'000;
    case 16: return setting("multiprocessors");
    case 18: return setting("integrated");
    case 38: return 8 << 20;
    case 39: return 2048;
    case 41: return 1;
    case 75: return setting("computeMajor");
    case 76: return setting("computeMinor");
    case 81: return sharedLimit() + (1 << 10);
    case 97: return sharedLimit();
    case 102: return setting("virtualMemory");
    case 115: return 1;
    default: return 0;
  }
}

}  // namespace

long long sharedLimit() {
  const long long major = setting("computeMajor"), minor = setting("computeMinor");
  if (major == 12 || (major == 8 && (minor == 6 || minor == 9))) return 99 << 10;
  return (major < 8 ? 64 : major == 8 ? 163 : 227) << 10;
}

bool isInitialized() { return initialized; }

int currentDevice() {
  if (currentContext == 0) return -1;
  const int device = static_cast<int>(currentContext - contextBase);
  return primaryContexts[device] > 0 ? device : -1;
}

}  // namespace emulator

using namespace emulator;

EMULATOR_EXPORT int cuInit(unsigned flags) {
  ENTER(nothing);
  if (flags != 0) return invalidValue;
  if (setting("devices") == 0) return noDevice;
  initialized = true;
  return success;
}

EMULATOR_EXPORT int cuDriverGetVersion(int* version) {
  ENTER(nothing);
  *version = static_cast<int>(setting("driverVersion"));
  return success;
}

EMULATOR_EXPORT int cuDeviceGetCount(int* count) {
  ENTER(init);
  *count = static_cast<int>(setting("devices"));
  return success;
}

EMULATOR_EXPORT int cuDeviceGet(int* device, int ordinal) {
  ENTER(init);
  if (!isDevice(ordinal)) return invalidDevice;
  *device = ordinal;
  return success;
}

EMULATOR_EXPORT int cuDeviceGetName(char* name, int length, int device) {
  ENTER(init);
  if (!isDevice(device)) return invalidDevice;
  if (length <= 0) return invalidValue;
  std::strncpy(name, "Emulator GPU", static_cast<size_t>(length) - 1);
  name[length - 1] = 0;
  return success;
}

EMULATOR_EXPORT int cuDeviceGetUuid_v2(unsigned char* uuid, int device) {
  ENTER(init);
  if (!isDevice(device)) return invalidDevice;
  for (int index = 0; index < 16; ++index) uuid[index] = static_cast<unsigned char>(0xa0 + index);
  uuid[15] = static_cast<unsigned char>(device);
  return success;
}

EMULATOR_EXPORT int cuDeviceTotalMem_v2(size_t* bytes, int device) {
  ENTER(init);
  if (!isDevice(device)) return invalidDevice;
  *bytes = static_cast<size_t>(setting("totalMemory"));
  return success;
}

EMULATOR_EXPORT int cuDeviceGetAttribute(int* value, int attribute, int device) {
  ENTER(init);
  if (!isDevice(device)) return invalidDevice;
  if (attribute <= 0) return invalidValue;
  *value = static_cast<int>(attributeOf(attribute));
  return success;
}

EMULATOR_EXPORT int cuDevicePrimaryCtxRetain(uint64_t* context, int device) {
  ENTER(init);
  if (!isDevice(device)) return invalidDevice;
  if (const int sticky = stickyError()) return sticky;
  primaryContexts[device] += 1;
  *context = contextBase + static_cast<uint64_t>(device);
  return success;
}

EMULATOR_EXPORT int cuDevicePrimaryCtxRelease_v2(int device) {
  ENTER(init);
  if (!isDevice(device)) return invalidDevice;
  if (primaryContexts[device] == 0) return invalidContext;
  primaryContexts[device] -= 1;
  return success;
}

EMULATOR_EXPORT int cuCtxSetCurrent(uint64_t context) {
  ENTER(init);
  if (context != 0 && primaryContexts[static_cast<int>(context - contextBase)] == 0) return invalidContext;
  currentContext = context;
  return success;
}

EMULATOR_EXPORT int cuCtxGetCurrent(uint64_t* context) {
  ENTER(init);
  *context = currentContext;
  return success;
}
