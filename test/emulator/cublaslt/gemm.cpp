/**
 * The GEMM itself, computed naively: operands are converted to the accumulator type, and rounded first for a
 * fast compute type. Terms are added in the order of k, or split by split. The stream runs it like a kernel,
 * so a capture records it.
 */
#include <cmath>
#include <vector>

#include "../emulator.h"
#include "descriptions.h"
#include "elements.h"

namespace emulator {

namespace {

constexpr int kernelNodeType = 0, illegalAddressStatus = 700, misalignedStatus = 716;

/** The arguments that a GEMM needs to run later. */
struct GemmCall {
  Description description;
  Layout aLayout, bLayout, cLayout, dLayout;
  const void *a, *b, *c;
  void* d;
  double alpha, beta;
  void* workspace;
  uint64_t workspaceBytes;
  uint64_t actualSplits;
};

int64_t indexOf(const Layout& layout, uint64_t row, uint64_t column, int batch) {
  const uint64_t leading = static_cast<uint64_t>(layout.leading);
  const uint64_t inside = layout.order == 0 ? column * leading + row : row * leading + column;
  return batch * layout.batchStride + static_cast<int64_t>(inside);
}

bool isHeld(const void* matrix, const Layout& layout) {
  int64_t last = indexOf(layout, layout.rows - 1, layout.columns - 1, 0), first = 0;
  const int64_t span = (layout.batch - 1) * layout.batchStride;
  (span < 0 ? first : last) += span;
  const auto size = static_cast<int64_t>(bytesOf(layout.type));
  const auto start = static_cast<uint64_t>(reinterpret_cast<int64_t>(matrix) + first * size);
  return emulator_holds(start, static_cast<uint64_t>((last - first + 1) * size)) != 0;
}

template <class Number>
Number roundOperand(Number value, int computeType) {
  switch (computeType) {
    case fastTF32: return static_cast<Number>(roundToTf32(static_cast<float>(value)));
    case fast16BF: return static_cast<Number>(fromBf16(toBf16(static_cast<float>(value))));
    case fast16F: return static_cast<Number>(fromF16(toF16(static_cast<float>(value))));
    default: return value;
  }
}

/** Converted, rounded, and row-major whatever its order was. */
template <class Number>
std::vector<Number> unpack(const void* matrix, const Layout& layout, bool isTransposed, int batch, int computeType) {
  const uint64_t rows = isTransposed ? layout.columns : layout.rows;
  const uint64_t columns = isTransposed ? layout.rows : layout.columns;
  std::vector<Number> all(rows * columns);
  for (uint64_t row = 0; row < rows; ++row) {
    for (uint64_t column = 0; column < columns; ++column) {
      const int64_t index = isTransposed ? indexOf(layout, column, row, batch) : indexOf(layout, row, column, batch);
      all[row * columns + column] = roundOperand(readElement<Number>(matrix, layout.type, index), computeType);
    }
  }
  return all;
}

template <class Number>
Number activate(Number value, int epilogue) {
  // NaN becomes 0, as in the library itself.
  if (epilogue & reluBit) return value > 0 ? value : Number(0);
  if (epilogue & geluBit) {
    const Number inner = Number(0.7978845608028654) * (value + Number(0.044715) * value * value * value);
    return Number(0.5) * value * (Number(1) + std::tanh(inner));
  }
  return value;
}

template <class Number>
void multiply(const GemmCall& call) {
  const Description& description = call.description;
  const Layout &aLayout = call.aLayout, &cLayout = call.cLayout, &dLayout = call.dLayout;
  const uint64_t m = dLayout.rows, n = dLayout.columns, k = description.transA ? aLayout.rows : aLayout.columns;
  const uint64_t splits = call.actualSplits > 1 ? call.actualSplits : 1;
  std::vector<Number> acc(n), partial(n);
  for (int batch = 0; batch < dLayout.batch; ++batch) {
    const auto left = unpack<Number>(call.a, aLayout, description.transA, batch, description.computeType);
    const auto right = unpack<Number>(call.b, call.bLayout, description.transB, batch, description.computeType);
    for (uint64_t row = 0; row < m; ++row) {
      acc.assign(n, Number(0));
      for (uint64_t index = 0; index < splits; ++index) {
        partial.assign(n, Number(0));
        for (uint64_t term = k * index / splits; term < k * (index + 1) / splits; ++term) {
          const Number factor = left[row * k + term];
          const Number* others = &right[term * n];
          for (uint64_t column = 0; column < n; ++column) partial[column] += factor * others[column];
        }
        for (uint64_t column = 0; column < n; ++column) acc[column] += partial[column];
      }
      for (uint64_t column = 0; column < n; ++column) {
        Number value = static_cast<Number>(call.alpha) * acc[column];
        // If beta is 0, C need not contain numbers.
        if (call.beta != 0) {
          const int64_t index = indexOf(cLayout, row, column, batch);
          value += static_cast<Number>(call.beta) * readElement<Number>(call.c, cLayout.type, index);
        }
        if (description.epilogue & biasBit) {
          const int type = description.biasType < 0 ? dLayout.type : description.biasType;
          const int64_t index = static_cast<int64_t>(row) + batch * description.biasBatchStride;
          value += readElement<Number>(reinterpret_cast<const void*>(description.bias), type, index);
        }
        value = activate(value, description.epilogue);
        writeElement(call.d, dLayout.type, indexOf(dLayout, row, column, batch), value);
      }
    }
  }
}

int runGemm(const void* data) {
  const auto& call = *static_cast<const GemmCall*>(data);
  const Description& description = call.description;
  if (!isHeld(call.a, call.aLayout) || !isHeld(call.b, call.bLayout) || !isHeld(call.d, call.dLayout)) {
    return illegalAddressStatus;
  }
  if (call.beta != 0 && !isHeld(call.c, call.cLayout)) return illegalAddressStatus;
  const uint64_t biasBytes = description.epilogue & biasBit ? call.dLayout.rows * bytesOf(call.dLayout.type) : 0;
  if (biasBytes > 0 && !emulator_holds(description.bias, biasBytes)) return illegalAddressStatus;
  // No preference describes a bias's alignment: algorithms may load 16 bytes of it at once.
  const uint64_t biasStep = static_cast<uint64_t>(description.biasBatchStride) * bytesOf(call.dLayout.type);
  if (biasBytes > 0 && (description.bias | biasStep) % 16 != 0) return misalignedStatus;
  if (call.workspaceBytes > 0) {
    if (!emulator_holds(reinterpret_cast<uint64_t>(call.workspace), call.workspaceBytes)) return illegalAddressStatus;
    // The workspace is overwritten, so that data kept there is lost. What is left in it differs from call to call.
    static unsigned char fill = 0xa5;
    std::memset(call.workspace, fill++, call.workspaceBytes);
  }
  if (description.scaleType == f64Type) multiply<double>(call);
  else multiply<float>(call);
  return 0;
}

int runNothing(const void*) { return 0; }

double readScale(const void* scale, int type) {
  return type == f64Type ? *static_cast<const double*>(scale) : static_cast<double>(*static_cast<const float*>(scale));
}

}  // namespace

}  // namespace emulator

using namespace emulator;

EMULATOR_EXPORT int cublasLtMatmul(uint64_t handle, uint64_t descriptionHandle, const void* alpha, const void* a,
                                  uint64_t aHandle, const void* b, uint64_t bHandle, const void* beta, const void* c,
                                  uint64_t cHandle, void* d, uint64_t dHandle, const Algorithm* algorithm,
                                  void* workspace, uint64_t workspaceBytes, uint64_t stream) {
  if (const int planned = emulator_note(__func__)) return planned;
  if (!hasHandle(handle)) return cublasNotInitialized;
  const Description* description = findDescription(descriptionHandle);
  const Layout *aLayout = findLayout(aHandle), *bLayout = findLayout(bHandle), *cLayout = findLayout(cHandle),
               *dLayout = findLayout(dHandle);
  if (!description || !aLayout || !bLayout || !cLayout || !dLayout || !alpha || !beta || !a || !b || !c || !d) {
    return cublasInvalidValue;
  }
  if (const int rejected = checkGemm(*description, *aLayout, *bLayout, *cLayout, *dLayout)) return rejected;
  if (description->epilogue & biasBit && description->bias == 0) return cublasInvalidValue;
  uint64_t needed = 0, actualSplits = 0;
  if (algorithm != nullptr) {
    if (algorithm->magic != algorithmMagic) return cublasInvalidValue;
    needed = algorithm->workspace;
    actualSplits = algorithm->actualSplits;
    const void* const operands[] = {a, b, c, d};
    for (int index = 0; index < 4; ++index) {
      if (reinterpret_cast<uint64_t>(operands[index]) % algorithm->alignments[index] != 0) return cublasNotSupported;
    }
  }
  if (needed > workspaceBytes) return cublasInvalidValue;
  if (needed > 0 && reinterpret_cast<uint64_t>(workspace) % 256 != 0) return cublasInvalidValue;

  const GemmCall call = {*description, *aLayout, *bLayout, *cLayout, *dLayout, a, b, c, d,
                            readScale(alpha, description->scaleType), readScale(beta, description->scaleType),
                            workspace, needed, actualSplits};
  int status = emulator_submit(stream, kernelNodeType, runGemm, &call, sizeof call);
  for (long long node = 1; node < emulator_get("gemmNodes") && status == 0; ++node) {
    status = emulator_submit(stream, kernelNodeType, runNothing, nullptr, 0);
  }
  return status == 0 ? cublasSuccess : cublasExecutionFailed;
}
