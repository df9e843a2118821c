/** The text of wide products: tiles in shared memory, multiplied as doubles by the tensor cores. */

import type { KernelSource, Parameter } from "../../../driver/index.js";
import { cudaKernel } from "../../codegen/cuda/cuda-function.js";
import { copyInstructions } from "../../codegen/cuda/intrinsics/cp-async.js";
import type { AccessToC } from "../desc.js";
import { type GemmLocal, localsOf, selectGemm } from "../grouped-gemm.js";
import { type DmmaConfig, type DmmaOperand, dmmaCapability } from "./configs.js";

/** What a kernel knows of each of its products besides its operands. */
const figures = ["m", "n", "k", "aStride", "bStride", "cStride", "aBatch", "bBatch", "cBatch"] as const;

/**
 * The parameters of a kernel, in their order: all that there is of the first product, then of the second, each with the
 * product's number behind its name. `first` is the first of the blocks that work on a product.
 */
export function dmmaParameters(
  { hasBias, readsC }: DmmaConfig,
  accesses: readonly AccessToC[],
): Readonly<Record<string, Parameter>> {
  const parameters: Record<string, Parameter> = {};
  for (const [index, access] of accesses.entries()) {
    Object.assign(parameters, { [`a${index}`]: "in", [`b${index}`]: "in", [`c${index}`]: access });
    if (hasBias) parameters[`bias${index}`] = "in";
    for (const figure of figures) parameters[`${figure}${index}`] = "i32";
    if (hasBias) parameters[`biasBatch${index}`] = "i32";
    parameters[`alpha${index}`] = "f32";
    if (readsC) parameters[`beta${index}`] = "f32";
    if (index > 0) parameters[`first${index}`] = "u32";
  }
  return parameters;
}

/** The machine's instructions by the names that we use; whoever emulates the machine brings its own. */
const instructions = `
#ifndef HOLDFAST_INSTRUCTIONS
// sums[16, 8] += left[16, 8] · right[8, 8], spread over a warp.
static __device__ __forceinline__ void multiplyAdd(double (&sums)[4], const double (&left)[4], const double (&right)[2]) {
  asm("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+d"(sums[0]), "+d"(sums[1]), "+d"(sums[2]), "+d"(sums[3])
      : "d"(left[0]), "d"(left[1]), "d"(left[2]), "d"(left[3]), "d"(right[0]), "d"(right[1]));
}
// Four pieces of 8 rows × 4 floats, whose rows begin where the lanes say, 8 for each piece: a lane gets one float of each.
template <class Float>
static __device__ __forceinline__ void loadPieces(Float (&floats)[4], const Float* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=f"(floats[0]), "=f"(floats[1]), "=f"(floats[2]), "=f"(floats[3])
               : "r"((unsigned)__cvta_generic_to_shared(row)));
}
${copyInstructions}
#endif`;

/** `Side`: one operand's tile in shared memory, as it lies in its matrix, with room against conflicts of banks. */
const sides = `
template <unsigned width, bool isKMajor, unsigned chunk>
struct Side {
  static constexpr unsigned rows = isKMajor ? width : depth, columns = isKMajor ? depth : width;
  static constexpr unsigned stride = columns + (isKMajor ? 4 : 8), size = rows * stride;

  // Terms from \`term\` on, of the rows or columns of C from \`first\` on; what is not there becomes 0.
  static __device__ __forceinline__ void bring(
      float* to, const float* matrix, int rowStride, int first, int term, int end, int terms) {
    constexpr unsigned across = columns / chunk, all = rows * across;
    const float* corner = matrix + (long long)(isKMajor ? first : term) * rowStride + (isKMajor ? term : first);
    const int rowsLeft = isKMajor ? end - first : terms - term, columnsLeft = isKMajor ? terms - term : end - first;
    const float* from = corner + (long long)(threadIdx.x / across) * rowStride + threadIdx.x % across * chunk;
#pragma unroll
    for (unsigned done = 0; done < all; done += threads) {
      const unsigned own = done + threadIdx.x;
      if (all % threads != 0 && own >= all) break;
      const int row = own / across, column = own % across * chunk;
      const int left = row < rowsLeft ? columnsLeft - column : 0;
      const unsigned bytes = left <= 0 ? 0 : left < (int)chunk ? 4 * left : 4 * chunk;
      // Most tiles have rows that fit: then a thread goes straight down.
      if (threads % across != 0) from = corner + (long long)row * rowStride + column;
      cpAsync<4 * chunk>(to + row * stride + column, bytes > 0 ? from : matrix, bytes);
      from += (long long)(threads / across) * rowStride;
    }
  }

  // Eight terms of 16 rows or columns of C. A lane gets two of those, one as its group says and one of the others, which is
  // \`which\`: its member's term of both, then the fourth term behind that.
  static __device__ __forceinline__ void load(float (&floats)[4], const float* tile, unsigned first, unsigned term) {
    const unsigned lane = threadIdx.x % 32;
    if constexpr (isKMajor) {
      loadPieces(floats, tile + (first + lane % 16) * stride + term + lane / 16 * 4);
    } else {
      const float* at = tile + (term + lane % 4) * stride + first + placeOf(lane / 4, 0);
      const float2 now = *reinterpret_cast<const float2*>(at);
      const float2 then = *reinterpret_cast<const float2*>(at + 4 * stride);
      floats[0] = now.x;
      floats[1] = now.y;
      floats[2] = then.x;
      floats[3] = then.y;
    }
  }

  // Where in the 16 that one lies: whatever is loaded fastest.
  static __device__ __forceinline__ unsigned placeOf(unsigned group, unsigned which) {
    return isKMajor ? group + 8 * which : 2 * group + which;
  }
};`;

const multiplication = `
  __shared__ __align__(16) float tiles[stages][Left::size + Right::size];
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = lane / 4, member = lane % 4;
  // Where this warp's part of the tile begins.
  const unsigned top = warp / warpsAcross * (16 * down), side = warp % warpsAcross * (16 * across);
  const unsigned tilesAcross = (n + tileColumns - 1) / tileColumns, tilesDown = (m + tileRows - 1) / tileRows;
  const unsigned inBatch = block % (tilesAcross * tilesDown);
  const long long product = block / (tilesAcross * tilesDown);
  const int firstRow = inBatch / tilesAcross * tileRows, firstColumn = inBatch % tilesAcross * tileColumns;
  a += product * aBatch;
  b += product * bBatch;
  const unsigned steps = (k + depth - 1) / depth;
  auto bring = [&](unsigned step) {
    if (step < steps) {
      float* tile = tiles[step % stages];
      Left::bring(tile, a, aStride, firstRow, step * depth, m, k);
      Right::bring(tile + Left::size, b, bStride, firstColumn, step * depth, n, k);
    }
    cpAsyncCommit();
  };

  double sums[down][across][2][4];
#pragma unroll
  for (unsigned i = 0; i < down; i++) {
#pragma unroll
    for (unsigned j = 0; j < across; j++) {
#pragma unroll
      for (unsigned e = 0; e < 8; e++) sums[i][j][e / 4][e % 4] = 0;
    }
  }
  // What is multiplied, and what is multiplied next.
  float left[2][down][4], right[2][across][4];
  auto fetch = [&](unsigned to, const float* tile, unsigned term) {
#pragma unroll
    for (unsigned i = 0; i < down; i++) Left::load(left[to][i], tile, top + 16 * i, term);
#pragma unroll
    for (unsigned j = 0; j < across; j++) Right::load(right[to][j], tile + Left::size, side + 16 * j, term);
  };
  auto multiply = [&](unsigned from) {
    double columns[across][2][2];
#pragma unroll
    for (unsigned j = 0; j < across; j++) {
#pragma unroll
      for (unsigned e = 0; e < 4; e++) columns[j][e % 2][e / 2] = right[from][j][e];
    }
#pragma unroll
    for (unsigned i = 0; i < down; i++) {
      double rows[4];
#pragma unroll
      for (unsigned e = 0; e < 4; e++) rows[e] = left[from][i][e];
#pragma unroll
      for (unsigned j = 0; j < across; j++) {
        multiplyAdd(sums[i][j][0], rows, columns[j][0]);
        multiplyAdd(sums[i][j][1], rows, columns[j][1]);
      }
    }
  };

#pragma unroll
  for (unsigned step = 0; step + 1 < stages; step++) bring(step);
  cpAsyncWait<stages - 2>();
  __syncthreads();
  fetch(0, tiles[0], 0);
  for (unsigned step = 0; step < steps; step++) {
#pragma unroll
    for (unsigned term = 0; term < depth; term += 8) {
      const unsigned now = term / 8 % 2;
      if (term + 8 < depth) {
        fetch(1 - now, tiles[step % stages], term + 8);
      } else {
        cpAsyncWait<stages - 2>();
        __syncthreads();
        if (step + 1 < steps) fetch(1 - now, tiles[(step + 1) % stages], 0);
      }
      if (term == 0) bring(step + stages - 1);
      multiply(now);
    }
  }`;

const sideOf = (width: string, { isKMajor, chunk }: DmmaOperand): string =>
  `Side<${width}, ${isKMajor}, ${chunk}>`;

/** One kernel for products of one form, with what each does to its C. */
export function wideSource(form: DmmaConfig, accesses: readonly AccessToC[]): KernelSource {
  const { tile, a, b } = form;
  const { rows, columns, depth, stages, warpsDown, warpsAcross } = tile;
  const threads = 32 * warpsDown * warpsAcross;
  const declarations = `
static constexpr unsigned tileRows = ${rows}, tileColumns = ${columns}, depth = ${depth}, stages = ${stages};
static constexpr unsigned warpsAcross = ${warpsAcross}, threads = ${threads};
// The sums of a warp: so many pieces of 16 × 16.
static constexpr unsigned down = ${rows / warpsDown / 16}, across = ${columns / warpsAcross / 16};
${instructions}
${sides}
typedef ${sideOf("tileRows", a)} Left;
typedef ${sideOf("tileColumns", b)} Right;`;
  return cudaKernel({
    ...{ name: "gemm_f32_dmma", elements: "float", threads, onlyFor: dmmaCapability },
    parameters: dmmaParameters(form, accesses),
    declarations,
    body: `${selectGemm(localsFor(form), accesses.length)}${multiplication}\n${storing(form)}`,
  });
}

/** What a block knows of its product. */
function localsFor({ hasBias, readsC }: DmmaConfig): readonly GemmLocal[] {
  return [
    ...localsOf("const float*", ["a", "b", ...(hasBias ? ["bias"] : [])]),
    ...localsOf("float*", ["c"]),
    ...localsOf("int", [...figures, ...(hasBias ? ["biasBatch"] : [])]),
    ...localsOf("float", ["alpha", ...(readsC ? ["beta"] : [])]),
  ];
}

/** The sums, rounded once. Those of a lane lie side by side in fours, or in pairs where B's terms lie so. */
function storing({ b, hasBias, readsC, storesFours }: DmmaConfig): string {
  const sum = b.isKMajor ? "sums[i][j][begin / 2][2 * e + next]" : "sums[i][j][next % 2][2 * e + next / 2]";
  const whole = b.isKMajor
    ? "*reinterpret_cast<float2*>(at) = make_float2(values[0], values[1]);"
    : "*reinterpret_cast<float4*>(at) = make_float4(values[0], values[1], values[2], values[3]);";
  const each =
    "for (unsigned next = 0; next < run && column + (int)next < n; next++) at[next] = values[next];";
  const biases = `float biases[run];
#pragma unroll
      for (unsigned next = 0; next < run; next++) {
        biases[next] = column + (int)next < n ? bias[product * biasBatch + column + next] : 0;
      }`;
  return `
  constexpr unsigned run = ${b.isKMajor ? 2 : 4};
#pragma unroll
  for (unsigned j = 0; j < across; j++) {
#pragma unroll
    for (unsigned begin = 0; begin < 4; begin += run) {
      const int column = firstColumn + side + 16 * j + Right::placeOf(2 * member, begin / 2);
      ${hasBias ? biases : ""}
#pragma unroll
      for (unsigned i = 0; i < down; i++) {
#pragma unroll
        for (unsigned e = 0; e < 2; e++) {
          const int row = firstRow + top + 16 * i + Left::placeOf(group, e);
          if (row >= m || column >= n) continue;
          float* at = c + product * cBatch + (long long)row * cStride + column;
          float values[run];
#pragma unroll
          for (unsigned next = 0; next < run; next++) {
            double sum = alpha * ${sum};
            ${readsC ? "if (column + (int)next < n) sum += beta * (double)at[next];" : ""}
            ${hasBias ? "sum += biases[next];" : ""}
            values[next] = (float)sum;
          }
          ${storesFours ? `if (column + (int)run <= n) ${whole}\n          else ${each}` : each}
        }
      }
    }
  }`;
}
