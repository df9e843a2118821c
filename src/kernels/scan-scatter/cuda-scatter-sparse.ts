/**
 * scatterAdd on CUDA with an index per row, for entries that are sparse: most rows have none or one. A block lists the entries of its rows
 * in shared memory, in the order of the index. Then a warp owns a row: it stores zeros, or adds the row's entries of the list.
 */

import { cudaTypes } from "../codegen/cuda/cuda-function.js";
import { threads } from "./cuda-columns.js";
import { type Entries, type RowScatterVariant, rowsOfBlock, selectEntries } from "./cuda-scatter-block.js";

const warps = threads / 32;
/** Entries that a lane reads at a time. A warp reads consecutive ones. */
const entriesPerLane = 8;
const entriesPerRound = threads * entriesPerLane;
/** The entries of a list: rounds follow as long as another one fits. */
const maxListed = 2 * entriesPerRound;
/** Entries that a thread adds at a time, in each of some columns: their loads are in flight together. */
const unroll = 2;
const columnsPerLane = 4;

export function printSparse(
  { dtype, access }: Pick<RowScatterVariant, "dtype" | "access">,
  { range, row, position }: Entries,
): string {
  const type = cudaTypes[dtype];
  const isZeroed = access !== "inout";
  return `
  __shared__ unsigned listedPositions[${maxListed}], warpCounts[2][${warps}], found[${warps}][${unroll + 32}];
  __shared__ unsigned short listedRows[${maxListed}];
${rowsOfBlock}
  if (outerSlice >= outer) return;
  const unsigned none = 0xffffffffu;
  const long long step = inner, fromStep = sourceRow;
  const ${type}* from = source + outerSlice * outerSource + firstColumn;
  ${type}* to = target + (outerSlice * length + firstRow) * step + firstColumn;
  ${range}
  ${isZeroed ? "bool isFirst = true;" : ""}
  unsigned next = begin, round = 0;
  do {
    unsigned listed = 0;
    for (; next < end && listed <= ${maxListed - entriesPerRound}; next += ${entriesPerRound}, round++) {
      ${selectEntries("next", row, entriesPerLane)}
      // The counts of the next round are elsewhere, so that one barrier per round is enough.
      if (lane == 0) warpCounts[round % 2][warp] = ownCount;
      __syncthreads();
      unsigned slot = listed;
      for (unsigned i = 0; i < ${warps}; i++) {
        const unsigned ofWarp = warpCounts[round % 2][i];
        if (i < warp) slot += ofWarp;
        listed += ofWarp;
      }
      for (unsigned i = 0; i < ${entriesPerLane}; i++) {
        const unsigned entry = firstOfLane + 32 * i;
        if (rowOf[i] < rowCount) {
          const unsigned own = slot + __popc(owned[i] & ((1u << lane) - 1));
          listedRows[own] = (unsigned short)rowOf[i];
          listedPositions[own] = ${position};
        }
        slot += __popc(owned[i]);
      }
    }
    __syncthreads();

    for (unsigned own = warp; own < rowCount; own += ${warps}) {
      ${type}* const toRow = to + own * step;
      bool isStarted = ${isZeroed ? "!isFirst" : "true"};
      unsigned foundCount = 0;
      for (unsigned first = 0; first < listed; first += 32) {
        const bool isFound = first + lane < listed && listedRows[first + lane] == own;
        const unsigned lanes = __ballot_sync(0xffffffffu, isFound);
        if (isFound) found[warp][foundCount + __popc(lanes & ((1u << lane) - 1))] = listedPositions[first + lane];
        foundCount += __popc(lanes);
        if (foundCount < ${unroll} && first + 32 < listed) continue;
        __syncwarp();
        for (unsigned column = lane; foundCount > 0 && column < columns; column += ${32 * columnsPerLane}) {
          ${type} sums[${columnsPerLane}];
          for (unsigned c = 0; c < ${columnsPerLane}; c++) {
            sums[c] = isStarted && column + 32 * c < columns ? toRow[column + 32 * c] : 0;
          }
          for (unsigned done = 0; done < foundCount; done += ${unroll}) {
            ${type} values[${unroll}][${columnsPerLane}];
            for (unsigned i = 0; i < ${unroll}; i++) {
              for (unsigned c = 0; c < ${columnsPerLane}; c++) {
                const bool exists = done + i < foundCount && column + 32 * c < columns;
                values[i][c] = exists ? from[found[warp][done + i] * fromStep + column + 32 * c] : 0;
              }
            }
            for (unsigned i = 0; i < ${unroll}; i++) {
              for (unsigned c = 0; c < ${columnsPerLane}; c++) {
                if (done + i < foundCount) sums[c] += values[i][c];
              }
            }
          }
          for (unsigned c = 0; c < ${columnsPerLane}; c++) {
            if (column + 32 * c < columns) toRow[column + 32 * c] = sums[c];
          }
        }
        if (foundCount > 0) isStarted = true;
        foundCount = 0;
        __syncwarp();
      }
      ${isZeroed ? "for (unsigned column = lane; !isStarted && column < columns; column += 32) toRow[column] = 0;" : ""}
    }
    ${isZeroed ? "isFirst = false;" : ""}
    __syncthreads();
  } while (next < end);`;
}
