/**
 * scatterAdd on CUDA, with the CPU's bits: no two threads add to the same element, and additions follow the order of the entries. With an
 * index per element, a thread owns a column. With an index per row, a block owns some rows of the target.
 */

import type { DeviceInfo, KernelSource } from "../../driver/index.js";
import { HoldfastError } from "../../errors/index.js";
import { dtypes } from "../../ir/index.js";
import type { Command, Storage } from "../../runtime/index.js";
import { cudaKernel, cudaTypes } from "../codegen/cuda/cuda-function.js";
import { maxVectorBytes, warpSize } from "../cost-model.js";
import { argumentsInOrder } from "../launch-arguments.js";
import { cachedSource } from "../source-cache.js";
import { blocksForColumns, columnOfThread, threads, zero } from "./cuda-columns.js";
import { blocksOf, groupArguments, groupSize, type Member, maxMembers } from "./cuda-members.js";
import { lowerPartition, type PartitionBuffers } from "./cuda-partition.js";
import { lowerRowLists, type RowLists } from "./cuda-row-lists.js";
import { listParameters, listScatterKernel } from "./cuda-scatter-lists.js";
import { planScatters, scatterBuffers } from "./cuda-scatter-plan.js";
import {
  allEntriesMember,
  bucketMember,
  bucketParameters,
  type RowScatterVariant,
  rowScatterKernel,
  vectorOf,
} from "./cuda-scatter-rows.js";
import type { ScanDtype } from "./element.js";
import type { ScatterAdd, ScatterGroup, ScatterShape, ScatterStrides } from "./problem.js";

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
  if (!scatter.isIndexShared) return lowerElements(scatter, op);
  return lowerScatterGroup(device, { members: [scatter], scratch: scatter.scratch ?? [] }, op);
}

/** The sizes of the scratch buffers of a group that one launch can run, or of a lone scatter. */
export function cudaScatterScratchBytes(device: Device, shapes: readonly ScatterShape[]): readonly number[] {
  return shapes.every(({ isIndexShared }) => isIndexShared)
    ? scatterBuffers(planScatters(device, shapes), shapes)
    : [];
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

/** True if one launch can run these scatters. */
export function canGroupScatters(shapes: readonly ScatterShape[]): boolean {
  const [first] = shapes;
  return (
    shapes.length <= maxMembers &&
    shapes.every(
      ({ dtype, isIndexShared, overwrites = false, inner, count }) =>
        isIndexShared &&
        count > 0 &&
        dtype === first?.dtype &&
        overwrites === (first.overwrites ?? false) &&
        (inner % vectorOf(dtype) === 0) === (first.inner % vectorOf(dtype) === 0),
    )
  );
}

export function lowerScatterGroup(device: Device, group: ScatterGroup, op: string): readonly Command[] {
  const { members: scatters, scratch } = group;
  const plan = planScatters(device, scatters);
  const [first] = scatters;
  if (!first) return [];
  if (plan.entries === "list") return lowerLists(first, scratch, op);
  const access = accessTo(scatters);
  const { dtype } = first;
  const isVectorised = scatters.every(isAligned);
  const variant = { dtype, entries: plan.entries, access, isVectorised, size: groupSize(scatters.length) };
  const members = scatters.map((scatter, member): Member => {
    const { index, source, target, count, length, inner } = scatter;
    const { blocks = 0, rowsPerBlock = 1, rowsPerBucket = 1 } = plan.members[member] ?? {};
    const operands = { index, source, target, count, length, inner };
    return { blocks, values: { ...operands, ...stridesOf(scatter), rowsPerBlock, rowsPerBucket } };
  });
  const launch = {
    kind: "launch",
    op,
    source: rowScatterKernel(variant),
    blocks: blocksOf(members),
  } as const;
  if (plan.entries === "all")
    return [{ ...launch, arguments: groupArguments(allEntriesMember(access), members) }];
  const buffers = partitionBuffers(scratch);
  const indices = scatters.map((scatter, index) => ({
    ...scatter,
    rowsPerBucket: plan.members[index]?.rowsPerBucket ?? 1,
    segments: plan.members[index]?.segments ?? 0,
  }));
  return [
    ...lowerPartition(indices, plan.segment, buffers, op),
    {
      ...launch,
      arguments: [
        ...groupArguments(bucketMember(access), members),
        ...argumentsInOrder(bucketParameters, buffers),
      ],
    },
  ];
}

function lowerLists(scatter: ScatterAdd, scratch: readonly Storage[], op: string): readonly Command[] {
  const { dtype, outer, length, inner } = scatter;
  const lists = listsOf(scratch);
  const access = accessTo([scatter]);
  return [
    lowerRowLists(scatter, lists, op),
    {
      ...{ kind: "launch", op, blocks: outer * length * Math.ceil(inner / warpSize) },
      source: listScatterKernel({ dtype, access, isVectorised: isAligned(scatter) }),
      arguments: argumentsInOrder(listParameters(access), { ...scatter, ...stridesOf(scatter), ...lists }),
    },
  ];
}

function stridesOf({ outer, count, inner, strides }: ScatterAdd): ScatterStrides {
  return strides ?? { outerSource: outer > 1 ? count * inner : 0, sourceRow: inner };
}

/** True if all rows, of whole vectors of 16 bytes, begin on 16 bytes. */
function isAligned(scatter: ScatterAdd): boolean {
  const { dtype, inner, source, target } = scatter;
  const { outerSource, sourceRow } = stridesOf(scatter);
  return (
    [source, target].every(({ span }) => span.address % maxVectorBytes === 0) &&
    [inner, outerSource, sourceRow].every((size) => size % vectorOf(dtype) === 0)
  );
}

function accessTo(scatters: readonly ScatterAdd[]): RowScatterVariant["access"] {
  if (!scatters.every(({ overwrites }) => overwrites)) return "inout";
  const areWhole = scatters.every(
    ({ target, dtype, outer, length, inner }) =>
      target.span.size === outer * length * inner * dtypes[dtype].bytes,
  );
  return areWhole ? "out" : "partial-out";
}

function partitionBuffers(scratch: readonly Storage[]): PartitionBuffers {
  const [counts, totals, starts, rows, positions] = scratch;
  if (counts && totals && starts && rows && positions) return { counts, totals, starts, rows, positions };
  throw lacksScratch(scratch.length, 5);
}

function listsOf(scratch: readonly Storage[]): RowLists {
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
