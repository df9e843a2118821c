/** The CUDA source of a DMMA GEMM: a multistage cp.async pipeline, fragments widened to f64, and m16n8k8 mma.sync. */

import type { KernelSource, Parameter } from "../../../driver/index.js";
import { indented, type MemberLocal } from "../../codegen/cuda/combo/select-member.js";
import { cudaKernel } from "../../codegen/cuda/cuda-function.js";
import { preludeOf } from "../../codegen/cuda/prelude.js";
import type { AccessToC } from "../desc.js";
import { gemmLocals, groupParameters, selectGemm } from "../group-launch.js";
import { dmmaCapability } from "./capability.js";
import type { DmmaConfig, DmmaOperand } from "./configs.js";
import { type DmmaShape, declareDmma, dmmaLoop } from "./mainloop.js";
import { residentDmmaCtas, stageBytes } from "./occupancy.js";

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

/** `SmemTile`: the k-tile of one operand, in the layout of its matrix. */
const smemTile = `
template <unsigned size, bool isKMajor, unsigned copyFloats>
struct SmemTile : TileLayout<size, isKMajor> {
  using TileLayout<size, isKMajor>::rows;
  using TileLayout<size, isKMajor>::columns;
  using TileLayout<size, isKMajor>::stride;

  // Copies the k-tile from \`k\` on, for the rows or columns of C from \`mn\` on; zeros outside of the matrix.
  static __device__ __forceinline__ void load(
      float* smem, const float* matrix, int rowStride, int mn, int k, int mnEnd, int kEnd) {
    constexpr unsigned copiesPerRow = columns / copyFloats, copies = rows * copiesPerRow;
    const float* corner = matrix + (long long)(isKMajor ? mn : k) * rowStride + (isKMajor ? k : mn);
    const int rowsLeft = isKMajor ? mnEnd - mn : kEnd - k, columnsLeft = isKMajor ? kEnd - k : mnEnd - mn;
    const float* source = corner + (long long)(threadIdx.x / copiesPerRow) * rowStride + threadIdx.x % copiesPerRow * copyFloats;
    auto bytesAt = [&](int column) {
      const int floats = columnsLeft - column < (int)copyFloats ? columnsLeft - column : copyFloats;
      return floats > 0 ? 4 * floats : 0;
    };
    const int ownBytes = bytesAt(threadIdx.x % copiesPerRow * copyFloats);
#pragma unroll
    for (unsigned first = 0; first < copies; first += threads) {
      const unsigned copy = first + threadIdx.x;
      if (copies % threads != 0 && copy >= copies) break;
      const int row = copy / copiesPerRow, column = copy % copiesPerRow * copyFloats;
      // If the threads cover whole rows, a thread stays in its column.
      constexpr bool staysInColumn = threads % copiesPerRow == 0;
      if (!staysInColumn) source = corner + (long long)row * rowStride + column;
      const int bytes = row < rowsLeft ? (staysInColumn ? ownBytes : bytesAt(column)) : 0;
      cpAsync<4 * copyFloats>(smem + row * stride + column, source, bytes);
      source += (long long)(threads / copiesPerRow) * rowStride;
    }
  }
};`;

const mainloop = (tile: DmmaShape, sharedBytes: number): string => `
  dynamicSharedMemory(smem, ${sharedBytes});
  const unsigned tilesN = (n + tileN - 1) / tileN, tilesM = (m + tileM - 1) / tileM;
  const unsigned tile = cta % (tilesN * tilesM);
  const long long matrix = cta / (tilesN * tilesM);
  const int firstM = tile / tilesN * tileM, firstN = tile % tilesN * tileN;
  a += matrix * aBatch;
  b += matrix * bBatch;
  const unsigned firstTile = 0, endTile = (k + tileK - 1) / tileK;
  auto stageAt = [&](unsigned kTile) {
    return reinterpret_cast<float*>(smem) + kTile % stages * (TileA::floats + TileB::floats);
  };
  auto loadStage = [&](unsigned kTile) {
    if (kTile < endTile) {
      float* stageTile = stageAt(kTile);
      TileA::load(stageTile, a, aStride, firstM, kTile * tileK, m, k);
      TileB::load(stageTile + TileA::floats, b, bStride, firstN, kTile * tileK, n, k);
    }
    cpAsyncCommit();
  };
${dmmaLoop(tile)}`;

const tileOf = (size: string, { isKMajor, copyFloats }: DmmaOperand): string =>
  `SmemTile<${size}, ${isKMajor}, ${copyFloats}>`;

/** One kernel for a group of GEMMs of one config, with the access of each to its C. */
export function dmmaSource(config: DmmaConfig, accesses: readonly AccessToC[]): KernelSource {
  const { tile, a, b } = config;
  const threads = 32 * tile.warpsM * tile.warpsN;
  const sharedBytes = stageBytes(tile, { a: a.isKMajor, b: b.isKMajor });
  const declarations = `${preludeOf(new Set(["dynamicSharedMemory"]))}${declareDmma(tile)}
${smemTile}
typedef ${tileOf("tileM", a)} TileA;
typedef ${tileOf("tileN", b)} TileB;`;
  const prologue = selectGemm(accesses.length, localsOf(config));
  return cudaKernel({
    ...{ name: "gemm_f32_dmma", elements: "float", threads, requiredCapability: dmmaCapability },
    sharedBytes,
    // Without this bound, widening by bits takes more registers. Conversions would spill a few with it.
    ...(tile.widening === "bits" && { blocksPerSm: residentDmmaCtas(tile, sharedBytes) }),
    parameters: dmmaParameters(config, accesses),
    declarations,
    body: `${indented(prologue)}${mainloop(tile, sharedBytes)}\n${epilogueStore(config)}`,
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
