/** The rows, the columns and the entries of a block of scatterAdd with an index per row, for both of its kernels. */

import type { ScanDtype } from "./element.js";

/** Which entries a block reads, and whether the sums start at zero or at the target's values. */
export interface RowScatterVariant {
  readonly dtype: ScanDtype;
  /** At most one entry per row on average; see cuda-scatter-sparse.ts. */
  readonly isSparse: boolean;
  readonly entries: "all" | "bucket";
  readonly access: "inout" | "out" | "partial-out";
}

/** C++: the range of the entries that a block reads, an entry's row, and its position in the source. */
export interface Entries {
  readonly range: string;
  readonly row: string;
  readonly position: string;
}

/** C++: `rowOf` and `owned`, the rows of a lane's entries from `first` on and which of a warp's are of the block; `ownCount` of them. */
export function selectEntries(first: string, row: string, entriesPerLane: number): string {
  return `unsigned rowOf[${entriesPerLane}], owned[${entriesPerLane}], ownCount = 0;
    const unsigned firstOfLane = ${first} + warp * ${32 * entriesPerLane} + lane;
    for (unsigned i = 0; i < ${entriesPerLane}; i++) {
      const unsigned entry = firstOfLane + 32 * i;
      rowOf[i] = entry < end ? ${row} - firstRow : none;
    }
    for (unsigned i = 0; i < ${entriesPerLane}; i++) {
      owned[i] = __ballot_sync(0xffffffffu, rowOf[i] < rowCount);
      ownCount += __popc(owned[i]);
    }`;
}

/** C++: the rows and the columns of a block. */
export const rowsOfBlock = `  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const unsigned chunks = (inner + columnsPerBlock - 1) / columnsPerBlock;
  const unsigned rowBlocks = (length + rowsPerBlock - 1) / rowsPerBlock;
  const unsigned firstColumn = blockIdx.x % chunks * columnsPerBlock;
  const unsigned firstRow = blockIdx.x / chunks % rowBlocks * rowsPerBlock;
  const long long outerSlice = blockIdx.x / chunks / rowBlocks;
  const unsigned rowCount = length - firstRow < rowsPerBlock ? length - firstRow : rowsPerBlock;
  const unsigned columns = inner - firstColumn < columnsPerBlock ? inner - firstColumn : columnsPerBlock;`;
