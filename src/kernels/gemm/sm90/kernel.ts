/** The CUDA source of a native Hopper GEMM: parameters, tensor maps, shared memory, and the sections of the kernel in order. */

import type { KernelSource, Parameter } from "../../../driver/index.js";
import { indented, type MemberLocal } from "../../codegen/cuda/combo/select-member.js";
import { cudaKernel } from "../../codegen/cuda/cuda-function.js";
import { elementTypes } from "../../codegen/cuda/element-types.js";
import { clusterIntrinsics } from "../../codegen/cuda/intrinsics/cluster.js";
import { onlyOnDevice } from "../../codegen/cuda/intrinsics/intrinsic.js";
import { mbarrierIntrinsics } from "../../codegen/cuda/intrinsics/mbarrier.js";
import { cvtRnaTf32, mmaSyncTf32 } from "../../codegen/cuda/intrinsics/mma.js";
import { tmaIntrinsics } from "../../codegen/cuda/intrinsics/tma.js";
import {
  elementTags,
  mmaElements,
  namedBarrierSync,
  setmaxnreg,
  smemDescriptor,
  tileAddress,
  wgmmaRs,
  wgmmaSs,
  wgmmaSync,
} from "../../codegen/cuda/intrinsics/wgmma.js";
import { type PreludeName, preludeOf } from "../../codegen/cuda/prelude.js";
import type { AccessToC } from "../desc.js";
import { gemmLocals, groupParameters, selectGemm } from "../group-launch.js";
import {
  type Epilogue,
  isMmaSyncMainloop,
  isRsMainloop,
  reducesCluster,
  type Sm90Config,
  sm90Capability,
  transposesB,
} from "./configs.js";
import { type PrintedEpilogue, printEpilogue } from "./epilogue.js";
import { earlyLoadsFor, epilogueStoreFor, storesResult, swappedStride } from "./epilogue-store.js";
import { loadFloat4, mmaSyncEpilogueStore, mmaSyncMainloop } from "./mainloop-mma-sync.js";
import { rsBytes, rsMainloop, rsThreads } from "./mainloop-rs.js";
import { ssMainloop } from "./mainloop-ss.js";
import { pingPongThreads, printPingPong } from "./ping-pong.js";
import { addendMaps, addendParameters } from "./products.js";
import {
  maxStageBytes,
  prologueFor,
  smemAlignment,
  smemTile,
  tileScheduler,
  transposedStages,
} from "./smem-tiles.js";
import { splitKRank } from "./split-k.js";
import { box, stagedArrays } from "./staged-arrays.js";
import { kTileBytes, mmaNOf } from "./tiles.js";

/** The sizes that a kernel reads of each GEMM. With an epilogue C is contiguous, as the operands are. */
function sizesFor(epilogue: Epilogue | undefined) {
  const sizes = ["m", "n", "k", "aBatch", "bBatch"] as const;
  return epilogue ? sizes : ([...sizes, "cStride", "cBatch"] as const);
}

/** A ping-pong kernel has no batches, and C only as a tensor map. */
const pingPongSizes = {
  sizes: ["m", "n", "k"],
  tensorMapSizes: ["aBatch", "bBatch", "cStride", "aStride", "bStride", "batch"],
} as const;

/** The parameters of a kernel for GEMMs with these accesses to C, in order; then those of the epilogue. */
export function sm90Parameters(
  config: Sm90Config,
  accesses: readonly AccessToC[],
  epilogue?: Epilogue,
): Readonly<Record<string, Parameter>> {
  const { hasBias, tile } = config;
  const signature = {
    storesC: storesResult(epilogue),
    hasBias,
    sizes: sizesFor(epilogue),
    tensorMapSizes: ["aStride", "bStride", "batch"] as const,
    ...(config.hasAlpha && { scalars: ["alpha"] as const }),
    ...(tile.isPingPong && pingPongSizes),
  };
  const ofGroup = groupParameters(signature, accesses);
  const { biasBatch0: _, ...unbatched } = ofGroup;
  return {
    ...(tile.isPingPong ? unbatched : ofGroup),
    ...addendParameters(config),
    ...(epilogue && printEpilogue(epilogue).parameters),
  };
}

/** One kernel for a group of GEMMs of one config, with the access of each to its C; or for one GEMM and its epilogue. */
export function sm90Source(
  config: Sm90Config,
  accesses: readonly AccessToC[],
  epilogue?: Epilogue,
): KernelSource {
  const { element, tile, isKMajor } = config;
  const { tileM, tileN, warpgroupsM, warpgroupsN } = tile;
  const pingPong = tile.isPingPong ? printPingPong(config, epilogue) : undefined;
  const conversions = conversionsIn(config, epilogue);
  const printed = epilogue && printEpilogue(epilogue, conversions);
  const converting = conversions.length > 0 ? preludeOf(new Set(conversions)) : "";
  const [usesMmaSync, usesRs] = [isMmaSyncMainloop(config), isRsMainloop(config)];
  const consumers = 128 * warpgroupsM * warpgroupsN;
  const { stages, sharedBytes } = pingPong ?? planSharedMemory(config);
  const operandTiles = [`${isKMajor.a}, tileM`, `${isKMajor.b}, tileN`];
  const [tileA, tileB] = tile.swapsAB ? operandTiles.reverse() : operandTiles;
  const declarations = `
${pingPong?.declarations ?? printed?.declarations ?? converting}${intrinsicsFor(config, pingPong?.intrinsics)}
typedef ${mmaElements[element].type} Element;
static constexpr unsigned tileM = ${tileM}, tileN = ${tileN}, stages = ${stages}, consumers = ${consumers};
static constexpr bool transposesTf32 = ${element === "tf32" && !usesMmaSync};
${smemTile}
typedef SmemTile<${tileA}> TileA;
typedef SmemTile<${tileB}> TileB;${usesMmaSync ? loadFloat4 : ""}`;
  const clusterSize = tile.splitsK ?? config.clusterN;
  return cudaKernel({
    ...{ name: `gemm_${element}_sm90`, elements: "float", requiredCapability: sm90Capability },
    ...{
      threads: usesRs ? rsThreads : pingPong ? pingPongThreads : consumers + 32,
      sharedBytes,
      declarations,
    },
    ...(clusterSize !== undefined && { cluster: clusterSize }),
    ...(usesRs || pingPong
      ? { blocksPerSm: 1 }
      : tile.ctasPerSm !== undefined && { blocksPerSm: tile.ctasPerSm }),
    parameters: sm90Parameters(config, accesses, epilogue),
    pointers: { ...printed?.pointers, ...pointersOf(config, accesses.length) },
    maps: { ...tensorMapsOf(config, accesses.length), ...(pingPong && stagedMaps(config, epilogue)) },
    body: [
      indented(selectGemm(accesses.length, localsOf(config, epilogue))),
      ...(config.constantN === undefined ? [] : [`  constexpr int n = ${config.constantN};\n`]),
      `  dynamicSharedMemory(smem, ${sharedBytes});`,
      ...(pingPong ? [pingPong.body] : sectionsOf(config, printed)),
    ].join(""),
  });
}

/** The sections of the kernel after the selection of its GEMM. */
function sectionsOf(config: Sm90Config, epilogue: PrintedEpilogue | undefined): readonly string[] {
  const { splitsK } = config.tile;
  const scheduler = [...(splitsK === undefined ? [] : [splitKRank(splitsK)]), tileScheduler(config)];
  if (isRsMainloop(config)) return [...scheduler, rsMainloop];
  const prologue = [...scheduler, prologueFor(config)];
  if (isMmaSyncMainloop(config)) return [...prologue, mmaSyncMainloop, mmaSyncEpilogueStore];
  const early = earlyLoadsFor(config, epilogue);
  return [...prologue, ssMainloop(config, early), epilogueStoreFor(config, epilogue)];
}

/** The PTX wrappers that a mainloop calls. */
function intrinsicsFor(config: Sm90Config, ofEpilogue: readonly string[] = []): string {
  const n = mmaNOf(config.tile);
  const usesSs = !isMmaSyncMainloop(config) && !isRsMainloop(config);
  const mainloop = isMmaSyncMainloop(config)
    ? [mmaSyncTf32]
    : [
        ...(isRsMainloop(config)
          ? [smemDescriptor, cvtRnaTf32, wgmmaRs(n), setmaxnreg, clusterIntrinsics]
          : [wgmmaSs(config.element, n), ...(config.tile.isPingPong ? [] : [namedBarrierSync])]),
        ...(reducesCluster(config) ? [clusterIntrinsics] : []),
        wgmmaSync,
      ];
  const { isPingPong } = config.tile;
  const code = [elementTags, ...mainloop, mbarrierIntrinsics, tmaIntrinsics, ...ofEpilogue].join("\n");
  return `\n${isPingPong ? "" : preludeOf(new Set(["dynamicSharedMemory"]))}${usesSs ? `${tileAddress}\n` : ""}${onlyOnDevice(code)}`;
}

/** How many stages fit in shared memory, and the bytes of a CTA for stages, mbarriers and the staged epilogue store. */
function planSharedMemory(config: Sm90Config): { stages: number; sharedBytes: number } {
  const { tile } = config;
  if (isRsMainloop(config)) return { stages: tile.stages, sharedBytes: rsBytes(tile) };
  const { tileM, tileN, warpgroupsM, warpgroupsN } = tile;
  const transposedBytes =
    transposesB(config) && !isMmaSyncMainloop(config) ? transposedStages * tileN * kTileBytes : 0;
  const stageBytes = (tileM + tileN) * kTileBytes;
  const stages = Math.min(
    tile.stages,
    Math.floor((maxStageBytes / (tile.ctasPerSm ?? 1) - transposedBytes) / stageBytes),
  );
  const mbarrierBytes = 2 * stages * 8;
  const mainloopBytes = stages * stageBytes + transposedBytes + mbarrierBytes;
  const epilogueBytes = tile.swapsAB
    ? tileM * swappedStride(tile) * 4
    : 4 * warpgroupsM * warpgroupsN * 16 * (tileN / warpgroupsN + 8) * 4;
  return { stages, sharedBytes: smemAlignment + Math.max(mainloopBytes, epilogueBytes) };
}

/** The conversions of the bias when it is loaded, and of C when it is stored. */
function conversionsIn({ hasBias, ...config }: Sm90Config, epilogue: Epilogue | undefined): PreludeName[] {
  const { biasDtype = "f32", resultDtype = "f32" } = config;
  const { widen } = hasBias ? elementTypes[biasDtype] : {};
  const { narrow } = storesResult(epilogue) ? elementTypes[resultDtype] : {};
  return [widen, narrow].filter((name) => name !== undefined);
}

/** The C++ types of the elements of C and of the bias. */
function pointersOf(
  { resultDtype = "f32", biasDtype = "f32", hasBias }: Sm90Config,
  gemms: number,
): Record<string, string> {
  const types = Array.from({ length: gemms }, (_, index) => [
    [`c${index}`, elementTypes[resultDtype].type],
    ...(hasBias ? [[`bias${index}`, elementTypes[biasDtype].type]] : []),
  ]);
  return Object.fromEntries(types.flat());
}

/** The tensor maps of A and B, with boxes 128 bytes wide. TMA rounds to TF32: tensor cores only drop the low bits of a float. */
function tensorMapsOf(config: Sm90Config, gemms: number) {
  const { element, tile, isKMajor } = config;
  const boxColumns = kTileBytes / (element === "tf32" ? 4 : 2);
  const sizes = { a: ["m", tile.tileM], b: ["n", tile.tileN] } as const;
  const mapOf = (
    operand: "a" | "b",
    index: number,
    { k = `k${index}`, rowStride = `${operand}Stride${index}` } = {},
  ) => {
    const [size, tileRows] = sizes[operand];
    const [columns, rows] = isKMajor[operand] ? [k, `${size}${index}`] : [`${size}${index}`, k];
    return {
      ...{ dtype: element, columns, rows, rowStride },
      ...{ matrices: `batch${index}`, matrixStride: `${operand}Batch${index}` },
      box: { columns: boxColumns, rows: isKMajor[operand] ? tileRows : boxColumns },
    };
  };
  const maps: Record<string, ReturnType<typeof mapOf>> = {};
  for (let index = 0; index < gemms; index++) {
    maps[`a${index}`] = mapOf("a", index);
    maps[`b${index}`] = mapOf("b", index);
  }
  for (const { a, b } of addendMaps(config)) {
    maps[a.name] = mapOf("a", 0, a);
    maps[b.name] = mapOf("b", 0, b);
  }
  return maps;
}

const mapLocals: readonly MemberLocal[] = ["a", "b"].map((name) => ({
  type: "const TensorMap*",
  name,
  valueOf: (gemm: number) => `&${name}${gemm}`,
}));

/** A single GEMM whose C is a tensor map. */
const pingPongLocals = ({ hasBias, biasDtype = "f32" }: Sm90Config): readonly MemberLocal[] => [
  ...mapLocals,
  ...gemmLocals(`const ${elementTypes[biasDtype].type}*`, ...(hasBias ? ["bias"] : [])),
  ...gemmLocals("int", "m", "n", "k"),
];

/** The tensor maps of an epilogue's operands and results, which have C's layout. */
function stagedMaps(config: Sm90Config, epilogue: Epilogue | undefined) {
  const { columns, rows } = box;
  const parameters = stagedArrays(config, epilogue)?.flatMap(({ operand, result }) => [operand, result]);
  return Object.fromEntries(
    (parameters ?? []).flatMap((parameter) => {
      if (!parameter) return [];
      const map = {
        ...{ dtype: parameter.dtype, columns: "n0", rows: "m0", rowStride: "cStride0" },
        ...{ matrices: "batch0", matrixStride: "aBatch0", box: { columns, rows } },
      };
      return [[parameter.name, map] as const];
    }),
  );
}

/** The locals that differ between the GEMMs of a group. */
function localsOf(config: Sm90Config, epilogue?: Epilogue): readonly MemberLocal[] {
  const { hasBias, biasDtype = "f32", resultDtype = "f32", constantN, tile } = config;
  if (tile.isPingPong) return pingPongLocals(config);
  const sizes = sizesFor(epilogue).filter((size) => size !== "n" || constantN === undefined);
  return [
    ...mapLocals,
    ...gemmLocals(`const ${elementTypes[biasDtype].type}*`, ...(hasBias ? ["bias"] : [])),
    ...gemmLocals(`${elementTypes[resultDtype].type}*`, ...(storesResult(epilogue) ? ["c"] : [])),
    ...gemmLocals("int", ...sizes, ...(hasBias ? ["biasBatch"] : [])),
    ...gemmLocals("float", ...(config.hasAlpha ? ["alpha"] : [])),
  ];
}
