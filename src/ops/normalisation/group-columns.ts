/**
 * Statistics and sums of channels-last images for a group norm. Each channel of each image is a column, and the columns of one image are a
 * run. The columns of a group are combined afterwards.
 */

import { type ColumnKernel, dtypes, iterateRows, type RowKernel, term } from "../../ir/index.js";
import { type DeviceArray, isChannelsLast } from "../device-array.js";
import type { Lowering } from "../op.js";
import { cacheByDtypes } from "../row-lowering.js";
import { sizeOf } from "../shape.js";
import { summedValues } from "./channel-gradients.js";
import { channelsLastOf } from "./channel-layout.js";

interface GroupStatistics {
  /** Contiguous [N, G], in the compute dtype of x. */
  readonly mean: DeviceArray;
  /** 1 / √(variance + eps) */
  readonly inverseStd: DeviceArray;
  readonly groups: number;
}

/** True if the channels of images are reduced as columns. */
export function areColumns({ backend }: Lowering, x: DeviceArray): boolean {
  return backend.capabilities.reducesColumnRuns && isChannelsLast(x);
}

/** [N, C, …] as columns. */
function columnsOf({ shape }: DeviceArray, groups: number) {
  const [batch = 1, channels = 1, ...positions] = shape;
  const rows = sizeOf(positions);
  return {
    ...{ batch, channels, rows, width: channels / groups },
    /** The strides of an operand with a value for each element, and of one with the first position of each image. */
    element: { row: channels, column: "unit", run: rows * channels },
    first: { row: 0, column: "unit", run: rows * channels },
    /** Of an operand [N, G]. */
    perGroup: { row: 0, column: "group", run: groups },
    runs: { length: channels, group: channels / groups },
  } as const;
}

/** Inputs: x, and x at the first position. With this shift, a large mean does not cancel the digits of a small spread. */
const columnKernel = cacheByDtypes((dtype = "f32"): ColumnKernel => {
  const { compute } = dtypes[dtype];
  const shifted = term.sub(term.load(0, compute), term.load(1, compute));
  return {
    name: "group statistics",
    inputs: [dtype, dtype],
    outputs: [compute, compute],
    scalars: [],
    op: "add",
    values: [shifted, term.mul(shifted, shifted)],
  };
});

/**
 * Combines the channels of a group. Inputs: the sums, the sums of squares, and x at the first position. Scalars: positions, 1 / positions,
 * 1 / channels of a group, 1 / elements of a group, and eps.
 */
const combineKernel = cacheByDtypes((dtype = "f32"): RowKernel => {
  const { compute } = dtypes[dtype];
  const scalar = (index: number) => term.scalar(index, compute);
  const shift = term.mul(term.load(0, compute), scalar(1));
  const channelMean = term.add(term.load(2, compute), shift);
  const within = term.max(term.sub(term.load(1, compute), term.mul(term.load(0, compute), shift)), 0);
  const mean = term.mul(term.reduced(0, compute), scalar(2));
  const between = term.sub(channelMean, mean);
  const variance = term.mul(term.reduced(1, compute), scalar(3));
  const output = { dtype: compute, per: "row" } as const;
  return {
    name: "combine statistics",
    inputs: [compute, compute, dtype],
    outputs: [output, output],
    scalars: [compute, compute, compute, compute, compute],
    stages: [
      { kind: "reduce", op: "add", value: channelMean },
      {
        ...{ kind: "reduce", op: "add" },
        value: term.add(within, term.mul(scalar(0), term.mul(between, between))),
      },
      { kind: "store", output: 0, value: mean },
      { kind: "store", output: 1, value: term.div(1, term.sqrt(term.add(variance, scalar(4)))) },
    ],
  };
});

/** Stores the mean and 1 / σ of each group. Images are read once. */
export function lowerColumnStatistics(
  lowering: Lowering,
  x: DeviceArray,
  { mean, inverseStd, groups, eps }: GroupStatistics & { readonly eps: number },
): void {
  const { batch, channels, rows, width, element, first, runs } = columnsOf(x, groups);
  const sums = [0, 1].map(() => lowering.scratchArray([batch, channels], dtypes[x.dtype].compute));
  lowering.column({
    kernel: columnKernel(x.dtype),
    ...{ rows, columns: batch * channels, runs, strides: [element, first] },
    operands: storagesOf(x, x, ...sums),
  });
  const perChannel = [channels, width, 1];
  const perGroup = [groups, 1, 0];
  lowering.row({
    kernel: combineKernel(x.dtype),
    iteration: iterateRows(
      [batch, groups, width],
      [perChannel, perChannel, [rows * channels, width, 1], perGroup, perGroup],
      1,
    ),
    operands: storagesOf(...sums, x, mean, inverseStd),
    scalars: [rows, 1 / rows, 1 / width, 1 / (rows * width), eps],
  });
}

const sumKernel = cacheByDtypes((...inputs): ColumnKernel => {
  const { compute } = dtypes[inputs[1] ?? "f32"];
  return {
    ...{ name: "channel gradient sums", inputs, outputs: [compute, compute], scalars: [], op: "add" },
    values: summedValues(compute, inputs),
  };
});

/** Stores sums over each channel of each image, [N, C]: of the upstream gradient, and of that times the normalised x. */
export function lowerColumnSums(
  lowering: Lowering,
  upstream: DeviceArray,
  x: DeviceArray,
  { mean, inverseStd, groups }: GroupStatistics,
  sums: readonly DeviceArray[],
): void {
  const { batch, channels, rows, element, perGroup, runs } = columnsOf(x, groups);
  const operands = [
    isChannelsLast(upstream) ? upstream : channelsLastOf(lowering, upstream),
    ...[x, mean, inverseStd],
  ];
  lowering.column({
    kernel: sumKernel(...operands.map(({ dtype }) => dtype)),
    ...{ rows, columns: batch * channels, runs, strides: [element, element, perGroup, perGroup] },
    operands: storagesOf(...operands, ...sums),
  });
}

function storagesOf(...arrays: readonly DeviceArray[]) {
  return arrays.flatMap(({ storage }) => storage ?? []);
}
