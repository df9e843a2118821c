/**
 * scatterAdd on CUDA, with the CPU's bits: no two threads add to the same element, and additions follow the order of the entries. With an
 * index per element, a thread owns a column. With an index per row, a block owns some rows of the target.
 */

import type { DeviceInfo, KernelSource } from "../../driver/index.js";
import { HoldfastError } from "../../errors/index.js";
import { dtypes } from "../../ir/index.js";
import type { Command } from "../../runtime/index.js";
import { cudaKernel, cudaTypes } from "../codegen/cuda/cuda-function.js";
import { maxVectorBytes } from "../cost-model.js";
import { argumentsInOrder } from "../launch-arguments.js";
import { cachedSource } from "../source-cache.js";
import { blocksForColumns, columnOfThread, threads, zero } from "./cuda-columns.js";
import { lowerPartition, type PartitionBuffers } from "./cuda-partition.js";
import { lowerRowLists, type RowLists } from "./cuda-row-lists.js";
import type { RowScatterVariant } from "./cuda-scatter-block.js";
import { listParameters, listScatterKernel, vectorOf } from "./cuda-scatter-lists.js";
import { planScatter, scatterBuffers } from "./cuda-scatter-plan.js";
import { allEntriesParameters, bucketParameters, rowScatterKernel } from "./cuda-scatter-rows.js";
import type { ScanDtype } from "./element.js";
import type { ScatterAdd, ScatterShape } from "./problem.js";

/** Loads in flight per thread. */
const unroll = 8;

const eachParameters = {
  index: "in",
  source: "in",
  target: "inout",
  outer: "u32",
  length: "u32",
  inner: "u32",
  count: "u32",
} as const;

type Device = Pick<DeviceInfo, "parallelism">;

export function lowerScatterAddOnCuda(device: Device, scatter: ScatterAdd, op: string): readonly Command[] {
  return scatter.isIndexShared ? lowerRows(device, scatter, op) : lowerElements(scatter, op);
}

/** The sizes of the scratch buffers that the lowering needs. */
export function cudaScatterScratchBytes(device: Device, scatter: ScatterShape): readonly number[] {
  return scatter.isIndexShared ? scatterBuffers(planScatter(device, scatter), scatter) : [];
}

function lowerElements(scatter: ScatterAdd, op: string): readonly Command[] {
  const { dtype, outer, inner, overwrites, target } = scatter;
  return [
    ...(overwrites ? [{ kind: "fill", target, byte: 0 } as const] : []),
    {
      ...{ kind: "launch", op },
      source: cudaScatterKernel(dtype),
      blocks: blocksForColumns(outer, inner),
      arguments: argumentsInOrder(eachParameters, scatter),
    },
  ];
}

function lowerRows(device: Device, scatter: ScatterAdd, op: string): readonly Command[] {
  const plan = planScatter(device, scatter);
  const { isSparse, rowsPerBlock, columnsPerBlock, blocks, partition, hasLists } = plan;
  const { dtype, count, inner } = scatter;
  const access = accessTo(scatter);
  const outerSource = scatter.outer > 1 ? count * inner : 0;
  const strides = scatter.strides ?? { outerIndex: 0, outerSource, sourceRow: inner };
  if (hasLists) {
    if (strides.outerIndex !== 0) throw needsOneIndex(op, scatter);
    const lists = listsOf(scatter);
    const isVectorised =
      scatter.source.span.address % maxVectorBytes === 0 &&
      [inner, strides.outerSource, strides.sourceRow].every((size) => size % vectorOf(dtype) === 0);
    return [
      lowerRowLists(scatter, lists, op),
      {
        ...{ kind: "launch", op, blocks, source: listScatterKernel({ dtype, access, isVectorised }) },
        arguments: argumentsInOrder(listParameters(access), { ...scatter, ...strides, ...lists }),
      },
    ];
  }
  if (!partition) {
    const source = rowScatterKernel({ dtype, isSparse, entries: "all", access });
    const values = argumentsInOrder(allEntriesParameters(access), {
      ...scatter,
      ...strides,
      rowsPerBlock,
      columnsPerBlock,
    });
    return [{ kind: "launch", op, source, blocks, arguments: values }];
  }
  if (strides.outerIndex !== 0) throw needsOneIndex(op, scatter);
  const buffers = buffersOf(scatter);
  const { rowsPerBucket } = partition;
  return [
    ...lowerPartition(partition, scatter, buffers, op),
    {
      ...{ kind: "launch", op, blocks },
      source: rowScatterKernel({ dtype, isSparse, entries: "bucket", access }),
      arguments: argumentsInOrder(bucketParameters(access), {
        ...{ ...scatter, ...strides, ...buffers, rowsPerBlock, columnsPerBlock, rowsPerBucket },
      }),
    },
  ];
}

function needsOneIndex(op: string, { outer, count }: ScatterAdd): HoldfastError {
  return new HoldfastError(
    "UNSUPPORTED",
    `${op}: the entries of ${outer} indices, ${count} each, need to be partitioned, but only those of one index can be. Scatter each slice in a separate call.`,
    { numbers: { outer, count } },
  );
}

function accessTo({
  overwrites,
  target,
  dtype,
  outer,
  length,
  inner,
}: ScatterAdd): RowScatterVariant["access"] {
  if (!overwrites) return "inout";
  return target.span.size === outer * length * inner * dtypes[dtype].bytes ? "out" : "partial-out";
}

function buffersOf({ scratch = [] }: ScatterAdd): PartitionBuffers {
  const [counts, totals, starts, rows, positions] = scratch;
  if (counts && totals && starts && rows && positions) return { counts, totals, starts, rows, positions };
  throw lacksScratch(scratch.length, 5);
}

function listsOf({ scratch = [] }: ScatterAdd): RowLists {
  const [starts, positions] = scratch;
  if (starts && positions) return { starts, positions };
  throw lacksScratch(scratch.length, 2);
}

function lacksScratch(buffers: number, needed: number): HoldfastError {
  return new HoldfastError(
    "BAD_ARGUMENT",
    `scatterAdd has ${buffers} scratch buffers, and needs ${needed}. Call scatterScratchBytes for their sizes.`,
    { numbers: { buffers } },
  );
}

/** With an index per element. */
export function cudaScatterKernel(dtype: ScanDtype): KernelSource {
  return cachedSource(`cuda scatterAdd ${dtype}`, () =>
    cudaKernel({
      name: `scatterAdd.each.${dtype}`,
      parameters: eachParameters,
      elements: cudaTypes[dtype],
      pointers: { index: "int" },
      threads,
      body: printEach(dtype),
    }),
  );
}

function printEach(dtype: ScanDtype): string {
  const type = cudaTypes[dtype];
  return `
${columnOfThread}
  const int* entry = index + outerIndex * count * inner + column;
  const ${type}* from = source + outerIndex * count * inner + column;
  ${type}* to = target + outerIndex * length * inner + column;
  const long long step = inner;
  for (unsigned done = 0; done < count; done += ${unroll}) {
    unsigned rows[${unroll}];
    ${type} values[${unroll}];
    for (unsigned i = 0; i < ${unroll}; i++) {
      const bool exists = i < count - done;
      rows[i] = exists ? (unsigned)entry[i * step] : length;
      values[i] = exists ? from[i * step] : ${zero[dtype]};
    }
    for (unsigned i = 0; i < ${unroll}; i++) {
      if (rows[i] < length) to[rows[i] * step] += values[i];
    }
    entry += ${unroll} * step;
    from += ${unroll} * step;
  }`;
}
