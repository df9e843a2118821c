/**
 * The CUDA source of a bf16x6 GEMM. The two consumer warpgroups load A from shared memory and split it in registers. A producer warpgroup
 * loads by TMA, and splits B into three bf16 tiles in shared memory.
 */

import type { KernelSource, Parameter } from "../../../driver/index.js";
import { indented, type MemberLocal } from "../../codegen/cuda/combo/select-member.js";
import { cudaKernel, type NamedTensorMap } from "../../codegen/cuda/cuda-function.js";
import { clusterIntrinsics } from "../../codegen/cuda/intrinsics/cluster.js";
import { onlyOnDevice } from "../../codegen/cuda/intrinsics/intrinsic.js";
import { mbarrierIntrinsics } from "../../codegen/cuda/intrinsics/mbarrier.js";
import { packHalves } from "../../codegen/cuda/intrinsics/mma.js";
import { tmaIntrinsics } from "../../codegen/cuda/intrinsics/tma.js";
import {
  elementTags,
  setmaxnreg,
  smemDescriptor,
  wgmmaHalves,
  wgmmaSync,
} from "../../codegen/cuda/intrinsics/wgmma.js";
import { preludeOf } from "../../codegen/cuda/prelude.js";
import type { AccessToC } from "../desc.js";
import { gemmLocals, groupParameters, selectGemm } from "../group-launch.js";
import { splitKRank, splitKTiles } from "../sm90/split-k.js";
import { type Bf16x6Config, tileK, tileM, tileN } from "./configs.js";
import { consumer, consumers, producer, producers, stages } from "./mainloop.js";
import { epilogueStore } from "./store.js";

/** The sizes that a kernel reads. */
const sizes = ["m", "n", "k", "aStride", "bStride", "cStride", "aBatch", "bBatch", "cBatch"] as const;

/** The parameters in order. A and B are passed twice: as tensor maps, and as pointers for elements that are computed again. */
export function bf16x6Parameters(
  { hasBias, readsC }: Pick<Bf16x6Config, "hasBias" | "readsC">,
  accesses: readonly AccessToC[],
): Readonly<Record<string, Parameter>> {
  const scalars = readsC ? (["alpha", "beta"] as const) : (["alpha"] as const);
  const signature = { storesC: true, hasBias, sizes, scalars, tensorMapSizes: ["batch"] as const };
  const elements = accesses.flatMap((_, gemm) => elementNames(gemm));
  return {
    ...groupParameters(signature, accesses),
    ...Object.fromEntries(elements.map((name) => [name, "in" as const])),
  };
}

/** The pointers to A and B. */
export const elementNames = (gemm: number) => [`aElements${gemm}`, `bElements${gemm}`] as const;

/** Tiles in shared memory: stages of A and B as floats, and as many of B's terms. */
const tileBytes = { a: tileM * tileK * 4, b: tileN * tileK * 4, terms: 3 * tileN * tileK * 2 } as const;
const mbarrierBytes = 8 * stages * (1 + producers / 32 + 2);
/** The 128-byte swizzle follows address bits. Shared memory of a cluster's CTA is aligned by the kernel. */
const alignment = 1024;

const sharedBytesOf = ({ splitsK }: Bf16x6Config): number =>
  stages * (tileBytes.a + tileBytes.b + tileBytes.terms) + mbarrierBytes + (splitsK > 1 ? alignment : 0);

/** One kernel for a group of GEMMs of one config, with the access of each to its C. */
export function bf16x6Source(config: Bf16x6Config, accesses: readonly AccessToC[]): KernelSource {
  const { isKMajor, splitsK } = config;
  const sharedBytes = sharedBytesOf(config);
  const sharedMemory = splitsK > 1 ? "dynamicSharedMemory" : "swizzledSharedMemory";
  const intrinsics = [
    ...[elementTags, smemDescriptor, wgmmaHalves("bf16", [tileN]), wgmmaSync, setmaxnreg],
    ...[mbarrierIntrinsics, tmaIntrinsics, packHalves("bf16")],
    ...(splitsK > 1 ? [clusterIntrinsics] : []),
  ];
  return cudaKernel({
    ...{ name: "gemm_f32_bf16x6", elements: "float", requiredCapability: "9.0" },
    ...{ threads: consumers + producers, blocksPerSm: 1, sharedBytes },
    ...(splitsK > 1 && { cluster: splitsK }),
    parameters: bf16x6Parameters(config, accesses),
    maps: Object.assign({}, ...accesses.map((_, gemm) => tensorMaps(config, gemm))),
    declarations: `${preludeOf(new Set([sharedMemory]))}${onlyOnDevice(intrinsics.join("\n"))}
static constexpr unsigned tileM = ${tileM}, tileN = ${tileN}, tileK = ${tileK}, stages = ${stages}, consumers = ${consumers};
static constexpr bool isAKMajor = ${isKMajor.a}, isBKMajor = ${isKMajor.b};
${splitTerms}`,
    body: [
      indented(selectGemm(accesses.length, locals(config))),
      `  ${sharedMemory}(${splitsK > 1 ? "allocated" : "smem"}, ${sharedBytes});`,
      ...(splitsK > 1 ? [alignedMemory, splitKRank(splitsK)] : []),
      tileScheduler,
      splitsK > 1
        ? splitKTiles(splitsK)
        : "\n  const unsigned firstKTile = 0, kTiles = (k + tileK - 1) / tileK;",
      producer(config),
      consumer(config),
      epilogueStore(config),
    ].join(""),
  });
}

/** The tensor maps of a GEMM. A box has 128 bytes of each of its rows: those of a producer warp for B, those of the CTA for A. */
function tensorMaps({ isKMajor }: Bf16x6Config, gemm: number): Record<string, NamedTensorMap<string>> {
  const mapOf = (operand: "a" | "b", size: "m" | "n", rows: number): NamedTensorMap<string> => ({
    dtype: "f32",
    ...(isKMajor[operand]
      ? { columns: `k${gemm}`, rows: `${size}${gemm}` }
      : { columns: `${size}${gemm}`, rows: `k${gemm}` }),
    ...{
      rowStride: `${operand}Stride${gemm}`,
      matrices: `batch${gemm}`,
      matrixStride: `${operand}Batch${gemm}`,
    },
    box: { columns: 32, rows: isKMajor[operand] ? rows : tileK },
  });
  return { [`a${gemm}`]: mapOf("a", "m", tileM), [`b${gemm}`]: mapOf("b", "n", (tileN * 32) / producers) };
}

const alignedMemory = `
  unsigned char* const smem = allocated + (${alignment} - reinterpret_cast<unsigned long long>(allocated) % ${alignment}) % ${alignment};`;

/** Tiles in bands of eight rows of tiles: CTAs that run at the same time read neighbouring parts of A and B, which stay in the L2 cache. */
const tileScheduler = `
  const unsigned tilesN = (n + tileN - 1) / tileN, tilesM = (m + tileM - 1) / tileM;
  const unsigned tile = cta % (tilesN * tilesM), band = tile / (8 * tilesN), inBand = tile % (8 * tilesN);
  const unsigned bandRows = tilesM - 8 * band < 8 ? tilesM - 8 * band : 8;
  const long long matrix = cta / (tilesN * tilesM);
  const int firstM = (8 * band + inBand % bandRows) * tileM, firstN = inBand / bandRows * tileN;`;

/** A float is the sum of three bf16 terms: exactly, unless the last one is subnormal. Each is the rounding of what the others leave. */
const splitTerms = `
static __device__ __forceinline__ void splitPair(float first, float second, unsigned (&terms)[3]) {
#pragma unroll
  for (unsigned term = 0; term < 3; term++) {
    terms[term] = packHalves<Bf16>(first, second);
    first -= __uint_as_float(terms[term] << 16);
    second -= __uint_as_float(terms[term] & 0xffff0000u);
  }
}

// The offset of a 16-byte chunk in the 128-byte swizzle.
static __device__ __forceinline__ unsigned swizzledOffset(unsigned row, unsigned chunk) { return row * 128 + ((chunk ^ (row & 7)) << 4); }

// The operand of one wgmma: 16 of a tile's rows or columns along K.
static __device__ __forceinline__ SmemOperand termTile(const unsigned char* tile, unsigned kStep) {
  return isBKMajor ? advance(smemOperand(tile), kStep * 32) : advance(smemOperand(tile, tileK * 128), kStep * (16 * 128));
}`;

function locals({ hasBias, readsC }: Bf16x6Config): readonly MemberLocal[] {
  return [
    ...["a", "b"].map((name) => ({
      type: "const TensorMap*",
      name,
      valueOf: (gemm: number) => `&${name}${gemm}`,
    })),
    ...gemmLocals("const float*", "aElements", "bElements", ...(hasBias ? ["bias"] : [])),
    ...gemmLocals("float*", "c"),
    ...gemmLocals("int", ...sizes, ...(hasBias ? ["biasBatch"] : [])),
    ...gemmLocals("float", "alpha", ...(readsC ? ["beta"] : [])),
  ];
}
