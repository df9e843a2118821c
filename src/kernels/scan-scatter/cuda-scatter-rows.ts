/**
 * scatterAdd on CUDA with an index per row, for a group of independent scatters. A block owns some rows of a member's target, and some of
 * their columns. It lists the entries of its rows and sorts them by rows. A group of threads then has all columns of a row in registers, and
 * adds the row's entries in the order of the index. The rows with the most entries follow one after the other: warps copy their entries to
 * shared memory by cp.async, and one thread per column adds them. So a row with most entries of an index has many loads in flight.
 */

import type { KernelSource, Parameter } from "../../driver/index.js";
import { dtypes } from "../../ir/index.js";
import { cudaKernel, cudaTypes } from "../codegen/cuda/cuda-function.js";
import { cpAsyncIntrinsics } from "../codegen/cuda/intrinsics/cp-async.js";
import { onlyOnDevice } from "../codegen/cuda/intrinsics/intrinsic.js";
import { maxVectorBytes } from "../cost-model.js";
import { cachedSource } from "../source-cache.js";
import { threads } from "./cuda-columns.js";
import { groupParameters, groupPointers, memberNumber, memberOfBlock } from "./cuda-members.js";
import {
  fillList,
  isFrequentDeclaration,
  sortBytes,
  sortDeclarations,
  sortList,
  sortLocals,
} from "./cuda-row-order.js";
import { buckets, maxColumns, residentBlocks } from "./cuda-scatter-plan.js";
import type { ScanDtype } from "./element.js";

/** Loads in flight per thread, in bytes. With 64, variants for many members spill on sm_80. */
const loadedBytes = 48;
/** Stages of copied entries: one is added while the others are copied. */
const stages = 3;
const stageBytes = 8 * 1024;

export interface RowScatterVariant {
  readonly dtype: ScanDtype;
  /** Which entries a block reads. */
  readonly entries: "all" | "bucket";
  /** Whether the sums start at zero or at the target's values. */
  readonly access: "inout" | "out" | "partial-out";
  /** True if all rows of all members, of whole vectors of 16 bytes, begin on 16 bytes. */
  readonly isVectorised: boolean;
  /** Members; see `groupSize`. */
  readonly size: number;
}

/** Elements of the largest load. */
export const vectorOf = (dtype: ScanDtype): number => maxVectorBytes / dtypes[dtype].bytes;

const sizes = {
  outerSource: "u32",
  sourceRow: "u32",
  length: "u32",
  inner: "u32",
  rowsPerBlock: "u32",
} as const;

export function allEntriesMember(access: RowScatterVariant["access"]) {
  return { index: "in", source: "in", target: access, count: "u32", ...sizes } as const;
}

export function bucketMember(access: RowScatterVariant["access"]) {
  return { source: "in", target: access, rowsPerBucket: "u32", ...sizes } as const;
}

/** The parameters of all members together. */
export const bucketParameters = { rows: "in", positions: "in", starts: "in" } as const;

export function rowScatterKernel(variant: RowScatterVariant): KernelSource {
  const { dtype, entries, access, isVectorised, size } = variant;
  const start = access === "inout" ? "" : ".zeroed";
  const width = isVectorised ? ".vectors" : "";
  return cachedSource(`cuda scatterAdd of rows ${Object.values(variant).join(" ")}`, () => {
    const ofMember = entries === "all" ? allEntriesMember(access) : bucketMember(access);
    const shared = entries === "all" ? {} : bucketParameters;
    return cudaKernel({
      ...{
        name: `scatterAdd.${entries}.${size}${start}${width}.${dtype}`,
        elements: cudaTypes[dtype],
        threads,
      },
      parameters: { ...groupParameters(size, ofMember), ...shared } as Readonly<Record<string, Parameter>>,
      pointers: {
        ...groupPointers(size, { index: "unsigned" }),
        ...{ rows: "unsigned", positions: "unsigned", starts: "unsigned" },
      },
      blocksPerSm: residentBlocks,
      declarations: `${onlyOnDevice(cpAsyncIntrinsics)}${sortDeclarations}${isFrequentDeclaration}
struct __align__(${isVectorised ? maxVectorBytes : dtypes[dtype].bytes}) Vector {
  ${cudaTypes[dtype]} at[${isVectorised ? vectorOf(dtype) : 1}];
};`,
      body: print(variant),
    });
  });
}

/** C++: the range of the entries that a block reads, an entry's row, and its position in the source. */
const entriesOf = {
  all: {
    range: "const unsigned begin = 0, end = count;",
    row: "index[entry]",
    position: "entry",
  },
  bucket: {
    range: `const unsigned bucket = member * ${buckets + 1} + firstRow / rowsPerBucket;
  const unsigned begin = starts[bucket], end = starts[bucket + 1];`,
    row: "rows[entry]",
    position: "positions[entry]",
  },
} as const;

function selectedMember({ dtype, entries, size }: RowScatterVariant): string {
  const type = cudaTypes[dtype];
  const common = { source: `const ${type}*`, target: `${type}*` };
  const numbers = Object.fromEntries(Object.keys(sizes).map((name) => [name, "unsigned"]));
  return entries === "all"
    ? memberOfBlock(size, { index: "const unsigned*", ...common, count: "unsigned", ...numbers })
    : memberOfBlock(size, { ...common, rowsPerBucket: "unsigned", ...numbers }, [memberNumber]);
}

function print(variant: RowScatterVariant): string {
  const { dtype, entries, access, isVectorised } = variant;
  const type = cudaTypes[dtype];
  const { range, row, position } = entriesOf[entries];
  const vector = isVectorised ? vectorOf(dtype) : 1;
  const unroll = Math.min(8, loadedBytes / (vector * dtypes[dtype].bytes));
  const columnsPerBlock = maxColumns(dtype);
  const isZeroed = access !== "inout";
  const startsAtZero = isZeroed ? "isFirstList" : "false";
  return `${selectedMember(variant)}
  __shared__ __align__(16) unsigned char pool[${Math.max(sortBytes, stages * stageBytes)}];
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const unsigned chunks = (inner + ${columnsPerBlock - 1}) / ${columnsPerBlock};
  const unsigned columnsOfChunk = ((inner + chunks - 1) / chunks + ${vector - 1}) / ${vector} * ${vector};
  const unsigned rowBlocks = (length + rowsPerBlock - 1) / rowsPerBlock;
  const unsigned firstColumn = block % chunks * columnsOfChunk;
  const unsigned firstRow = block / chunks % rowBlocks * rowsPerBlock;
  const long long outerSlice = block / chunks / rowBlocks;
  const unsigned rowCount = length - firstRow < rowsPerBlock ? length - firstRow : rowsPerBlock;
  const unsigned columns = inner - firstColumn < columnsOfChunk ? inner - firstColumn : columnsOfChunk;
  const ${type}* const from = source + outerSlice * outerSource + firstColumn;
  ${type}* const to = target + (outerSlice * length + firstRow) * inner + firstColumn;
  ${range}

${sortLocals}
  ${isZeroed ? "bool isFirstList = true;" : ""}
  do {
${fillList(row, position)}
${sortList}
    // A group of threads has the columns of a row, a vector each.
    const unsigned lanesPerRow = columns / ${vector}, groups = ${threads} / lanesPerRow;
    const unsigned group = threadIdx.x / lanesPerRow, column = threadIdx.x % lanesPerRow * ${vector};
    for (unsigned row = group; group < groups && row < rowCount; row += groups) {
      const unsigned start = listed == 0 || row == 0 ? 0 : ends[row - 1];
      const unsigned present = listed == 0 ? 0 : ends[row] - start;
      Vector* const toRow = reinterpret_cast<Vector*>(to + row * (long long)inner + column);
      if (present == 0) {
        ${isZeroed ? "if (isFirstList) *toRow = Vector{};" : ""}
        continue;
      }
      if (isFrequent(present, listed)) continue;
      Vector sum = {};
      if (!${startsAtZero}) sum = *toRow;
      for (unsigned done = 0; done < present; done += ${unroll}) {
        Vector values[${unroll}];
        for (unsigned i = 0; i < ${unroll}; i++) {
          if (done + i < present) values[i] = *reinterpret_cast<const Vector*>(from + sorted[start + done + i] * (long long)sourceRow + column);
        }
        for (unsigned i = 0; i < ${unroll}; i++) {
          for (unsigned at = 0; at < ${vector}; at++) {
            if (done + i < present) sum.at[at] += values[i].at[at];
          }
        }
      }
      *toRow = sum;
    }

    for (unsigned frequent = 0; frequent < frequentCount; frequent++) {
      // The first warps have a thread for each column, which adds; the others copy.
      const unsigned adders = (columns + 31) / 32 * 32, copyGroups = (${threads} - adders) / lanesPerRow;
      const unsigned copyGroup = threadIdx.x < adders ? copyGroups : (threadIdx.x - adders) / lanesPerRow;
      const unsigned copiedColumn = (threadIdx.x - adders) % lanesPerRow * ${vector};
      const unsigned stageEntries = ${stageBytes / dtypes[dtype].bytes} / columns;
      ${type}* const ring = reinterpret_cast<${type}*>(pool);
      const unsigned row = frequentRows[frequent], start = row == 0 ? 0 : ends[row - 1], present = ends[row] - start;
      const auto copyStage = [&](unsigned first, unsigned stage) {
        for (unsigned entry = copyGroup; entry < stageEntries && first + entry < present && copyGroup < copyGroups;
             entry += copyGroups) {
          cpAsync<${vector} * sizeof(${type})>(ring + stage * ${stageBytes / dtypes[dtype].bytes} + entry * columns + copiedColumn,
            from + sorted[start + first + entry] * (long long)sourceRow + copiedColumn, ${vector} * sizeof(${type}));
        }
        cpAsyncCommit();
      };
      const bool isAdding = threadIdx.x < columns;
      ${type}* const toRow = to + row * (long long)inner + threadIdx.x;
      ${type} sum = !${startsAtZero} && isAdding ? *toRow : 0;
      for (unsigned stage = 0; stage < ${stages - 1}; stage++) copyStage(stage * stageEntries, stage);
      unsigned stage = 0;
      for (unsigned first = 0; first < present; first += stageEntries) {
        cpAsyncWait<${stages - 2}>();
        // The copies of this stage are visible, and the stage before it has been added.
        __syncthreads();
        copyStage(first + ${stages - 1} * stageEntries, (stage + ${stages - 1}) % ${stages});
        const ${type}* const values = ring + stage * ${stageBytes / dtypes[dtype].bytes} + threadIdx.x;
        const unsigned left = present - first < stageEntries ? present - first : stageEntries;
        unsigned added = 0;
        for (; isAdding && added + 16 <= left; added += 16) {
          ${type} loaded[16];
          for (unsigned i = 0; i < 16; i++) loaded[i] = values[(added + i) * columns];
          for (unsigned i = 0; i < 16; i++) sum += loaded[i];
        }
        for (; isAdding && added < left; added++) sum += values[added * columns];
        stage = (stage + 1) % ${stages};
      }
      if (isAdding) *toRow = sum;
      __syncthreads();
    }
    ${isZeroed ? "isFirstList = false;" : ""}
    __syncthreads();
  } while (next < end);`;
}
