/** Devices, contexts and the names of errors. */
#include <cstring>
#include <map>

#include "control.h"

namespace standin {

namespace {

bool initialized = false;
std::map<int, int> primaryContexts;  // by device: how often each is retained
thread_local uint64_t currentContext = 0;

constexpr uint64_t contextBase = 0x1000;

bool isDevice(int device) { return device >= 0 && device < setting("devices"); }

struct ErrorText {
  const char* name;
  const char* text;
};

const std::map<int, ErrorText> errorTexts = {
    {0, {"CUDA_SUCCESS", "no error"}},
    {1, {"CUDA_ERROR_INVALID_VALUE", "invalid argument"}},
    {2, {"CUDA_ERROR_OUT_OF_MEMORY", "out of memory"}},
    {3, {"CUDA_ERROR_NOT_INITIALIZED", "initialization error"}},
    {4, {"CUDA_ERROR_DEINITIALIZED", "driver shutting down"}},
    {34, {"CUDA_ERROR_STUB_LIBRARY", "CUDA driver is a stub library"}},
    {46, {"CUDA_ERROR_DEVICE_UNAVAILABLE", "CUDA-capable device(s) is/are busy or unavailable"}},
    {100, {"CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"}},
    {101, {"CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"}},
    {200, {"CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"}},
    {201, {"CUDA_ERROR_INVALID_CONTEXT", "invalid device context"}},
    {209, {"CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"}},
    {214, {"CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error encountered"}},
    {222, {"CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "the provided PTX was compiled with an unsupported toolchain."}},
    {400, {"CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"}},
    {401, {"CUDA_ERROR_ILLEGAL_STATE", "the operation cannot be performed in the present state"}},
    {500, {"CUDA_ERROR_NOT_FOUND", "named symbol not found"}},
    {600, {"CUDA_ERROR_NOT_READY", "device not ready"}},
    {700, {"CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"}},
    {701, {"CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"}},
    {702, {"CUDA_ERROR_LAUNCH_TIMEOUT", "the launch timed out and was terminated"}},
    {715, {"CUDA_ERROR_ILLEGAL_INSTRUCTION", "an illegal instruction was encountered"}},
    {716, {"CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"}},
    {719, {"CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"}},
    {800, {"CUDA_ERROR_NOT_PERMITTED", "operation not permitted"}},
    {801, {"CUDA_ERROR_NOT_SUPPORTED", "operation not supported"}},
    {802, {"CUDA_ERROR_SYSTEM_NOT_READY", "system not yet initialized"}},
    {803, {"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "system has unsupported display driver / cuda driver combination"}},
    {900, {"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"}},
    {901, {"CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "operation failed due to a previous error during capture"}},
    {902, {"CUDA_ERROR_STREAM_CAPTURE_MERGE", "operation would result in a merge of separate capture sequences"}},
    {903, {"CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", "capture was not ended in the same stream as it began"}},
    {904, {"CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "capturing stream has unjoined work"}},
    {905, {"CUDA_ERROR_STREAM_CAPTURE_ISOLATION", "dependency created on uncaptured work in another stream"}},
    {906,
     {"CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
      "operation would make the legacy stream depend on a capturing blocking stream"}},
    {907, {"CUDA_ERROR_CAPTURED_EVENT", "operation not permitted on an event last recorded in a capturing stream"}},
    {908,
     {"CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD",
      "attempt to terminate a thread-local capture sequence from another thread"}},
    {999, {"CUDA_ERROR_UNKNOWN", "unknown error"}},
};

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
    case 81: return 228 << 10;
    case 97: return 227 << 10;
    case 102: return setting("virtualMemory");
    case 115: return 1;
    default: return 0;
  }
}

}  // namespace

bool isInitialized() { return initialized; }

int currentDevice() {
  if (currentContext == 0) return -1;
  const int device = static_cast<int>(currentContext - contextBase);
  return primaryContexts[device] > 0 ? device : -1;
}

}  // namespace standin

using namespace standin;

STANDIN_EXPORT int cuInit(unsigned flags) {
  ENTER(nothing);
  if (flags != 0) return invalidValue;
  if (setting("devices") == 0) return noDevice;
  initialized = true;
  return success;
}

STANDIN_EXPORT int cuDriverGetVersion(int* version) {
  ENTER(nothing);
  *version = static_cast<int>(setting("driverVersion"));
  return success;
}

STANDIN_EXPORT int cuGetErrorName(int error, const char** text) {
  ENTER(nothing);
  const auto found = errorTexts.find(error);
  *text = found == errorTexts.end() ? nullptr : found->second.name;
  return *text ? success : invalidValue;
}

STANDIN_EXPORT int cuGetErrorString(int error, const char** text) {
  ENTER(nothing);
  const auto found = errorTexts.find(error);
  *text = found == errorTexts.end() ? nullptr : found->second.text;
  return *text ? success : invalidValue;
}

STANDIN_EXPORT int cuDeviceGetCount(int* count) {
  ENTER(init);
  *count = static_cast<int>(setting("devices"));
  return success;
}

STANDIN_EXPORT int cuDeviceGet(int* device, int ordinal) {
  ENTER(init);
  if (!isDevice(ordinal)) return invalidDevice;
  *device = ordinal;
  return success;
}

STANDIN_EXPORT int cuDeviceGetName(char* name, int length, int device) {
  ENTER(init);
  if (!isDevice(device)) return invalidDevice;
  if (length <= 0) return invalidValue;
  std::strncpy(name, "Stand-in GPU", static_cast<size_t>(length) - 1);
  name[length - 1] = 0;
  return success;
}

STANDIN_EXPORT int cuDeviceGetUuid_v2(unsigned char* uuid, int device) {
  ENTER(init);
  if (!isDevice(device)) return invalidDevice;
  for (int index = 0; index < 16; ++index) uuid[index] = static_cast<unsigned char>(0xa0 + index);
  uuid[15] = static_cast<unsigned char>(device);
  return success;
}

STANDIN_EXPORT int cuDeviceTotalMem_v2(size_t* bytes, int device) {
  ENTER(init);
  if (!isDevice(device)) return invalidDevice;
  *bytes = static_cast<size_t>(setting("totalMemory"));
  return success;
}

STANDIN_EXPORT int cuDeviceGetAttribute(int* value, int attribute, int device) {
  ENTER(init);
  if (!isDevice(device)) return invalidDevice;
  if (attribute <= 0) return invalidValue;
  *value = static_cast<int>(attributeOf(attribute));
  return success;
}

STANDIN_EXPORT int cuDevicePrimaryCtxRetain(uint64_t* context, int device) {
  ENTER(init);
  if (!isDevice(device)) return invalidDevice;
  if (const int sticky = stickyError()) return sticky;
  primaryContexts[device] += 1;
  *context = contextBase + static_cast<uint64_t>(device);
  return success;
}

STANDIN_EXPORT int cuDevicePrimaryCtxRelease_v2(int device) {
  ENTER(init);
  if (!isDevice(device)) return invalidDevice;
  if (primaryContexts[device] == 0) return invalidContext;
  primaryContexts[device] -= 1;
  return success;
}

STANDIN_EXPORT int cuCtxSetCurrent(uint64_t context) {
  ENTER(init);
  if (context != 0 && primaryContexts[static_cast<int>(context - contextBase)] == 0) return invalidContext;
  currentContext = context;
  return success;
}

STANDIN_EXPORT int cuCtxGetCurrent(uint64_t* context) {
  ENTER(init);
  *context = currentContext;
  return success;
}
