/** The heuristic: which GEMMs the library supports, and some algorithms for each. */
#include <algorithm>
#include <cstring>

#include "../emulator.h"
#include "descriptions.h"
#include "elements.h"

namespace emulator {

namespace {

/** cublasLtMatmulHeuristicResult_t */
struct HeuristicResult {
  Algorithm algorithm;
  uint64_t workspace;
  int state;
  float waves;
  int reserved[4];
};

bool isLaidOut(const Layout& layout) {
  if (layout.rows == 0 || layout.columns == 0 || layout.batch <= 0 || layout.leading < 0) return false;
  if (layout.order != 0 && layout.order != 1) return false;
  return static_cast<uint64_t>(layout.leading) >= (layout.order == 0 ? layout.rows : layout.columns);
}

/** The combinations of types in NVIDIA's table, without eight-bit and complex numbers. */
bool isInTable(const Description& description, int abType, int cdType) {
  if (description.computeType == compute64F) {
    return description.scaleType == f64Type && abType == f64Type && cdType == f64Type;
  }
  if (description.scaleType != f32Type) return false;
  switch (description.computeType) {
    case compute32F: case compute32FPedantic:
      return (abType == f32Type || abType == f16Type || abType == bf16Type) && (cdType == abType || cdType == f32Type);
    case fast16F: case fast16BF: case fastTF32: return abType == f32Type && cdType == f32Type;
    default: return false;
  }
}

bool isEpilogue(int epilogue) {
  if (epilogue == plainEpilogue || epilogue == biasBit) return true;
  const int activation = epilogue & ~biasBit;
  return activation == reluBit || activation == geluBit;
}

uint64_t numericalFlagsOf(const Description& description, int type) {
  if (type == f64Type) return 0x01 | 0x04 << 8 | 0x10 << 16;
  const bool isPlain = type == f32Type && description.computeType <= compute32FPedantic;
  const uint64_t input = type == f16Type || description.computeType == fast16F    ? 0x01
                         : type == bf16Type || description.computeType == fast16BF ? 0x02
                         : description.computeType == fastTF32                     ? 0x04
                                                                                   : 0x08;
  return (isPlain ? 0x01 : 0x02) | 0x02 << 8 | input << 16;
}

template <class Value>
int give(void* target, size_t size, size_t* written, Value value) {
  if (size == 0 && written == nullptr) return cublasInvalidValue;
  if (written != nullptr) *written = sizeof value;
  if (size == 0) return cublasSuccess;
  if (target == nullptr || size != sizeof value) return cublasInvalidValue;
  std::memcpy(target, &value, sizeof value);
  return cublasSuccess;
}

}  // namespace

int checkGemm(const Description& description, const Layout& a, const Layout& b, const Layout& c, const Layout& d) {
  for (const Layout* layout : {&a, &b, &c, &d}) {
    if (!isLaidOut(*layout) || !isElementType(layout->type)) return cublasInvalidValue;
    if (layout->batch != a.batch) return cublasInvalidValue;
  }
  if (description.transA < 0 || description.transA > 1 || description.transB < 0 || description.transB > 1) {
    return cublasNotSupported;
  }
  const uint64_t m = description.transA ? a.columns : a.rows, k = description.transA ? a.rows : a.columns;
  const uint64_t n = description.transB ? b.rows : b.columns;
  if ((description.transB ? b.columns : b.rows) != k) return cublasInvalidValue;
  if (c.rows != m || c.columns != n || d.rows != m || d.columns != n) return cublasInvalidValue;
  if (a.type != b.type || c.type != d.type || !isInTable(description, a.type, d.type)) return cublasNotSupported;
  if (description.pointerMode != 0) return cublasNotSupported;
  if (!isEpilogue(description.epilogue)) return cublasNotSupported;
  // Bias vectors run along the columns of the result, so only a column-major matrix supports them.
  if (d.order == 1 && description.epilogue & biasBit) return cublasNotSupported;
  return cublasSuccess;
}

}  // namespace emulator

using namespace emulator;

EMULATOR_EXPORT int cublasLtMatmulAlgoGetHeuristic(uint64_t handle, uint64_t descriptionHandle, uint64_t aHandle,
                                                  uint64_t bHandle, uint64_t cHandle, uint64_t dHandle,
                                                  uint64_t preferenceHandle, int requested, HeuristicResult* results,
                                                  int* count) {
  if (const int planned = emulator_note(__func__)) return planned;
  if (!hasHandle(handle)) return cublasNotInitialized;
  const Description* description = findDescription(descriptionHandle);
  const Layout *a = findLayout(aHandle), *b = findLayout(bHandle), *c = findLayout(cHandle), *d = findLayout(dHandle);
  const Preference* preference = findPreference(preferenceHandle);
  if (!description || !a || !b || !c || !d || !preference || requested <= 0 || !results || !count) {
    return cublasInvalidValue;
  }
  *count = 0;
  if (const int rejected = checkGemm(*description, *a, *b, *c, *d)) return rejected;
  if (emulator_get("gemmsRejected") != 0) return cublasNotSupported;

  HeuristicResult result = {};
  result.algorithm.magic = algorithmMagic;
  // The widest loads have 16 bytes: an algorithm relies on that much of the promised alignment.
  for (int index = 0; index < 4; ++index) {
    result.algorithm.alignments[index] = std::min(preference->alignments[index], 16u);
  }
  result.algorithm.splits = emulator_get("gemmNodes") > 1 ? 2 : 1;
  result.algorithm.reduction = result.algorithm.splits > 1 ? 2 : 0;
  if ((result.algorithm.reduction & ~preference->reductionMask) != 0) return cublasNotSupported;
  result.algorithm.numericalFlags = numericalFlagsOf(*description, a->type);
  result.waves = 1;
  const int candidates = std::min(requested, static_cast<int>(emulator_get("gemmAlgorithms")));
  for (int candidate = 0; candidate < candidates; ++candidate) {
    const auto wanted = static_cast<uint64_t>(emulator_get("gemmWorkspace") + 1024 * candidate);
    // The first one needs no workspace.
    if (candidate > 0 && wanted > preference->maxWorkspace) break;
    result.workspace = result.algorithm.workspace = wanted <= preference->maxWorkspace ? wanted : 0;
    result.algorithm.actualSplits = emulator_get("gemmsDiffer") != 0 ? static_cast<uint64_t>(candidate + 1) : 0;
    result.state = candidate == emulator_get("gemmUnsound") ? cublasNotSupported : cublasSuccess;
    results[(*count)++] = result;
  }
  return cublasSuccess;
}

EMULATOR_EXPORT int cublasLtMatmulAlgoConfigGetAttribute(const Algorithm* algorithm, int attribute, void* value,
                                                        size_t size, size_t* written) {
  if (const int planned = emulator_note(__func__)) return planned;
  if (algorithm == nullptr || algorithm->magic != algorithmMagic) return cublasInvalidValue;
  switch (attribute) {
    case 0: return give(value, size, written, int32_t{1});
    case 1: return give(value, size, written, uint32_t{20});  // 128 × 128
    case 2: return give(value, size, written, algorithm->splits);
    case 3: return give(value, size, written, algorithm->reduction);
    case 4: case 5: case 6: return give(value, size, written, uint32_t{0});
    case 7: case 8: return give(value, size, written, uint16_t{0});
    default: return cublasInvalidValue;
  }
}

EMULATOR_EXPORT int cublasLtMatmulAlgoCapGetAttribute(const Algorithm* algorithm, int attribute, void* value,
                                                     size_t size, size_t* written) {
  if (const int planned = emulator_note(__func__)) return planned;
  if (algorithm == nullptr || algorithm->magic != algorithmMagic) return cublasInvalidValue;
  switch (attribute) {
    case 0: case 3: case 4: return give(value, size, written, int32_t{1});
    case 1: return give(value, size, written, uint32_t{6});
    case 12: return give(value, size, written, uint32_t{plainEpilogue | reluBit | biasBit | geluBit});
    case 15: return give(value, size, written, algorithm->numericalFlags);
    case 16: case 17: case 18: case 19: return give(value, size, written, algorithm->alignments[attribute - 16]);
    default: return cublasInvalidValue;
  }
}
