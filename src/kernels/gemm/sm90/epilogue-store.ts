/** The epilogue store: moves accumulators to C, or through a fused epilogue. Most tiles are staged in shared memory, so that a warp stores whole rows. */

import { elementTypes } from "../../codegen/cuda/element-types.js";
import { warpSize } from "../../cost-model.js";
import type { Epilogue, Sm90Config } from "./configs.js";
import type { PrintedEpilogue } from "./epilogue.js";
import { storeFromRegisters } from "./split-k.js";
import { mmaNOf, type Sm90Tile } from "./tiles.js";

/** True if the kernel stores C. */
export const storesResult = (epilogue: Pick<Epilogue, "storesC"> | undefined): boolean =>
  !epilogue || epilogue.storesC;

/** The row stride of a staged swapAB tile: padded, because lanes store to four rows at a time and need different banks. */
export const swappedStride = ({ tileN }: Pick<Sm90Tile, "tileN">): number => tileN + 4;

/** A warp stages rows of at most one float4 per lane. Kernels with wider tiles only store C in f32, without a bias. */
const maxStagedN = 128;

/** C++: the store of a consumer warpgroup's accumulators `acc`. */
export function epilogueStoreFor(config: Sm90Config, epilogue: PrintedEpilogue | undefined): string {
  const { tile } = config;
  if (tile.splitsK !== undefined || (!tile.swapsAB && mmaNOf(tile) > maxStagedN))
    return storeFromRegisters(tile.splitsK ?? 1);
  if (!tile.swapsAB) return storeByWarp(config, epilogue);
  return epilogue || config.resultDtype ? storeSwapped(config, epilogue) : storeDirectly(config);
}

/**
 * With swapAB, eight lanes hold eight floats of a row of C, which fill a 32-byte sector: no staging is needed.
 * One address moves from row to row: with an address for each row, the tile of 192 × 128 spills 744 bytes of registers.
 */
function storeDirectly({ hasBias, biasDtype = "f32" }: Sm90Config): string {
  const bias = hasBias ? widened(biasDtype, "bias[matrix * biasBatch + column]") : "0.0f";
  return `
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
  for (unsigned half = 0; half < 2; half++) {
    const int column = firstN + warp * 16 + half * 8 + lane / 4, firstRow = firstM + lane % 4 * 2, lastRow = m - 1 - firstRow;
    if (column >= n) break;
    const float columnBias = ${bias};
    float* result = c + matrix * cBatch + (long long)firstRow * cStride + column;
#pragma unroll
    for (unsigned e = 0; e < mmaN / 4; e += 2, result += 8ll * cStride) {
      if (4 * (int)e <= lastRow) result[0] = acc[0][2 * e + half * 2] + columnBias;
      if (4 * (int)e < lastRow) result[cStride] = acc[0][2 * e + half * 2 + 1] + columnBias;
    }
  }`;
}

/** Of a thread's registers, for rows in flight: those of the accumulators, which are staged. */
const maxBytesInFlight = 64 * 4;

/** Each warp stages 16 of its rows at a time. More rows in flight hide latency: 8 instead of 4 save 5 % of a GEMM with GELU's gradient. */
function storeByWarp(config: Sm90Config, epilogue: PrintedEpilogue | undefined): string {
  return `${config.loadsOperandsEarly ? "" : placeInWarp(config, epilogue)}
  float* const staged = reinterpret_cast<float*>(stageTiles) + warp * (stagedRows * stride);
  ${loadBias(config)}
#pragma unroll
  for (unsigned i = 0; i < mmaM; i++) {
    __syncwarp();
#pragma unroll
    for (unsigned e = 0; e < mmaN / 2; e += 2) {
      float* const pair = staged + (lane / 4 + e / 2 % 2 * 8) * stride + e / 4 * 8 + lane % 4 * 2;
      *reinterpret_cast<float2*>(pair) = make_float2(acc[i][e], acc[i][e + 1]);
    }
    __syncwarp();
    const int firstRow = firstM + warpgroupM + 64 * i + warp % 4 * stagedRows + threadRow;
    if (column >= n) continue;${storeRows(config, epilogue)}
  }`;
}

/** Which elements of a staged tile a thread stores. */
function placeInWarp(config: Sm90Config, epilogue: PrintedEpilogue | undefined): string {
  const allowsEight =
    epilogue && `8 * rowStep <= stagedRows && 8 * (${epilogue.rowBytes}) <= ${maxBytesInFlight}`;
  return `
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  constexpr unsigned vecWidth = 4, stride = mmaN + 8, vecsPerRow = mmaN / vecWidth, stagedRows = 16, rowStep = ${rowStepOf(config)};
  constexpr unsigned rowsInFlight = ${allowsEight ? `mmaM == 1 && ${allowsEight} ? 8 : 4` : "4"};
  const unsigned threadRow = lane / vecsPerRow, threadColumn = lane % vecsPerRow * vecWidth;
  const int column = ${hasIdleLanes(config) ? "threadRow >= rowStep ? n : " : ""}firstN + warpgroupN + threadColumn;`;
}

/** Rows that a warp stores at a time: a power of two, so that they divide the rows that it stages. */
function rowStepOf({ tile }: Sm90Config): number {
  return 2 ** Math.floor(Math.log2(Math.min(4, warpSize / vecsPerRow(tile))));
}

/** True if some lanes of a warp have no vector to store. */
const hasIdleLanes = (config: Sm90Config): boolean => rowStepOf(config) * vecsPerRow(config.tile) < warpSize;

/** Vectors of four columns in a row of a warpgroup's accumulators. */
const vecsPerRow = (tile: Sm90Tile): number => mmaNOf(tile) / 4;

/** C++ before the mainloop: loads the epilogue's operands of a warp's first rows, if none of these is outside of C. */
export function earlyLoadsFor(config: Sm90Config, epilogue: PrintedEpilogue | undefined): string {
  if (!config.loadsOperandsEarly || !epilogue) return "";
  return `${placeInWarp(config, epilogue)}
  constexpr unsigned rowCount = rowsInFlight;
  const int earlyRow = firstM + warpgroupM + warp % 4 * stagedRows + threadRow;
  const bool hasEarly = column < n && earlyRow + (int)((rowsInFlight - 1) * rowStep) < m;
  ${epilogue.operandDeclarations}
  if (hasEarly) {
    const long long beginOffset = (long long)earlyRow * n + column;${ofEachRow(epilogue.loads, epilogue)}
  }`;
}

/** All consumer threads stage the swapAB tile together. */
function storeSwapped(config: Sm90Config, epilogue: PrintedEpilogue | undefined): string {
  // A warpgroup covers 64 columns with four per thread, which makes eight rows at a time.
  const rowsInFlight = [4, 3, 2].find((count) => (config.tile.tileM / 8) % count === 0) ?? 1;
  return `
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  constexpr unsigned vecWidth = 4, stride = ${swappedStride(config.tile)}, vecsPerRow = tileN / vecWidth, stagedRows = tileM;
  constexpr unsigned rowStep = consumers / vecsPerRow, rowsInFlight = ${rowsInFlight};
  float* const staged = reinterpret_cast<float*>(stageTiles);
  const unsigned threadRow = threadIdx.x / vecsPerRow, threadColumn = threadIdx.x % vecsPerRow * vecWidth;
  const int column = firstN + threadColumn, firstRow = firstM + threadRow;
  ${loadBias(config)}
#pragma unroll
  for (unsigned e = 0; e < mmaN / 2; e++)
    staged[(e / 4 * 8 + lane % 4 * 2 + e % 2) * stride + warp * 16 + lane / 4 + e / 2 % 2 * 8] = acc[0][e];
  namedBarrierSync(1, consumers);
  if (column >= n) return;${storeRows(config, epilogue)}`;
}

const vecLanes = ["x", "y", "z", "w"] as const;

/** C++: a loaded element as a float. */
function widened(dtype: "f32" | "bf16" | "f16", loaded: string): string {
  const { widen } = elementTypes[dtype];
  return widen ? `${widen}(${loaded})` : loaded;
}

/** True if the last vector of a row of C has less than four columns. */
const hasTail = ({ constantN = 0 }: Sm90Config): boolean => constantN % 4 !== 0;

function loadBias(config: Sm90Config): string {
  const { hasBias, biasDtype = "f32" } = config;
  if (!hasBias) return "";
  const source = "bias + matrix * biasBatch + column";
  if (hasTail(config)) {
    const elements = vecLanes.map(
      (_, e) => `column + ${e} < n ? ${widened(biasDtype, `(${source})[${e}]`)} : 0.0f`,
    );
    return `const float4 biasVec = make_float4(${elements.join(", ")});`;
  }
  const vec = biasDtype === "f32" ? "float4" : "ushort4";
  const elements = vecLanes.map((lane) => widened(biasDtype, `loaded.${lane}`));
  return `float4 biasVec = make_float4(0, 0, 0, 0);
  if (column < n) {
    const ${vec} loaded = *reinterpret_cast<const ${vec}*>(${source});
    biasVec = make_float4(${elements.join(", ")});
  }`;
}

/** C++: the store of a vector of C at `place`, or of the columns of it that C has. */
function storeVec(config: Sm90Config, vec: string, place: string): string {
  const store = `*reinterpret_cast<${vec}*>(${place}) = resultC[next];`;
  if (!hasTail(config)) return store;
  const elements = vecLanes.map(
    (lane, e) => `if (column + ${e} < n) (${place})[${e}] = resultC[next].${lane};`,
  );
  return `if (column + vecWidth <= n) ${store}
        else {
          ${elements.slice(0, -1).join("\n          ")}
        }`;
}

/**
 * A thread stores the same columns of each of its staged rows: `rowsInFlight` of them at a time, and those that C's edge leaves one by one.
 * So the code for many rows has no bounds, and constant offsets from one address.
 */
function storeRows(config: Sm90Config, epilogue: PrintedEpilogue | undefined): string {
  const stores = storesResult(epilogue) && !epilogue;
  const early = config.loadsOperandsEarly
    ? `
    if (hasEarly) {${storeSomeRows(config, epilogue, "early")}
      begin = rowsInFlight * rowStep;
    }`
    : "";
  return `
    const int rows = m - firstRow;
    ${epilogue ? "const long long firstOffset = (long long)firstRow * n + column;" : ""}
    ${epilogue?.colsumDeclarations ?? ""}
    ${stores ? `${elementTypes[config.resultDtype ?? "f32"].type}* const result = c + matrix * cBatch + (long long)firstRow * cStride + column;` : ""}
    int begin = 0;${early}
#pragma unroll 1
    for (; begin < (int)stagedRows && begin + (int)((rowsInFlight - 1) * rowStep) < rows; begin += rowsInFlight * rowStep) {
      constexpr unsigned rowCount = rowsInFlight;${storeSomeRows(config, epilogue)}
    }
#pragma unroll 1
    for (; begin < (int)stagedRows && begin < rows; begin += rowStep) {
      constexpr unsigned rowCount = 1;${storeSomeRows(config, epilogue)}
    }${epilogue?.colsumStores ? storeColsums(epilogue.colsumStores) : ""}`;
}

/**
 * Loads the epilogue's operands of `rowCount` rows from the row `begin` on, computes the results of all of them, and then stores them. The
 * compiler could not reorder this by itself, because operands and results might alias.
 */
function storeSomeRows(
  config: Sm90Config,
  epilogue: PrintedEpilogue | undefined,
  operands: "loaded here" | "early" = "loaded here",
): string {
  const { hasBias, resultDtype = "f32" } = config;
  const { narrow } = elementTypes[resultDtype];
  const [vec, make] = resultDtype === "f32" ? ["float4", "make_float4"] : ["ushort4", "make_ushort4"];
  const scaled = config.hasAlpha ? " * alpha" : "";
  const values = vecLanes.map((lane) => `accVec.${lane}${scaled}${hasBias ? ` + biasVec.${lane}` : ""}`);
  const elements = vecLanes.map((_, e) => (narrow ? `${narrow}(values[${e}])` : `values[${e}]`));
  const storesC = storesResult(epilogue);
  const place = epilogue ? "c + offset" : "result + (long long)(begin + (int)(next * rowStep)) * cStride";
  const loads =
    epilogue && operands === "loaded here"
      ? `${epilogue.operandDeclarations}${epilogue.loads && ofEachRow(epilogue.loads, epilogue)}`
      : "";
  return `
      ${epilogue ? "const long long beginOffset = firstOffset + (long long)begin * n;" : ""}
      ${epilogue?.resultDeclarations ?? ""}${storesC ? `${vec} resultC[rowCount];` : ""}
      ${loads}
#pragma unroll
      for (unsigned next = 0; next < rowCount; next++) {
        const float4 accVec = *reinterpret_cast<const float4*>(staged + (threadRow + begin + next * rowStep) * stride + threadColumn);
        const float values[vecWidth] = {${values.join(", ")}};
        ${storesC ? `resultC[next] = ${make}(${elements.join(", ")});` : ""}
${epilogue?.lines ?? ""}
      }${ofEachRow(
        `        ${storesC ? storeVec(config, vec, place) : ""}
        ${epilogue?.stores ?? ""}`,
        epilogue,
      )}`;
}

/** C++: a loop over rows from `begin` on. `lines` use `next` and, in an epilogue, `offset`. */
const ofEachRow = (lines: string, epilogue: PrintedEpilogue | undefined): string => `
#pragma unroll
      for (unsigned next = 0; next < rowCount; next++) {
        ${epilogue ? "const long long offset = beginOffset + (int)(next * rowStep) * (long long)n;" : ""}
${lines}
      }`;

/** Rows of each partial column sum: those that a warp stages at a time. */
export const colsumRows = 16;

/** When a warp stores one row at a time, a lane has the same columns of all the warp's rows. */
const storeColsums = (lines: string): string => `
    if (rows > 0) {
      const long long colsumOffset = (long long)(firstRow / ${colsumRows}) * n + column;
${lines}
    }`;
