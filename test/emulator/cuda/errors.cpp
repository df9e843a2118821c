/** The names and texts of errors, as in the driver. */
#include <map>

#include "control.h"

namespace emulator {

namespace {

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
    {36, {"CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER", "API call is not supported in the installed CUDA driver"}},
    {46, {"CUDA_ERROR_DEVICE_UNAVAILABLE", "CUDA-capable device(s) is/are busy or unavailable"}},
    {100, {"CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"}},
    {101, {"CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"}},
    {200, {"CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"}},
    {201, {"CUDA_ERROR_INVALID_CONTEXT", "invalid device context"}},
    {209, {"CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"}},
    {214, {"CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error encountered"}},
    {220, {"CUDA_ERROR_NVLINK_UNCORRECTABLE", "uncorrectable NVLink error detected during the execution"}},
    {222, {"CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "the provided PTX was compiled with an unsupported toolchain."}},
    {226, {"CUDA_ERROR_CONTAINED", "Invalid access of peer GPU memory over nvlink or a hardware error"}},
    {400, {"CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"}},
    {401, {"CUDA_ERROR_ILLEGAL_STATE", "the operation cannot be performed in the present state"}},
    {500, {"CUDA_ERROR_NOT_FOUND", "named symbol not found"}},
    {600, {"CUDA_ERROR_NOT_READY", "device not ready"}},
    {700, {"CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"}},
    {701, {"CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"}},
    {702, {"CUDA_ERROR_LAUNCH_TIMEOUT", "the launch timed out and was terminated"}},
    {709, {"CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"}},
    {710, {"CUDA_ERROR_ASSERT", "device-side assert triggered"}},
    {714, {"CUDA_ERROR_HARDWARE_STACK_ERROR", "hardware stack error"}},
    {715, {"CUDA_ERROR_ILLEGAL_INSTRUCTION", "an illegal instruction was encountered"}},
    {716, {"CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"}},
    {717, {"CUDA_ERROR_INVALID_ADDRESS_SPACE", "operation not supported on global/shared address space"}},
    {718, {"CUDA_ERROR_INVALID_PC", "invalid program counter"}},
    {719, {"CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"}},
    {721, {"CUDA_ERROR_TENSOR_MEMORY_LEAK", "tensor memory not completely freed"}},
    {800, {"CUDA_ERROR_NOT_PERMITTED", "operation not permitted"}},
    {801, {"CUDA_ERROR_NOT_SUPPORTED", "operation not supported"}},
    {802, {"CUDA_ERROR_SYSTEM_NOT_READY", "system not yet initialized"}},
    {803, {"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "system has unsupported display driver / cuda driver combination"}},
    {804,
     {"CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
      "forward compatibility was attempted on non supported HW"}},
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
    {912, {"CUDA_ERROR_INVALID_CLUSTER_SIZE", "cluster misconfiguration"}},
    {999, {"CUDA_ERROR_UNKNOWN", "unknown error"}},
};

}  // namespace

}  // namespace emulator

using namespace emulator;

EMULATOR_EXPORT int cuGetErrorName(int error, const char** text) {
  ENTER(nothing);
  const auto found = errorTexts.find(error);
  *text = found == errorTexts.end() ? nullptr : found->second.name;
  return *text ? success : invalidValue;
}

EMULATOR_EXPORT int cuGetErrorString(int error, const char** text) {
  ENTER(nothing);
  const auto found = errorTexts.find(error);
  *text = found == errorTexts.end() ? nullptr : found->second.text;
  return *text ? success : invalidValue;
}
