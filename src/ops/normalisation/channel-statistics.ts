/**
 * The mean and the variance of each channel of [N, C, …]. Rows are centred before they are squared. Columns are read once: their elements
 * minus the first one are summed, and so are the squares, so that a large mean does not cancel the digits of a small spread.
 */

import {
  type ColumnKernel,
  dtypes,
  type Expression,
  iterateElements,
  iterateRows,
  type RowKernel,
  term,
} from "../../ir/index.js";
import { contiguousStrides, type DeviceArray } from "../device-array.js";
import type { Lowering } from "../op.js";
import { cacheByDtypes } from "../row-lowering.js";
import { arrangeChannels, type ChannelColumns, type ChannelRows } from "./channel-layout.js";

/** Contiguous arrays [C] in the compute dtype. */
export interface ChannelStatistics {
  readonly mean: DeviceArray;
  /** 1 / √(variance + eps) */
  readonly inverseStd: DeviceArray;
  readonly variance: DeviceArray;
}

export function lowerStatistics(
  lowering: Lowering,
  x: DeviceArray,
  statistics: ChannelStatistics,
  eps: number,
): void {
  const { arrays, layouts } = arrangeChannels(lowering, [x]);
  const [array = x] = arrays;
  const [layout] = layouts;
  if (!layout || !array.storage) return;
  if (layout.kind === "columns") lowerColumns(lowering, array, layout, statistics, eps);
  else if (layout.count === 1) lowerWholeRows(lowering, array, layout, statistics, eps);
  else lowerSplitRows(lowering, array, layout, statistics, eps);
}

/** Stores for the statistics, from the mean and the sum of the squared deviations. The last scalar is eps. */
function stores(mean: Expression, variance: Expression, eps: Expression): RowKernel["stages"] {
  const inverseStd = term.div(1, term.sqrt(term.add(variance, eps)));
  return [mean, inverseStd, variance].map((value, output) => ({ kind: "store", output, value }));
}

const outputsOf = ({ mean, inverseStd, variance }: ChannelStatistics) =>
  [mean, inverseStd, variance].flatMap(({ storage }) => storage ?? []);

/** Scalars: 1 / length and eps. */
const wholeRowKernel = cacheByDtypes((dtype = "f32"): RowKernel => {
  const { compute } = dtypes[dtype];
  const x = term.load(0, compute);
  const inverseLength = term.scalar(0, compute);
  const mean = term.mul(term.reduced(0, compute), inverseLength);
  const centred = term.sub(x, mean);
  const output = { dtype: compute, per: "row" } as const;
  return {
    name: "channel statistics",
    inputs: [dtype],
    outputs: [output, output, output],
    scalars: [compute, compute],
    stages: [
      { kind: "reduce", op: "add", value: x },
      { kind: "reduce", op: "add", value: term.mul(centred, centred) },
      ...stores(mean, term.mul(term.reduced(1, compute), inverseLength), term.scalar(1, compute)),
    ],
  };
});

function lowerWholeRows(
  lowering: Lowering,
  x: DeviceArray,
  { length, strides: [channel] }: ChannelRows,
  statistics: ChannelStatistics,
  eps: number,
): void {
  if (!x.storage) return;
  const [, channels = 1] = x.shape;
  lowering.row({
    kernel: wholeRowKernel(x.dtype),
    iteration: iterateRows(
      [channels, length],
      [
        [channel, 1],
        [1, 0],
        [1, 0],
        [1, 0],
      ],
      1,
    ),
    operands: [x.storage, ...outputsOf(statistics)],
    scalars: [1 / length, eps],
  });
}

/** The mean of each row, and the sum of its squared deviations. Scalar: 1 / length. */
const partialKernel = cacheByDtypes((dtype = "f32"): RowKernel => {
  const { compute } = dtypes[dtype];
  const x = term.load(0, compute);
  const mean = term.mul(term.reduced(0, compute), term.scalar(0, compute));
  const centred = term.sub(x, mean);
  const output = { dtype: compute, per: "row" } as const;
  return {
    name: "partial statistics",
    inputs: [dtype],
    outputs: [output, output],
    scalars: [compute],
    stages: [
      { kind: "reduce", op: "add", value: x },
      { kind: "reduce", op: "add", value: term.mul(centred, centred) },
      { kind: "store", output: 0, value: mean },
      { kind: "store", output: 1, value: term.reduced(1, compute) },
    ],
  };
});

/** Combines the partial statistics of rows of one length. Scalars: 1 / rows, the length, 1 / elements and eps. */
const combineKernel = cacheByDtypes((compute = "f32"): RowKernel => {
  const type = dtypes[compute].compute;
  const scalar = (index: number): Expression => term.scalar(index, type);
  const [partialMean, squares] = [term.load(0, type), term.load(1, type)];
  const mean = term.mul(term.reduced(0, type), scalar(0));
  const between = term.sub(partialMean, mean);
  const output = { dtype: compute, per: "row" } as const;
  return {
    name: "combine statistics",
    inputs: [compute, compute],
    outputs: [output, output, output],
    scalars: [type, type, type, type],
    stages: [
      { kind: "reduce", op: "add", value: partialMean },
      {
        kind: "reduce",
        op: "add",
        value: term.add(squares, term.mul(scalar(1), term.mul(between, between))),
      },
      ...stores(mean, term.mul(term.reduced(1, type), scalar(2)), scalar(3)),
    ],
  };
});

function lowerSplitRows(
  lowering: Lowering,
  x: DeviceArray,
  { count, length, strides: [channel, row] }: ChannelRows,
  statistics: ChannelStatistics,
  eps: number,
): void {
  const [, channels = 1] = x.shape;
  const { compute } = dtypes[x.dtype];
  const partials = [0, 1].map(() => lowering.scratchArray([channels, count], compute));
  const [means, squares] = partials.map(({ storage }) => storage);
  if (!x.storage || !means || !squares) return;
  const perRow = [count, 1, 0];
  lowering.row({
    kernel: partialKernel(x.dtype),
    iteration: iterateRows([channels, count, length], [[channel, row, 1], perRow, perRow], 1),
    operands: [x.storage, means, squares],
    scalars: [1 / length],
  });
  const rows = [count, 1];
  const perChannel = [1, 0];
  lowering.row({
    kernel: combineKernel(compute),
    iteration: iterateRows([channels, count], [rows, rows, perChannel, perChannel, perChannel], 1),
    operands: [means, squares, ...outputsOf(statistics)],
    scalars: [1 / count, length, 1 / (count * length), eps],
  });
}

/** Inputs: x, and the first row of x. */
const columnKernel = cacheByDtypes((dtype = "f32"): ColumnKernel => {
  const { compute } = dtypes[dtype];
  const shifted = term.sub(term.load(0, compute), term.load(1, compute));
  return {
    name: "channel sums",
    inputs: [dtype, dtype],
    outputs: [compute, compute],
    scalars: [],
    op: "add",
    values: [shifted, term.mul(shifted, shifted)],
  };
});

/** Inputs: the sums, the sums of squares, and the first row of x. Scalars: 1 / rows and eps. */
const finishKernel = cacheByDtypes((dtype = "f32"): RowKernel => {
  const { compute } = dtypes[dtype];
  const inverseCount = term.scalar(0, compute);
  const shift = term.mul(term.load(0, compute), inverseCount);
  const square = term.mul(term.load(1, compute), inverseCount);
  const variance = term.max(term.sub(square, term.mul(shift, shift)), 0);
  const output = { dtype: compute, per: "element" } as const;
  return {
    name: "finish statistics",
    inputs: [compute, compute, dtype],
    outputs: [output, output, output],
    scalars: [compute, compute],
    stages: stores(term.add(term.load(2, compute), shift), variance, term.scalar(1, compute)),
  };
});

function lowerColumns(
  lowering: Lowering,
  x: DeviceArray,
  { rows, rowStride }: ChannelColumns,
  statistics: ChannelStatistics,
  eps: number,
): void {
  const [, channels = 1] = x.shape;
  const sums = [0, 1].map(() => lowering.scratchArray([channels], dtypes[x.dtype].compute));
  const [plain, squares] = sums.map(({ storage }) => storage);
  if (!x.storage || !plain || !squares) return;
  const firstRow = lowering.view(x.storage, 0, channels * dtypes[x.dtype].bytes);
  lowering.column({
    kernel: columnKernel(x.dtype),
    rows,
    columns: channels,
    strides: [
      { row: rowStride, column: "unit" },
      { row: 0, column: "unit" },
    ],
    operands: [x.storage, firstRow, plain, squares],
  });
  const unit = contiguousStrides([channels]);
  lowering.row({
    kernel: finishKernel(x.dtype),
    iteration: iterateElements([channels], [unit, unit, unit, unit, unit, unit]),
    operands: [plain, squares, firstRow, ...outputsOf(statistics)],
    scalars: [1 / rows, eps],
  });
}
