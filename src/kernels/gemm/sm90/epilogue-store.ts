/** How sums become rows of C, finished or as they are; mostly through shared memory, so that a thread has neighbours of a row to store. */

import { elementTypes } from "../../codegen/cuda/element-types.js";
import type { Epilogue, Sm90Config, WarpgroupTile } from "./configs.js";
import type { PrintedEpilogue } from "./epilogue.js";

export const storesResult = (finish: Pick<Epilogue, "storesC"> | undefined): boolean =>
  !finish || finish.storesC;

/** From one row of a flipped tile to the next: lanes that store to four rows at a time store to different banks. */
export const swappedStride = ({ columns }: Pick<WarpgroupTile, "columns">): number => columns + 4;

export function epilogueStoreFor(form: Sm90Config, finish: PrintedEpilogue | undefined): string {
  if (!form.tile.swapsAB) return storeByWarp(form, finish);
  return finish || form.resultDtype ? storeSwapped(form, finish) : storeColumns(form);
}

/** Eight lanes have eight floats of a row, which is all of the 32 bytes that memory takes at a time: they need not be turned. */
function storeColumns({ hasBias }: Sm90Config): string {
  const bias = hasBias ? "bias[product * biasBatch + column]" : "0.0f";
  return `
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
  for (unsigned half = 0; half < 2; half++) {
    const int column = firstColumn + warp * 16 + half * 8 + lane / 4, firstLine = firstRow + lane % 4 * 2, last = m - 1 - firstLine;
    if (column >= n) break;
    const float own = ${bias};
    float* const result = c + product * cBatch + (long long)firstLine * cStride + column;
#pragma unroll
    for (unsigned e = 0; e < width / 4; e++) {
      const int line = e / 2 * 8 + e % 2;
      if (line <= last) result[(long long)line * cStride] = sums[0][e / 2 * 4 + half * 2 + e % 2] + own;
    }
  }`;
}

/** Each warp turns its own 16 rows at a time. */
function storeByWarp(form: Sm90Config, finish: PrintedEpilogue | undefined): string {
  return `
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  constexpr unsigned pack = 4, stride = width + 8, perRow = width / pack, lines = 16, apart = 32 / perRow, rowsAtOnce = 4;
  float* const staged = reinterpret_cast<float*>(tiles) + warp * (lines * stride);
  const unsigned ownLine = lane / perRow, along = lane % perRow * pack;
  const int column = firstColumn + side + along;
  ${biasesOf(form)}
#pragma unroll
  for (unsigned i = 0; i < down; i++) {
    __syncwarp();
#pragma unroll
    for (unsigned e = 0; e < width / 2; e += 2) {
      float* const to = staged + (lane / 4 + e / 2 % 2 * 8) * stride + e / 4 * 8 + lane % 4 * 2;
      *reinterpret_cast<float2*>(to) = make_float2(sums[i][e], sums[i][e + 1]);
    }
    __syncwarp();
    const int firstLine = firstRow + top + 64 * i + warp % 4 * lines + ownLine;
    if (column >= n) continue;${storeLines(form, finish)}
  }`;
}

/** All of a block's threads turn its tile at once. */
function storeSwapped(form: Sm90Config, finish: PrintedEpilogue | undefined): string {
  // There are eight rows at a time, as a warpgroup has 64 columns and a thread four of them.
  const rowsAtOnce = [4, 3, 2].find((count) => (form.tile.rows / 8) % count === 0) ?? 1;
  return `
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  constexpr unsigned pack = 4, stride = ${swappedStride(form.tile)}, perRow = tileColumns / pack, lines = tileRows;
  constexpr unsigned apart = consumers / perRow, rowsAtOnce = ${rowsAtOnce};
  float* const staged = reinterpret_cast<float*>(tiles);
  const unsigned ownLine = threadIdx.x / perRow, along = threadIdx.x % perRow * pack;
  const int column = firstColumn + along, firstLine = firstRow + ownLine;
  ${biasesOf(form)}
#pragma unroll
  for (unsigned e = 0; e < width / 2; e++)
    staged[(e / 4 * 8 + lane % 4 * 2 + e % 2) * stride + warp * 16 + lane / 4 + e / 2 % 2 * 8] = sums[0][e];
  namedBarrierSync(1, consumers);
  if (column >= n) return;${storeLines(form, finish)}`;
}

const biasesOf = ({ hasBias }: Sm90Config): string => {
  const biases = "*reinterpret_cast<const float4*>(bias + product * biasBatch + column)";
  return `const float4 biases = ${hasBias ? `column < n ? ${biases} : ` : ""}make_float4(0, 0, 0, 0);`;
};

/**
 * A thread stores the same columns of each of its rows, of which `staged` has so many `lines`. What a finish reads of some rows is on its way
 * before the first of them is stored; the compiler doesn't know that the two are apart.
 */
function storeLines({ resultDtype = "f32" }: Sm90Config, finish: PrintedEpilogue | undefined): string {
  const { type, narrow } = elementTypes[resultDtype];
  const four = [0, 1, 2, 3].map((e) => (narrow ? `${narrow}(values[${e}])` : `values[${e}]`));
  const [vector, make] = resultDtype === "f32" ? ["float4", "make_float4"] : ["ushort4", "make_ushort4"];
  const plain = `
        *reinterpret_cast<${vector}*>(result + (long long)line * cStride) =
            ${make}(${four.join(", ")});`;
  const fetching = `
      ${finish?.held}
#pragma unroll
      for (unsigned next = 0; next < rowsAtOnce; next++) {
        const int line = (int)(begin + next * apart);
        const long long place = firstPlace + (long long)(line <= last ? line : last) * n;
        ${finish?.fetches}
      }`;
  return `
    // Products of 64 bits are made once, and not for every row.
    const int last = m - 1 - firstLine;
    ${finish ? "const long long firstPlace = (long long)firstLine * n + column;" : ""}
    ${finish?.sums ?? ""}
    ${storesResult(finish) ? `${type}* const result = c + product * cBatch + (long long)firstLine * cStride + column;` : ""}
#pragma unroll 1
    for (unsigned begin = 0; begin < lines; begin += rowsAtOnce * apart) {${finish?.fetches ? fetching : ""}
#pragma unroll
      for (unsigned next = 0; next < rowsAtOnce; next++) {
        const int line = (int)(begin + next * apart);
        if (line > last) break;
        const float4 four = *reinterpret_cast<const float4*>(staged + (ownLine + line) * stride + along);
        const float values[pack] = {four.x + biases.x, four.y + biases.y, four.z + biases.z, four.w + biases.w};
        ${finish ? "const long long place = firstPlace + (long long)line * n;" : ""}
${finish ? `${finish.storesC ? plain : ""}\n${finish.lines}` : plain}
      }
    }${finish?.storesAccumulators ? storeAccumulators(finish.storesAccumulators) : ""}`;
}

/** How many rows each sum of a column is over: a warp's. */
export const colsumRows = 16;

/** A lane has all of its warp's rows of some columns, where the warp stores a row at a time. */
const storeAccumulators = (lines: string): string => `
    if (last >= 0) {
      const long long sumPlace = (long long)(firstLine / ${colsumRows}) * n + column;
${lines}
    }`;
