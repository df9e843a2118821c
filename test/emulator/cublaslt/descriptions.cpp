/** Handles, descriptions, layouts and preferences: created, changed by attributes of fixed sizes, destroyed. */
#include "descriptions.h"

#include <cstring>
#include <mutex>

#include "../registry.h"
#include "../emulator.h"

#define NOTE() \
  if (const int planned_ = emulator_note(__func__)) return planned_

namespace emulator {

namespace {

Registry<int> handles(0xe0);
Registry<Description> descriptions(0xe1);
Registry<Layout> layouts(0xe2);
Registry<Preference> preferences(0xe3);

/** Accepts an attribute's value if it has the right size. */
template <class Value>
int take(Value& target, const void* value, size_t size) {
  if (value == nullptr || size != sizeof target) return cublasInvalidValue;
  std::memcpy(&target, value, size);
  return cublasSuccess;
}

template <class Thing>
int make(Registry<Thing>& registry, uint64_t* handle, Thing thing) {
  if (handle == nullptr) return cublasInvalidValue;
  *handle = registry.add(thing);
  return cublasSuccess;
}

}  // namespace

bool hasHandle(uint64_t handle) { return handles.find(handle) != nullptr; }
const Description* findDescription(uint64_t handle) { return descriptions.find(handle); }
const Layout* findLayout(uint64_t handle) { return layouts.find(handle); }
const Preference* findPreference(uint64_t handle) { return preferences.find(handle); }

}  // namespace emulator

using namespace emulator;

EMULATOR_EXPORT size_t cublasLtGetVersion() {
  emulator_note(__func__);
  return static_cast<size_t>(emulator_get("cublasLtVersion"));
}

EMULATOR_EXPORT const char* cublasLtGetStatusName(int status) {
  switch (status) {
    case 0: return "CUBLAS_STATUS_SUCCESS";
    case 1: return "CUBLAS_STATUS_NOT_INITIALIZED";
    case 3: return "CUBLAS_STATUS_ALLOC_FAILED";
    case 7: return "CUBLAS_STATUS_INVALID_VALUE";
    case 8: return "CUBLAS_STATUS_ARCH_MISMATCH";
    case 11: return "CUBLAS_STATUS_MAPPING_ERROR";
    case 13: return "CUBLAS_STATUS_EXECUTION_FAILED";
    case 14: return "CUBLAS_STATUS_INTERNAL_ERROR";
    case 15: return "CUBLAS_STATUS_NOT_SUPPORTED";
    case 16: return "CUBLAS_STATUS_LICENSE_ERROR";
    default: return "CUBLAS_STATUS unknown";
  }
}

EMULATOR_EXPORT const char* cublasLtGetStatusString(int status) {
  switch (status) {
    case 0: return "success";
    case 1: return "the library was not initialized";
    case 3: return "the resource allocation failed";
    case 7: return "an invalid value was used as an argument";
    case 8: return "an absent device architectural feature is required";
    case 11: return "an access to GPU memory space failed";
    case 13: return "the function failed to launch on the GPU";
    case 14: return "an internal operation failed";
    case 15: return "the functionality is not supported";
    default: return "unknown";
  }
}

EMULATOR_EXPORT int cublasLtCreate(uint64_t* handle) {
  NOTE();
  return make(handles, handle, 0);
}

EMULATOR_EXPORT int cublasLtDestroy(uint64_t handle) {
  NOTE();
  return handles.remove(handle) ? cublasSuccess : cublasNotInitialized;
}

EMULATOR_EXPORT int cublasLtMatmulDescCreate(uint64_t* handle, int computeType, int scaleType) {
  NOTE();
  return make(descriptions, handle, Description{computeType, scaleType});
}

EMULATOR_EXPORT int cublasLtMatmulDescDestroy(uint64_t handle) {
  NOTE();
  return descriptions.remove(handle) ? cublasSuccess : cublasInvalidValue;
}

EMULATOR_EXPORT int cublasLtMatmulDescSetAttribute(uint64_t handle, int attribute, const void* value, size_t size) {
  NOTE();
  Description* found = descriptions.find(handle);
  if (found == nullptr) return cublasInvalidValue;
  switch (attribute) {
    case 0: return take(found->computeType, value, size);
    case 1: return take(found->scaleType, value, size);
    case 2: return take(found->pointerMode, value, size);
    case 3: return take(found->transA, value, size);
    case 4: return take(found->transB, value, size);
    case 7: return take(found->epilogue, value, size);
    case 8: return take(found->bias, value, size);
    case 10: return take(found->biasBatchStride, value, size);
    case 15: {
      int multiprocessors = 0;
      return take(multiprocessors, value, size);
    }
    case 26: return take(found->biasType, value, size);
    default: return cublasInvalidValue;
  }
}

EMULATOR_EXPORT int cublasLtMatrixLayoutCreate(uint64_t* handle, int type, uint64_t rows, uint64_t columns,
                                              int64_t leading) {
  NOTE();
  Layout layout{};
  layout.type = type;
  layout.rows = rows;
  layout.columns = columns;
  layout.leading = leading;
  layout.batch = 1;
  return make(layouts, handle, layout);
}

EMULATOR_EXPORT int cublasLtMatrixLayoutDestroy(uint64_t handle) {
  NOTE();
  return layouts.remove(handle) ? cublasSuccess : cublasInvalidValue;
}

EMULATOR_EXPORT int cublasLtMatrixLayoutSetAttribute(uint64_t handle, int attribute, const void* value, size_t size) {
  NOTE();
  Layout* found = layouts.find(handle);
  if (found == nullptr) return cublasInvalidValue;
  switch (attribute) {
    case 0: return take(found->type, value, size);
    case 1: return take(found->order, value, size);
    case 2: return take(found->rows, value, size);
    case 3: return take(found->columns, value, size);
    case 4: return take(found->leading, value, size);
    case 5: return take(found->batch, value, size);
    case 6: return take(found->batchStride, value, size);
    default: return cublasInvalidValue;
  }
}

EMULATOR_EXPORT int cublasLtMatmulPreferenceCreate(uint64_t* handle) {
  NOTE();
  return make(preferences, handle, Preference{});
}

EMULATOR_EXPORT int cublasLtMatmulPreferenceDestroy(uint64_t handle) {
  NOTE();
  return preferences.remove(handle) ? cublasSuccess : cublasInvalidValue;
}

EMULATOR_EXPORT int cublasLtMatmulPreferenceSetAttribute(uint64_t handle, int attribute, const void* value,
                                                        size_t size) {
  NOTE();
  Preference* found = preferences.find(handle);
  if (found == nullptr) return cublasInvalidValue;
  switch (attribute) {
    case 0: {
      uint32_t searchMode = 0;
      return take(searchMode, value, size);
    }
    case 1: return take(found->maxWorkspace, value, size);
    case 3: return take(found->reductionMask, value, size);
    case 5: case 6: case 7: case 8: return take(found->alignments[attribute - 5], value, size);
    case 9: {
      float waves = 0;
      return take(waves, value, size);
    }
    case 12: return take(found->numericalMask, value, size);
    default: return cublasInvalidValue;
  }
}
