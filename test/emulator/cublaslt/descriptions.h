/** The description of a GEMM for cuBLASLt, and the algorithm that it returns. */
#pragma once

#include <cstdint>

namespace emulator {

enum CublasStatus : int {
  cublasSuccess = 0,
  cublasNotInitialized = 1,
  cublasInvalidValue = 7,
  cublasExecutionFailed = 13,
  cublasNotSupported = 15,
};

enum ComputeType : int {
  compute32F = 68,
  compute32FPedantic = 69,
  compute64F = 70,
  fast16F = 74,
  fast16BF = 75,
  fastTF32 = 77,
};

enum Epilogue : int { plainEpilogue = 1, reluBit = 2, biasBit = 4, geluBit = 32 };

struct Description {
  int computeType;
  int scaleType;
  int pointerMode = 0;
  int transA = 0;
  int transB = 0;
  int epilogue = plainEpilogue;
  uint64_t bias = 0;
  int64_t biasBatchStride = 0;
  int biasType = -1;
};

struct Layout {
  int type;
  int order = 0;
  uint64_t rows;
  uint64_t columns;
  int64_t leading;
  int batch = 1;
  int64_t batchStride = 0;
};

struct Preference {
  uint64_t maxWorkspace = 0;
  uint32_t reductionMask = 7;
  /** Alignment of the addresses of A, B, C and D in all calls. */
  uint32_t alignments[4] = {256, 256, 256, 256};
  uint64_t numericalMask = ~0ull;
};

/** cublasLtMatmulAlgo_t, which is 64 bytes that only the library can read. */
struct Algorithm {
  uint64_t magic;
  uint64_t workspace;
  uint32_t alignments[4];
  int32_t splits;
  uint32_t reduction;
  uint64_t numericalFlags;
  /** The number of splits of K; 0 for no split. */
  uint64_t actualSplits;
  uint64_t unused;
};
static_assert(sizeof(Algorithm) == 64, "the size of cublasLtMatmulAlgo_t");

constexpr uint64_t algorithmMagic = 0x4d48544950524f47;

bool hasHandle(uint64_t handle);
const Description* findDescription(uint64_t handle);
const Layout* findLayout(uint64_t handle);
const Preference* findPreference(uint64_t handle);

/** True if the library has an algorithm for this GEMM. */
int checkGemm(const Description& description, const Layout& a, const Layout& b, const Layout& c, const Layout& d);

}  // namespace emulator
