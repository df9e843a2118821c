/**
 * The CUDA source of a skinny GEMM: C = A · Bᵀ with a few rows of A, on `mma.sync`.
 *
 * The time is that of reading B, the weights. So they go from device memory to registers, 16 bytes for each load of a lane, and many loads
 * are in flight: those of the next tile are issued as the registers of the present one are used. With programmatic dependent launch the
 * first ones are in flight before the preceding kernel has ended.
 *
 * The warps of a CTA split K. In a step, a warp multiplies 64 bytes of eight rows of B with the same columns of A. A lane has 16 bytes of
 * one row, which are two fragments of B. So K is permuted within a step, for both operands in the same way, which changes no sum but in its
 * order. The sums of the warps are added in their order.
 *
 * A is in shared memory for the whole launch, or goes to registers like B: a CTA with one tile would read it from shared memory only once.
 * With a prologue, each CTA computes A in shared memory.
 */

import type { KernelSource, Parameter } from "../../../driver/index.js";
import type { BlockFunction } from "../../codegen/cuda/combo/combo-kernel.js";
import type { MemberLocal } from "../../codegen/cuda/combo/select-member.js";
import { cudaKernel } from "../../codegen/cuda/cuda-function.js";
import { elementTypes } from "../../codegen/cuda/element-types.js";
import { onlyOnDevice } from "../../codegen/cuda/intrinsics/intrinsic.js";
import { cvtRnaTf32Movable, mmaSyncHalf, mmaSyncTf32 } from "../../codegen/cuda/intrinsics/mma.js";
import { elementTags } from "../../codegen/cuda/intrinsics/wgmma.js";
import { type PreludeName, preludeOf } from "../../codegen/cuda/prelude.js";
import { warpSize } from "../../cost-model.js";
import type { AccessToC } from "../desc.js";
import { countSteps, rowBytesOf, type SkinnyConfig, skinnySharedBytes } from "./configs.js";
import { prologueParameter } from "./prologue.js";

const sizes = ["n", "tiles", "bStride", "bBatch", "cStride", "cBatch"] as const;

/** The function that computes A, and the access to each of its parameters that are memory. */
export interface PrologueSource {
  readonly printed: BlockFunction;
  /** Undefined for A, which is in shared memory. */
  readonly accesses: readonly (Parameter | undefined)[];
}

/** The parameters of each GEMM have its number after their names. All have the same A. */
export function skinnyParameters(
  { hasBias }: SkinnyConfig,
  accesses: readonly AccessToC[],
  prologue?: PrologueSource,
): Readonly<Record<string, Parameter>> {
  const parameters: Record<string, Parameter> = {
    ...(prologue ? prologueParameters(prologue) : { a: "in", aStride: "i32" }),
    allTiles: "u32",
  };
  for (const [gemm, access] of accesses.entries()) {
    Object.assign(parameters, { [`b${gemm}`]: "in", [`c${gemm}`]: access });
    if (hasBias) Object.assign(parameters, { [`bias${gemm}`]: "in", [`biasBatch${gemm}`]: "i32" });
    for (const size of sizes) parameters[`${size}${gemm}`] = "i32";
    if (gemm > 0) parameters[`first${gemm}`] = "u32";
  }
  return parameters;
}

function prologueParameters({ printed, accesses }: PrologueSource): Record<string, Parameter> {
  const parameters: Record<string, Parameter> = {};
  for (const [index, parameter] of printed.parameters.entries()) {
    const kind = index < accesses.length ? accesses[index] : parameter.kind;
    if (kind) parameters[prologueParameter(parameter)] = kind;
  }
  return parameters;
}

export function skinnySource(
  config: SkinnyConfig,
  accesses: readonly AccessToC[],
  prologue?: PrologueSource,
): KernelSource {
  const { element, m, k, warps, groups, hasBias, resultDtype, biasDtype, ctasPerSm, streamsA } = config;
  const { chunks, inFlight } = countSteps(config);
  const [type, result, bias] = [
    elementTypes[element === "tf32" ? "f32" : element].type,
    resultDtype,
    biasDtype,
  ].map((name) => elementTypes[name as keyof typeof elementTypes]?.type ?? name);
  const pointers = accesses.map((_, gemm) => [
    [`c${gemm}`, result],
    ...(hasBias ? [[`bias${gemm}`, bias]] : []),
  ]);
  const { narrow } = elementTypes[resultDtype];
  const { widen } = elementTypes[biasDtype];
  const conversions = [narrow, hasBias ? widen : undefined].filter((name) => name !== undefined);
  const called = prologue?.printed.called ?? [];
  const prelude = new Set<PreludeName>([...conversions, ...called, "dynamicSharedMemory"]);
  const ofPrologue = prologue?.printed.parameters.map((parameter) => [
    prologueParameter(parameter),
    parameter.type.replace(/^const |\*$/g, ""),
  ]);
  const sharedBytes = skinnySharedBytes(config);
  return cudaKernel({
    ...{
      name: `gemm_${element}_skinny${prologue ? "_prologue" : ""}`,
      elements: type ?? "float",
      threads: warps * warpSize,
      sharedBytes,
    },
    blocksPerSm: ctasPerSm,
    parameters: skinnyParameters(config, accesses, prologue),
    pointers: Object.fromEntries([...pointers.flat(), ...(ofPrologue ?? [])]) as Record<string, string>,
    declarations: `
${preludeOf(prelude)}${onlyOnDevice(intrinsicsOf(element))}
typedef ${type} Element;
static constexpr unsigned rows = ${m}, k = ${k}, warps = ${warps}, threads = ${warps * warpSize}, groups = ${groups};
static constexpr unsigned inFlight = ${inFlight}, chunks = ${chunks}, paddedVectors = chunks * warps * inFlight * 4;
static constexpr unsigned ${streamsA ? "" : `rowBytes = ${rowBytesOf(config)}, `}tileN = 8 * groups, tilesM = (rows + 15) / 16;
static constexpr unsigned sumsAt = ${streamsA ? 0 : m * rowBytesOf(config)};
// Independent accumulators, if there are registers: an mma waits for the one before it.
static constexpr unsigned chains = tilesM * groups <= 2 ? 2 : 1;
static __device__ __forceinline__ float sumOf(const float (&acc)[chains][4], unsigned e) {
  return chains == 1 ? acc[0][e] : acc[0][e] + acc[chains - 1][e];
}
static constexpr unsigned rowVectors = k * sizeof(Element) / 16;
${element === "tf32" ? fragments.tf32 : `typedef ${element === "bf16" ? "Bf16" : "F16"} Tag;${fragments.half}`}
${prologue?.printed.code ?? ""}`,
    body: `
  dynamicSharedMemory(smem, ${sharedBytes});
${bodyOf(config, accesses.length, prologue)}`,
  });
}

function intrinsicsOf(element: SkinnyConfig["element"]): string {
  return element === "tf32"
    ? [mmaSyncTf32, cvtRnaTf32Movable].join("\n")
    : [elementTags, mmaSyncHalf(element)].join("\n");
}

/** C++: the products of a step, with a vector of two rows of A each, and one of B. */
const fragments = {
  half: `
static __device__ __forceinline__ void multiply(float (&acc)[chains][4], const uint4& low, const uint4& high, const uint4& weights) {
  const unsigned a[2][4] = {{low.x, high.x, low.y, high.y}, {low.z, high.z, low.w, high.w}};
  const unsigned b[2][2] = {{weights.x, weights.y}, {weights.z, weights.w}};
  mmaSync<Tag>(acc[0], a[0], b[0]);
  mmaSync<Tag>(acc[chains - 1], a[1], b[1]);
}`,
  tf32: `
static __device__ __forceinline__ float rounded(unsigned bits) { return cvtRnaTf32(__uint_as_float(bits)); }

static __device__ __forceinline__ void multiply(float (&acc)[chains][4], const uint4& low, const uint4& high, const uint4& weights) {
  const float a[2][4] = {{rounded(low.x), rounded(high.x), rounded(low.y), rounded(high.y)},
                         {rounded(low.z), rounded(high.z), rounded(low.w), rounded(high.w)}};
  const float b[2][2] = {{rounded(weights.x), rounded(weights.y)}, {rounded(weights.z), rounded(weights.w)}};
  mmaSync(acc[0], a[0], b[0]);
  mmaSync(acc[chains - 1], a[1], b[1]);
}`,
};

/** The values of the GEMM that a tile belongs to. */
const localsOf = ({
  hasBias,
  resultDtype,
  biasDtype,
}: SkinnyConfig): readonly Omit<MemberLocal, "valueOf">[] => [
  { type: "const Element*", name: "b" },
  { type: `${elementTypes[resultDtype].type}*`, name: "c" },
  ...(hasBias
    ? [
        { type: `const ${elementTypes[biasDtype].type}*`, name: "bias" },
        { type: "int", name: "biasBatch" },
      ]
    : []),
  ...sizes.map((name) => ({ type: "int", name })),
];

/** C++: A in shared memory, computed. */
function computed({ printed: { parameters, leadingArguments }, accesses }: PrologueSource): string {
  const leading: Readonly<Record<string, string>> = { block: "0u", storesAll: "blockIdx.x == 0u" };
  const values = parameters.map((parameter, index) => {
    const isShared = index < accesses.length && accesses[index] === undefined;
    return isShared ? `reinterpret_cast<${parameter.type}>(activations)` : prologueParameter(parameter);
  });
  const all = [...leadingArguments.map((name) => leading[name]), ...values];
  return `  unsigned char* const activations = smem;
  computeActivations(${all.join(", ")});
  for (unsigned vector = rowVectors + threadIdx.x; vector < paddedVectors; vector += threads)
    *reinterpret_cast<uint4*>(activations + vector * 16) = make_uint4(0, 0, 0, 0);
  __syncthreads();`;
}

/** C++: A in shared memory. */
const staged = {
  first: `  unsigned char* const activations = smem;
  for (unsigned task = threadIdx.x; task < rows * paddedVectors; task += threads) {
    const unsigned row = task / paddedVectors, vector = task % paddedVectors;
    uint4 loaded = make_uint4(0, 0, 0, 0);
    if (vector < rowVectors) loaded = reinterpret_cast<const uint4*>(a + (long long)row * aStride)[vector];
    *reinterpret_cast<uint4*>(activations + row * rowBytes + vector * 16) = loaded;
  }
  __syncthreads();`,
  access: `  const auto activationsOf = [&](unsigned row, unsigned vector) {
    return row < rows ? *reinterpret_cast<const uint4*>(activations + row * rowBytes + vector * 16) : make_uint4(0, 0, 0, 0);
  };
`,
  rows: `          const unsigned vector = vectorAt(chunk, slot);
          const uint4 low = activationsOf(16 * i + group, vector), high = activationsOf(16 * i + 8 + group, vector);`,
};

/** C++: at most eight rows of A in registers, those of a step in the slot of its weights. */
const streamed = {
  declarations: `
  uint4 rowsOfA[inFlight];
  const auto loadRows = [&](unsigned chunk, unsigned slot) {
    const unsigned vector = vectorAt(chunk, slot);
    const bool isInside = group < rows && vector < rowVectors;
    rowsOfA[slot] = isInside ? reinterpret_cast<const uint4*>(a + (long long)group * aStride)[vector] : make_uint4(0, 0, 0, 0);
  };`,
  first: `#pragma unroll
  for (unsigned slot = 0; slot < inFlight; slot++) loadRows(0, slot);`,
  rows: `          const uint4 low = rowsOfA[slot], high = make_uint4(0, 0, 0, 0);`,
};

function bodyOf(config: SkinnyConfig, gemms: number, prologue: PrologueSource | undefined): string {
  const { hasBias, resultDtype, biasDtype, prefetchesB, streamsA } = config;
  const locals = localsOf(config);
  const numbers = Array.from({ length: gemms }, (_, gemm) => gemm);
  const select = numbers
    .map((gemm) => {
      const assignments = locals.map(({ name }) => `at.${name} = ${name}${gemm};`).join(" ");
      return gemm === 0
        ? `${assignments}\n    unsigned tile = index;`
        : `if (index >= first${gemm}) { ${assignments} tile = index - first${gemm}; }`;
    })
    .join("\n    ");
  const loadNext = (chunk: string): string =>
    streamsA ? `{ loadStep(${chunk}, slot); loadRows(${chunk}, slot); }` : `loadStep(${chunk}, slot);`;
  const { widen } = elementTypes[biasDtype];
  const { narrow } = elementTypes[resultDtype];
  const loadedBias = "present.bias[present.matrix * present.biasBatch + column]";
  const biased = hasBias ? `sum + ${widen ? `${widen}(${loadedBias})` : loadedBias}` : "sum";
  return `
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = lane / 4, member = lane % 4;
  // Some rows of the weights of one GEMM.
  struct Tile {
    ${locals.map(({ type, name }) => `${type} ${name};`).join(" ")}
    long long matrix;
    int firstN;

    __device__ __forceinline__ const uint4* rowOf(unsigned index) const {
      // Rows after the last one are not stored.
      const int row = firstN + (int)index < n ? firstN + (int)index : n - 1;
      return reinterpret_cast<const uint4*>(b + matrix * bBatch + (long long)row * bStride);
    }
  };
  const auto tileAt = [&](unsigned index) {
    Tile at;
    ${select}
    at.matrix = tile / (unsigned)at.tiles;
    at.firstN = (int)(tile % (unsigned)at.tiles * tileN);
    return at;
  };
  uint4 weights[groups][inFlight];
  const uint4* from[groups];
  // The warps of a CTA read adjacent parts of each row at a time: device memory is faster for long runs of bytes.
  const auto vectorAt = [&](unsigned chunk, unsigned slot) { return ((chunk * warps + warp) * inFlight + slot) * 4 + member; };
  const auto loadStep = [&](unsigned chunk, unsigned slot) {
    const unsigned vector = vectorAt(chunk, slot);
    const bool isInside = paddedVectors == rowVectors || vector < rowVectors;
#pragma unroll
    for (unsigned i = 0; i < groups; i++) weights[i][slot] = isInside ? from[i][vector] : make_uint4(0, 0, 0, 0);
  };${streamsA ? streamed.declarations : ""}
  const auto pointTo = [&](const Tile& at) {
#pragma unroll
    for (unsigned i = 0; i < groups; i++) from[i] = at.rowOf(8 * i + group);
  };
  ${prefetchesB ? "" : "gridDependencyWait();\n"}
  unsigned next = blockIdx.x;
  Tile present = tileAt(next);
  pointTo(present);
#pragma unroll
  for (unsigned slot = 0; slot < inFlight; slot++) loadStep(0, slot);
  ${prefetchesB ? "gridDependencyWait();\n" : ""}
${streamsA ? streamed.first : prologue ? computed(prologue) : staged.first}
  float* warpSums = reinterpret_cast<float*>(smem + sumsAt);
  float acc[tilesM][groups][chains][4];
${streamsA ? "" : staged.access}  while (next < allTiles) {
#pragma unroll
    for (unsigned i = 0; i < tilesM; i++)
#pragma unroll
      for (unsigned j = 0; j < groups; j++)
#pragma unroll
        for (unsigned e = 0; e < 4 * chains; e++) acc[i][j][e / 4][e % 4] = 0.0f;
    next += gridDim.x;
    const bool hasNext = next < allTiles;
    const Tile following = tileAt(hasNext ? next : next - gridDim.x);
#pragma unroll 1
    for (unsigned chunk = 0; chunk < chunks; chunk++) {
      const bool isLast = chunk + 1 == chunks;
      if (isLast) pointTo(following);
#pragma unroll
      for (unsigned slot = 0; slot < inFlight; slot++) {
#pragma unroll
        for (unsigned i = 0; i < tilesM; i++) {
${streamsA ? streamed.rows : staged.rows}
#pragma unroll
          for (unsigned j = 0; j < groups; j++) multiply(acc[i][j], low, high, weights[j][slot]);
        }
        if (!isLast) ${loadNext("chunk + 1")}
        else if (hasNext) ${loadNext("0")}
      }
    }
#pragma unroll
    for (unsigned i = 0; i < tilesM; i++)
#pragma unroll
      for (unsigned j = 0; j < groups; j++)
#pragma unroll
        for (unsigned half = 0; half < 2; half++) {
          const unsigned row = 16 * i + 8 * half + group;
          if (row < rows)
            *reinterpret_cast<float2*>(warpSums + (warp * rows + row) * tileN + 8 * j + 2 * member) =
                make_float2(sumOf(acc[i][j], 2 * half), sumOf(acc[i][j], 2 * half + 1));
        }
    __syncthreads();
    for (unsigned task = threadIdx.x; task < rows * tileN; task += threads) {
      const int column = present.firstN + (int)(task % tileN);
      float sum = warpSums[task];
#pragma unroll
      for (unsigned other = 1; other < warps; other++) sum += warpSums[other * rows * tileN + task];
      if (column < present.n)
        present.c[present.matrix * present.cBatch + (long long)(task / tileN) * present.cStride + column] = ${
          narrow ? `${narrow}(${biased})` : biased
        };
    }
    // The next tile's sums are in the other half, so that one barrier for each tile suffices.
    warpSums = warpSums == reinterpret_cast<float*>(smem + sumsAt)
                   ? reinterpret_cast<float*>(smem + sumsAt) + warps * rows * tileN
                   : reinterpret_cast<float*>(smem + sumsAt);
    present = following;
  }`;
}
