/** The CUDA source of a DMMA GEMM: a multistage cp.async pipeline, fragments widened to f64, and m16n8k8 mma.sync. */

import type { KernelSource, Parameter } from "../../../driver/index.js";
import { indented, type MemberLocal } from "../../codegen/cuda/combo/select-member.js";
import { cudaKernel } from "../../codegen/cuda/cuda-function.js";
import { cpAsyncIntrinsics } from "../../codegen/cuda/intrinsics/cp-async.js";
import { onlyOnDevice } from "../../codegen/cuda/intrinsics/intrinsic.js";
import { ldmatrixX4, mmaSyncF64 } from "../../codegen/cuda/intrinsics/mma.js";
import type { AccessToC } from "../desc.js";
import { gemmLocals, groupParameters, selectGemm } from "../group-launch.js";
import { type DmmaConfig, type DmmaOperand, dmmaCapability } from "./configs.js";

/** The sizes that a kernel reads of each GEMM. */
const sizes = ["m", "n", "k", "aStride", "bStride", "cStride", "aBatch", "bBatch", "cBatch"] as const;

/** The parameters of a kernel for GEMMs with these accesses to C, in order. */
export function dmmaParameters(
  { hasBias, readsC }: DmmaConfig,
  accesses: readonly AccessToC[],
): Readonly<Record<string, Parameter>> {
  const scalars = readsC ? (["alpha", "beta"] as const) : (["alpha"] as const);
  return groupParameters({ storesC: true, hasBias, sizes, scalars }, accesses);
}

const intrinsics = onlyOnDevice([mmaSyncF64, ldmatrixX4, cpAsyncIntrinsics].join("\n"));

/** `SmemTile`: the k-tile of one operand in shared memory, in the layout of its matrix, with rows padded against bank conflicts. */
const smemTile = `
template <unsigned size, bool isKMajor, unsigned copyFloats>
struct SmemTile {
  static constexpr unsigned rows = isKMajor ? size : tileK, columns = isKMajor ? tileK : size;
  static constexpr unsigned stride = columns + (isKMajor ? 4 : 8), floats = rows * stride;

  // Copies the k-tile from \`k\` on, for the rows or columns of C from \`mn\` on; zeros outside of the matrix.
  static __device__ __forceinline__ void load(
      float* smem, const float* matrix, int rowStride, int mn, int k, int mnEnd, int kEnd) {
    constexpr unsigned copiesPerRow = columns / copyFloats, copies = rows * copiesPerRow;
    const float* corner = matrix + (long long)(isKMajor ? mn : k) * rowStride + (isKMajor ? k : mn);
    const int rowsLeft = isKMajor ? mnEnd - mn : kEnd - k, columnsLeft = isKMajor ? kEnd - k : mnEnd - mn;
    const float* source = corner + (long long)(threadIdx.x / copiesPerRow) * rowStride + threadIdx.x % copiesPerRow * copyFloats;
#pragma unroll
    for (unsigned first = 0; first < copies; first += threads) {
      const unsigned copy = first + threadIdx.x;
      if (copies % threads != 0 && copy >= copies) break;
      const int row = copy / copiesPerRow, column = copy % copiesPerRow * copyFloats;
      const int left = row < rowsLeft ? columnsLeft - column : 0;
      const unsigned bytes = left <= 0 ? 0 : left < (int)copyFloats ? 4 * left : 4 * copyFloats;
      // If the threads cover whole rows, a thread stays in its column.
      if (threads % copiesPerRow != 0) source = corner + (long long)row * rowStride + column;
      cpAsync<4 * copyFloats>(smem + row * stride + column, bytes > 0 ? source : matrix, bytes);
      source += (long long)(threads / copiesPerRow) * rowStride;
    }
  }

  // Loads a 16 × 8 (M/N × K) fragment. Lane (group g, member t) gets elements (offsetOf(g, 0), t), (offsetOf(g, 1), t),
  // (offsetOf(g, 0), t + 4), (offsetOf(g, 1), t + 4).
  static __device__ __forceinline__ void loadFragment(float (&fragment)[4], const float* tile, unsigned mn, unsigned k) {
    const unsigned lane = threadIdx.x % 32;
    if constexpr (isKMajor) {
      ldmatrixX4(fragment, tile + (mn + lane % 16) * stride + k + lane / 16 * 4);
    } else {
      const float* pair = tile + (k + lane % 4) * stride + mn + offsetOf(lane / 4, 0);
      const float2 low = *reinterpret_cast<const float2*>(pair);
      const float2 high = *reinterpret_cast<const float2*>(pair + 4 * stride);
      fragment[0] = low.x;
      fragment[1] = low.y;
      fragment[2] = high.x;
      fragment[3] = high.y;
    }
  }

  // The row (A) or column (B), among the 16 of the fragment, of a lane group's element. The order differs for faster loads.
  static __device__ __forceinline__ unsigned offsetOf(unsigned group, unsigned element) {
    return isKMajor ? group + 8 * element : 2 * group + element;
  }
};`;

const mainloop = `
  __shared__ __align__(16) float stageTiles[stages][TileA::floats + TileB::floats];
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = lane / 4, member = lane % 4;
  const unsigned warpM = warp / warpsN * (16 * blocksM), warpN = warp % warpsN * (16 * blocksN);
  const unsigned tilesN = (n + tileN - 1) / tileN, tilesM = (m + tileM - 1) / tileM;
  const unsigned tile = cta % (tilesN * tilesM);
  const long long matrix = cta / (tilesN * tilesM);
  const int firstM = tile / tilesN * tileM, firstN = tile % tilesN * tileN;
  a += matrix * aBatch;
  b += matrix * bBatch;
  const unsigned kTiles = (k + tileK - 1) / tileK;
  auto loadStage = [&](unsigned kTile) {
    if (kTile < kTiles) {
      float* stageTile = stageTiles[kTile % stages];
      TileA::load(stageTile, a, aStride, firstM, kTile * tileK, m, k);
      TileB::load(stageTile + TileA::floats, b, bStride, firstN, kTile * tileK, n, k);
    }
    cpAsyncCommit();
  };

  double acc[blocksM][blocksN][2][4];
#pragma unroll
  for (unsigned i = 0; i < blocksM; i++) {
#pragma unroll
    for (unsigned j = 0; j < blocksN; j++) {
#pragma unroll
      for (unsigned e = 0; e < 8; e++) acc[i][j][e / 4][e % 4] = 0;
    }
  }
  // Double-buffered fragments: one set is multiplied while the next is loaded.
  float fragmentA[2][blocksM][4], fragmentB[2][blocksN][4];
  auto loadFragments = [&](unsigned buffer, const float* stageTile, unsigned kStep) {
#pragma unroll
    for (unsigned i = 0; i < blocksM; i++) TileA::loadFragment(fragmentA[buffer][i], stageTile, warpM + 16 * i, kStep);
#pragma unroll
    for (unsigned j = 0; j < blocksN; j++) TileB::loadFragment(fragmentB[buffer][j], stageTile + TileA::floats, warpN + 16 * j, kStep);
  };
  auto multiply = [&](unsigned buffer) {
    double columns[blocksN][2][2];
#pragma unroll
    for (unsigned j = 0; j < blocksN; j++) {
#pragma unroll
      for (unsigned e = 0; e < 4; e++) columns[j][e % 2][e / 2] = fragmentB[buffer][j][e];
    }
#pragma unroll
    for (unsigned i = 0; i < blocksM; i++) {
      double rows[4];
#pragma unroll
      for (unsigned e = 0; e < 4; e++) rows[e] = fragmentA[buffer][i][e];
#pragma unroll
      for (unsigned j = 0; j < blocksN; j++) {
        mmaSync(acc[i][j][0], rows, columns[j][0]);
        mmaSync(acc[i][j][1], rows, columns[j][1]);
      }
    }
  };

#pragma unroll
  for (unsigned kTile = 0; kTile + 1 < stages; kTile++) loadStage(kTile);
  cpAsyncWait<stages - 2>();
  __syncthreads();
  loadFragments(0, stageTiles[0], 0);
  for (unsigned kTile = 0; kTile < kTiles; kTile++) {
#pragma unroll
    for (unsigned kStep = 0; kStep < tileK; kStep += 8) {
      const unsigned buffer = kStep / 8 % 2;
      if (kStep + 8 < tileK) {
        loadFragments(1 - buffer, stageTiles[kTile % stages], kStep + 8);
      } else {
        cpAsyncWait<stages - 2>();
        __syncthreads();
        if (kTile + 1 < kTiles) loadFragments(1 - buffer, stageTiles[(kTile + 1) % stages], 0);
      }
      if (kStep == 0) loadStage(kTile + stages - 1);
      multiply(buffer);
    }
  }`;

const tileOf = (size: string, { isKMajor, copyFloats }: DmmaOperand): string =>
  `SmemTile<${size}, ${isKMajor}, ${copyFloats}>`;

/** One kernel for a group of GEMMs of one config, with the access of each to its C. */
export function dmmaSource(config: DmmaConfig, accesses: readonly AccessToC[]): KernelSource {
  const { tile, a, b } = config;
  const { tileM, tileN, tileK, stages, warpsM, warpsN } = tile;
  const threads = 32 * warpsM * warpsN;
  const declarations = `
static constexpr unsigned tileM = ${tileM}, tileN = ${tileN}, tileK = ${tileK}, stages = ${stages};
static constexpr unsigned warpsN = ${warpsN}, threads = ${threads};
// A warp accumulates blocksM × blocksN blocks of 16 × 16.
static constexpr unsigned blocksM = ${tileM / warpsM / 16}, blocksN = ${tileN / warpsN / 16};

${intrinsics}
${smemTile}
typedef ${tileOf("tileM", a)} TileA;
typedef ${tileOf("tileN", b)} TileB;`;
  const prologue = selectGemm(accesses.length, localsOf(config));
  return cudaKernel({
    ...{ name: "gemm_f32_dmma", elements: "float", threads, requiredCapability: dmmaCapability },
    parameters: dmmaParameters(config, accesses),
    declarations,
    body: `${indented(prologue)}${mainloop}\n${epilogueStore(config)}`,
  });
}

/** The locals that differ between the GEMMs of a group. */
function localsOf({ hasBias, readsC }: DmmaConfig): readonly MemberLocal[] {
  return [
    ...gemmLocals("const float*", "a", "b", ...(hasBias ? ["bias"] : [])),
    ...gemmLocals("float*", "c"),
    ...gemmLocals("int", ...sizes, ...(hasBias ? ["biasBatch"] : [])),
    ...gemmLocals("float", "alpha", ...(readsC ? ["beta"] : [])),
  ];
}

/** Scales, adds beta · C and the bias in f64, rounds once. A lane has four neighbours of a row, or two with a K-major B. */
function epilogueStore({ b, hasBias, readsC, storesVectors }: DmmaConfig): string {
  const accumulator = b.isKMajor
    ? "acc[i][j][begin / 2][2 * e + next]"
    : "acc[i][j][next % 2][2 * e + next / 2]";
  const storeVector = b.isKMajor
    ? "*reinterpret_cast<float2*>(result) = make_float2(values[0], values[1]);"
    : "*reinterpret_cast<float4*>(result) = make_float4(values[0], values[1], values[2], values[3]);";
  const storeScalars =
    "for (unsigned next = 0; next < vecWidth && column + (int)next < n; next++) result[next] = values[next];";
  const loadBias = `float biases[vecWidth];
#pragma unroll
      for (unsigned next = 0; next < vecWidth; next++) {
        biases[next] = column + (int)next < n ? bias[matrix * biasBatch + column + next] : 0;
      }`;
  return `
  constexpr unsigned vecWidth = ${b.isKMajor ? 2 : 4};
#pragma unroll
  for (unsigned j = 0; j < blocksN; j++) {
#pragma unroll
    for (unsigned begin = 0; begin < 4; begin += vecWidth) {
      const int column = firstN + warpN + 16 * j + TileB::offsetOf(2 * member, begin / 2);
      ${hasBias ? loadBias : ""}
#pragma unroll
      for (unsigned i = 0; i < blocksM; i++) {
#pragma unroll
        for (unsigned e = 0; e < 2; e++) {
          const int row = firstM + warpM + 16 * i + TileA::offsetOf(group, e);
          if (row >= m || column >= n) continue;
          float* result = c + matrix * cBatch + (long long)row * cStride + column;
          float values[vecWidth];
#pragma unroll
          for (unsigned next = 0; next < vecWidth; next++) {
            double value = alpha * ${accumulator};
            ${readsC ? "if (column + (int)next < n) value += beta * (double)result[next];" : ""}
            ${hasBias ? "value += biases[next];" : ""}
            values[next] = (float)value;
          }
          ${storesVectors ? `if (column + (int)vecWidth <= n) ${storeVector}\n          else ${storeScalars}` : storeScalars}
        }
      }
    }
  }`;
}
