/**
 * C++ that finds the entries of a block's rows, for scatterAdd with an index per row: a list of them in the order of the index, which is then
 * sorted by rows. Sorting counts the entries of each row, and keeps the order within a row.
 */

import { threads } from "./cuda-columns.js";
import { maxRows } from "./cuda-scatter-plan.js";

const warps = threads / 32;
/** Entries that a lane reads at a time. A warp reads consecutive ones. */
const entriesPerLane = 8;
const entriesPerRound = threads * entriesPerLane;
/** Entries of a list: rounds follow as long as their entries fit. */
export const maxListed = entriesPerRound;
/**
 * A frequent row has so many entries that one group of threads would wait for memory longer than the whole block does to begin with another
 * row. A list of n entries has fewer than √(n / 12) rows with more than √(12 n) entries.
 */
const frequentFactor = 12;
const maxFrequentRows = Math.ceil(Math.sqrt(maxListed / frequentFactor));

const listBytes = maxListed * 6;
/** Shared memory of the list and the counters. It is free after sorting. */
export const sortBytes = listBytes + warps * maxRows * 2;

export const sortDeclarations = `
// The lanes whose entries are in the same row.
static __device__ __forceinline__ unsigned lanesOfRow(unsigned row, bool hasRow, unsigned rowBits) {
  unsigned lanes = __ballot_sync(0xffffffffu, hasRow);
  for (unsigned bit = 0; bit < rowBits; bit++) {
    const bool isSet = (row >> bit & 1) != 0;
    const unsigned set = __ballot_sync(0xffffffffu, isSet);
    lanes &= isSet ? set : ~set;
  }
  return lanes;
}`;

/** C++: the locals of all lists of a block. `pool` has `sortBytes` bytes. */
export const sortLocals = `
  __shared__ unsigned sorted[${maxListed}], warpCounts[2][${warps}], warpSums[${warps}];
  __shared__ unsigned short ends[${maxRows}], frequentRows[${maxFrequentRows}];
  unsigned* const listedPositions = reinterpret_cast<unsigned*>(pool);
  unsigned short* const listedRows = reinterpret_cast<unsigned short*>(pool + ${maxListed * 4});
  unsigned short (*const counters)[${maxRows}] = reinterpret_cast<unsigned short (*)[${maxRows}]>(pool + ${listBytes});
  unsigned next = begin;`;

/** C++: reads entries from `next` on until the list is full; `listed` is their number. */
export const fillList = (row: string, position: string): string => `
    unsigned listed = 0;
    while (next < end) {
      unsigned rowOf[${entriesPerLane}], ownCount = 0, total = 0;
      const unsigned firstOfLane = next + warp * ${32 * entriesPerLane} + lane;
      for (unsigned i = 0; i < ${entriesPerLane}; i++) {
        const unsigned entry = firstOfLane + 32 * i;
        rowOf[i] = entry < end ? ${row} - firstRow : 0xffffffffu;
      }
      for (unsigned i = 0; i < ${entriesPerLane}; i++) {
        ownCount += __popc(__ballot_sync(0xffffffffu, rowOf[i] < rowCount));
      }
      // The counts of the next round are elsewhere, so that one barrier per round is enough.
      unsigned* const counts = warpCounts[next / ${entriesPerRound} % 2];
      if (lane == 0) counts[warp] = ownCount;
      __syncthreads();
      unsigned slot = listed;
      for (unsigned i = 0; i < ${warps}; i++) {
        if (i < warp) slot += counts[i];
        total += counts[i];
      }
      if (listed + total > ${maxListed}) break;
      for (unsigned i = 0; i < ${entriesPerLane}; i++) {
        // A second vote takes fewer registers than the first one's result.
        const unsigned entry = firstOfLane + 32 * i, owned = __ballot_sync(0xffffffffu, rowOf[i] < rowCount);
        if (rowOf[i] < rowCount) {
          const unsigned own = slot + __popc(owned & ((1u << lane) - 1));
          listedRows[own] = (unsigned short)rowOf[i];
          listedPositions[own] = ${position};
        }
        slot += __popc(owned);
      }
      listed += total;
      next += ${entriesPerRound};
    }`;

/** C++: a loop over the warp's part of the list. `lanes` have the same row as this lane; `isFirst` is true for the first of them. */
const forListed = (body: string): string => `
      for (unsigned first = firstOfWarp; first < endOfWarp; first += 32) {
        const bool hasRow = first + lane < endOfWarp;
        const unsigned row = hasRow ? listedRows[first + lane] : 0;
        const unsigned lanes = lanesOfRow(row, hasRow, rowBits);
        const unsigned before = lanes & ((1u << lane) - 1);
        const bool isFirst = hasRow && before == 0;${body}
        if (isFirst) counters[warp][row] += (unsigned short)__popc(lanes);
        __syncwarp();
      }`;

/** C++: sorts the list. A row's entries are `sorted[ends[row - 1]]` to `sorted[ends[row] - 1]`; `frequentCount` rows are frequent. */
export const sortList = `
    unsigned frequentCount = 0;
    if (listed > 0) {
      unsigned rowBits = 0;
      while (1u << rowBits < rowCount) rowBits++;
      for (unsigned row = threadIdx.x; row < rowCount; row += ${threads}) {
        for (unsigned i = 0; i < ${warps}; i++) counters[i][row] = 0;
      }
      __syncthreads();
      const unsigned perWarp = (listed + ${threads - 1}) / ${threads} * 32;
      const unsigned firstOfWarp = warp * perWarp;
      const unsigned endOfWarp = firstOfWarp + perWarp < listed ? firstOfWarp + perWarp : listed;${forListed("")}
      __syncthreads();

      // A thread has consecutive rows. The lower half of a sum counts entries, the upper half frequent rows.
      const unsigned perThread = (rowCount + ${threads - 1}) / ${threads}, firstOfThread = threadIdx.x * perThread;
      const unsigned endOfThread = firstOfThread + perThread < rowCount ? firstOfThread + perThread : rowCount;
      unsigned ofThread = 0;
#pragma unroll 1
      for (unsigned row = firstOfThread; row < endOfThread; row++) {
        unsigned ofRow = 0;
        for (unsigned i = 0; i < ${warps}; i++) ofRow += counters[i][row];
        ofThread += ofRow + (isFrequent(ofRow, listed) ? 1u << 16 : 0);
      }
      unsigned sum = ofThread;
      for (unsigned distance = 1; distance < 32; distance *= 2) {
        const unsigned lower = __shfl_sync(0xffffffffu, sum, (int)(lane - distance));
        if (lane >= distance) sum += lower;
      }
      if (lane == 31) warpSums[warp] = sum;
      __syncthreads();
      unsigned before = sum - ofThread, all = 0;
      for (unsigned i = 0; i < ${warps}; i++) {
        if (i < warp) before += warpSums[i];
        all += warpSums[i];
      }
      frequentCount = all >> 16;
      unsigned slot = before & 0xffffu, frequent = before >> 16;
#pragma unroll 1
      for (unsigned row = firstOfThread; row < endOfThread; row++) {
        const unsigned start = slot;
        for (unsigned i = 0; i < ${warps}; i++) {
          const unsigned ofWarp = counters[i][row];
          counters[i][row] = (unsigned short)slot;
          slot += ofWarp;
        }
        ends[row] = (unsigned short)slot;
        if (isFrequent(slot - start, listed)) frequentRows[frequent++] = (unsigned short)row;
      }
      __syncthreads();${forListed(`
        if (hasRow) sorted[counters[warp][row] + __popc(before)] = listedPositions[first + lane];
        __syncwarp();`)}
      __syncthreads();
    }`;

export const isFrequentDeclaration = `
static __device__ __forceinline__ bool isFrequent(unsigned entries, unsigned listed) {
  return entries * entries > ${frequentFactor} * listed;
}`;
