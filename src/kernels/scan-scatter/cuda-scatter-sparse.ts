/**
 * scatterAdd on CUDA with an index per row, for entries that are sparse: most rows have none or one. A block flags the rows that have
 * entries. Then a warp owns a row. Without entries it stores zeros; otherwise it searches the index for them and adds them in order.
 */

import { cudaTypes } from "../codegen/cuda/cuda-function.js";
import { threads } from "./cuda-columns.js";
import { maxSparseRows } from "./cuda-scatter-plan.js";
import type { Entries, RowScatterVariant } from "./cuda-scatter-rows.js";

const warps = threads / 32;
/** Entries that a lane reads at a time: to flag rows, and to search those of a row. */
const [flagged, searched] = [8, 4];
/** The entries of a row that a warp finds before it adds them: all of one search, after one that found nearly as many. */
const maxFound = 2 * 32 * searched;
/** Entries that a thread adds at a time. */
const unroll = 8;

/** C++: the rows and the columns of a block. */
export const rowsOfBlock = `  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const unsigned chunks = (inner + columnsPerBlock - 1) / columnsPerBlock;
  const unsigned rowBlocks = (length + rowsPerBlock - 1) / rowsPerBlock;
  const unsigned firstColumn = blockIdx.x % chunks * columnsPerBlock;
  const unsigned firstRow = blockIdx.x / chunks % rowBlocks * rowsPerBlock;
  const long long outerIndex = blockIdx.x / chunks / rowBlocks;
  const unsigned rowCount = length - firstRow < rowsPerBlock ? length - firstRow : rowsPerBlock;
  const unsigned columns = inner - firstColumn < columnsPerBlock ? inner - firstColumn : columnsPerBlock;`;

export function printSparse(
  { dtype, access }: Pick<RowScatterVariant, "dtype" | "access">,
  { range, row, position }: Entries,
): string {
  const type = cudaTypes[dtype];
  const isZeroed = access !== "inout";
  return `
  __shared__ unsigned isFlagged[${maxSparseRows}], found[${warps}][${maxFound}];
${rowsOfBlock}
  if (outerIndex >= outer) return;
  for (unsigned own = threadIdx.x; own < rowCount; own += ${threads}) isFlagged[own] = 0;
  __syncthreads();
  const unsigned none = 0xffffffffu;
  ${range}
  for (unsigned first = begin; first < end; first += ${threads * flagged}) {
    unsigned rowOf[${flagged}];
    for (unsigned i = 0; i < ${flagged}; i++) {
      const unsigned entry = first + i * ${threads} + threadIdx.x;
      rowOf[i] = entry < end ? ${row} - firstRow : none;
    }
    for (unsigned i = 0; i < ${flagged}; i++) {
      // Threads whose entries have the same row store the same value.
      if (rowOf[i] < rowCount) isFlagged[rowOf[i]] = 1;
    }
  }
  __syncthreads();

  const long long step = inner;
  const ${type}* from = source + outerIndex * count * step + firstColumn;
  for (unsigned own = warp; own < rowCount; own += ${warps}) {
    ${type}* to = target + (outerIndex * length + firstRow + own) * step + firstColumn;
    if (!isFlagged[own]) {
      ${isZeroed ? "for (unsigned column = lane; column < columns; column += 32) to[column] = 0;" : ""}
      continue;
    }
    bool isFirst = ${isZeroed};
    for (unsigned next = begin; next < end;) {
      unsigned foundCount = 0;
      for (; next < end && foundCount <= ${maxFound - 32 * searched}; next += ${32 * searched}) {
        unsigned rowOf[${searched}];
        for (unsigned i = 0; i < ${searched}; i++) {
          const unsigned entry = next + i * 32 + lane;
          rowOf[i] = entry < end ? ${row} - firstRow : none;
        }
        for (unsigned i = 0; i < ${searched}; i++) {
          const unsigned lanes = __ballot_sync(0xffffffffu, rowOf[i] == own);
          const unsigned entry = next + i * 32 + lane;
          if (rowOf[i] == own) found[warp][foundCount + __popc(lanes & ((1u << lane) - 1))] = ${position};
          foundCount += __popc(lanes);
        }
      }
      __syncwarp();
      for (unsigned column = lane; foundCount > 0 && column < columns; column += 32) {
        ${type} sum = isFirst ? 0 : to[column];
        for (unsigned done = 0; done < foundCount; done += ${unroll}) {
          ${type} values[${unroll}];
          for (unsigned i = 0; i < ${unroll}; i++) {
            values[i] = done + i < foundCount ? from[found[warp][done + i] * step + column] : 0;
          }
          for (unsigned i = 0; i < ${unroll}; i++) {
            if (done + i < foundCount) sum += values[i];
          }
        }
        to[column] = sum;
      }
      if (foundCount > 0) isFirst = false;
      __syncwarp();
    }
  }`;
}
