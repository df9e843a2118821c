/** The text of products by warpgroups: tiles in shared memory, which the tensor cores read by themselves. */

import type { KernelSource, Parameter } from "../../../driver/index.js";
import { cudaKernel } from "../../codegen/cuda/cuda-function.js";
import { elementTypes } from "../../codegen/cuda/element-types.js";
import { elements, instructionsFor } from "../../codegen/cuda/intrinsics/wgmma.js";
import { preludeOf } from "../../codegen/cuda/prelude.js";
import type { AccessToC } from "../desc.js";
import { type GemmLocal, localsOf, selectGemm } from "../grouped-gemm.js";
import {
  type Epilogue,
  isMmaSyncMainloop,
  isRsMainloop,
  type Sm90Config,
  transposesB,
  type WarpgroupTile,
  warpgroupCapability,
  widthOf,
} from "./configs.js";
import { type PrintedEpilogue, printEpilogue } from "./epilogue.js";
import { epilogueStoreFor, storesResult, swappedStride } from "./epilogue-store.js";
import { loadingFours, mmaSyncMainloop, storeMmaSync } from "./mainloop-mma-sync.js";
import { rsBody, rsBytes, rsThreads, sharingOfTerms } from "./mainloop-rs.js";
import { maxTileBytes, prologueFor, sides, tileScheduler, transposedTiles } from "./smem-tiles.js";

/** What a kernel knows of each of its products besides its operands; nothing of a C that it does not store. */
function figuresFor(finish: Epilogue | undefined): readonly string[] {
  return ["m", "n", "k", "aBatch", "bBatch", ...(storesResult(finish) ? ["cStride", "cBatch"] : [])];
}

/** What else the maps of its operands are made of. */
const mapFigures = ["aStride", "bStride", "batch"] as const;

/**
 * The parameters of a kernel, in their order: all that there is of the first product, then of the second, each with the
 * product's number behind its name; then what its finish takes. `first` is the first of the blocks that work on a product.
 */
export function warpgroupParameters(
  { hasBias }: Sm90Config,
  accesses: readonly AccessToC[],
  finish?: Epilogue,
): Readonly<Record<string, Parameter>> {
  const parameters: Record<string, Parameter> = {};
  for (const [index, access] of accesses.entries()) {
    Object.assign(parameters, { [`a${index}`]: "in", [`b${index}`]: "in" });
    if (storesResult(finish)) parameters[`c${index}`] = access;
    if (hasBias) parameters[`bias${index}`] = "in";
    for (const figure of [...figuresFor(finish), ...mapFigures]) parameters[`${figure}${index}`] = "i32";
    if (hasBias) parameters[`biasBatch${index}`] = "i32";
    if (index > 0) parameters[`first${index}`] = "u32";
  }
  return { ...parameters, ...(finish && printEpilogue(finish).parameters) };
}

/** The sums of a warpgroup: some pieces of 64 lines of the left side, and so many of the right one. */
const multiplicationFor = (tile: WarpgroupTile): string => `
  constexpr unsigned groupsAcross = ${tile.swapsAB ? 1 : tile.across}, down = ${tile.swapsAB ? 1 : tile.rows / 64 / tile.down};
  constexpr unsigned width = ${widthOf(tile)};
  const unsigned group = threadIdx.x / 128, top = group / groupsAcross * (64 * down), side = group % groupsAcross * width;
  float sums[down][width / 2];
#pragma unroll
  for (unsigned i = 0; i < down; i++) {
#pragma unroll
    for (unsigned e = 0; e < width / 2; e++) {
      sums[i][e] = 0;
      settle(sums[i][e]);
    }
  }
  for (unsigned step = 0; step < steps; step++) {
    const unsigned stage = step % stages;
    mbarrierWait(full + stage, step / stages % 2);
    const unsigned char *left = tiles + stage * (Left::bytes + Right::bytes), *right = left + Left::bytes;
    if constexpr (Right::isTransposed) {
      unsigned char* const to = turned + step % ${transposedTiles} * Right::bytes;
      Right::turn(to, right);
      right = to;
      fenceProxyAsync();
      namedBarrierSync(1, consumers);
    }
    wgmmaFence();
#pragma unroll
    for (unsigned part = 0; part < 4; part++) {
#pragma unroll
      for (unsigned i = 0; i < down; i++) {
        multiplyTiles<Element, width, Left::liesKMajor, Right::liesKMajor>(
            sums[i], Left::at(left, top + 64 * i, part), Right::at(right, side, part));
      }
    }
    wgmmaCommit();
    // With the last step's products made, its tile is free.
    wgmmaWait<1>();
    if (step > 0 && threadIdx.x % 32 == 0) mbarrierArrive(free + (step - 1) % stages);
  }
  wgmmaWait<0>();
  namedBarrierSync(1, consumers);`;

/** One kernel for products of one form, with what each does to its C; or for one product and its finish. */
export function warpgroupSource(
  form: Sm90Config,
  accesses: readonly AccessToC[],
  finish?: Epilogue,
): KernelSource {
  const { element, tile, isKMajor, resultDtype = "f32" } = form;
  const { rows, columns, down, across } = tile;
  const narrow = elementTypes[resultDtype].narrow;
  const printed = finish && printEpilogue(finish, storesResult(finish) && narrow ? [narrow] : []);
  const rounding = !finish && narrow ? preludeOf(new Set([narrow])) : "";
  const [byWarps, byRegisters] = [isMmaSyncMainloop(form), isRsMainloop(form)];
  const consumers = 128 * down * across;
  const { stages, sharedBytes } = memoryFor(form);
  const sidesOfC = [`${isKMajor.a}, tileRows`, `${isKMajor.b}, tileColumns`];
  const [left, right] = tile.swapsAB ? sidesOfC.reverse() : sidesOfC;
  const declarations = `
${printed?.declarations ?? rounding}${instructionsFor(form)}
typedef ${elements[element].name} Element;
static constexpr unsigned tileRows = ${rows}, tileColumns = ${columns}, stages = ${stages}, consumers = ${consumers};
static constexpr bool transposesFloats = ${transposesFloats(form)};
${sides}
typedef Side<${left}> Left;
typedef Side<${right}> Right;${byWarps ? loadingFours : ""}`;
  return cudaKernel({
    ...{ name: `gemm_${element}_sm90`, elements: "float", onlyFor: warpgroupCapability },
    ...{ threads: byRegisters ? rsThreads : consumers + 32, sharedBytes, declarations },
    ...(byRegisters && { cluster: 2, isAlone: true }),
    ...(form.isClustered && { cluster: 2 }),
    parameters: warpgroupParameters(form, accesses, finish),
    pointers: { ...printed?.pointers, ...pointersToResults(form, accesses.length) },
    maps: mapsOf(form, accesses.length),
    body: [
      selectGemm(localsFor(form, finish), accesses.length),
      ...(form.columns === undefined ? [] : [`  constexpr int n = ${form.columns};\n`]),
      `  dynamicSharedMemory(launched, ${sharedBytes});`,
      ...workOf(form, printed),
    ].join(""),
  });
}

/** What a block does with its product. */
function workOf(form: Sm90Config, finish: PrintedEpilogue | undefined): readonly string[] {
  const { tile } = form;
  if (isRsMainloop(form)) return [sharingOfTerms, tileScheduler(form), rsBody];
  const begun = [tileScheduler(form), prologueFor(form)];
  if (isMmaSyncMainloop(form)) return [...begun, mmaSyncMainloop, storeMmaSync];
  return [...begun, multiplicationFor(tile), epilogueStoreFor(form, finish)];
}

/** Are floats turned round in shared memory that don't lie along their terms? */
const transposesFloats = (form: Sm90Config): boolean => form.element === "tf32" && !isMmaSyncMainloop(form);

/** How many tiles of each side are there at a time, and how much memory a block has for them and for turning C. */
function memoryFor(form: Sm90Config): { stages: number; sharedBytes: number } {
  const { tile } = form;
  if (isRsMainloop(form)) return { stages: tile.stages, sharedBytes: rsBytes(tile) };
  const { rows, columns, down, across } = tile;
  const transposedBytes = transposesB(form) && !isMmaSyncMainloop(form) ? transposedTiles * columns * 128 : 0;
  const stageBytes = (rows + columns) * 128;
  const stages = Math.min(tile.stages, Math.floor((maxTileBytes - transposedBytes) / stageBytes));
  const tileBytes = stages * stageBytes + transposedBytes + 2 * stages * 8;
  const turningBytes = tile.swapsAB
    ? rows * swappedStride(tile) * 4
    : 4 * down * across * 16 * (columns / across + 8) * 4;
  return { stages, sharedBytes: 1024 + Math.max(tileBytes, turningBytes) };
}

/** What C's parameters point to. */
function pointersToResults({ resultDtype = "f32" }: Sm90Config, products: number): Record<string, string> {
  const { type } = elementTypes[resultDtype];
  return Object.fromEntries(Array.from({ length: products }, (_, index) => [`c${index}`, type]));
}

/** Operands are maps, of which boxes of 128 bytes across are brought. */
function mapsOf({ element, tile, isKMajor }: Sm90Config, products: number) {
  const across = 128 / (element === "tf32" ? 4 : 2);
  const mapOf = (side: "a" | "b", size: string, rows: number, index: number) => {
    const [columns, lines] = isKMajor[side] ? ["k", size] : [size, "k"];
    return {
      dtype: element === "tf32" ? ("f32" as const) : element,
      ...{ columns: `${columns}${index}`, rows: `${lines}${index}`, rowStride: `${side}Stride${index}` },
      ...{ matrices: `batch${index}`, matrixStride: `${side}Batch${index}` },
      box: { columns: across, rows: isKMajor[side] ? rows : across },
    };
  };
  const maps: Record<string, ReturnType<typeof mapOf>> = {};
  for (let index = 0; index < products; index++) {
    maps[`a${index}`] = mapOf("a", "m", tile.rows, index);
    maps[`b${index}`] = mapOf("b", "n", tile.columns, index);
  }
  return maps;
}

/** What a block knows of its product. */
function localsFor(
  { hasBias, resultDtype = "f32", columns }: Sm90Config,
  finish?: Epilogue,
): readonly GemmLocal[] {
  const figures = figuresFor(finish).filter((figure) => figure !== "n" || columns === undefined);
  return [
    ...localsOf("const TensorMap*", ["a", "b"]).map((local) => ({ ...local, isAddress: true })),
    ...localsOf("const float*", hasBias ? ["bias"] : []),
    ...localsOf(`${elementTypes[resultDtype].type}*`, storesResult(finish) ? ["c"] : []),
    ...localsOf("int", [...figures, ...(hasBias ? ["biasBatch"] : [])]),
  ];
}
