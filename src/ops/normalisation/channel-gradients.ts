/**
 * The sums of a channel norm's gradient: of the upstream gradient, and of the upstream gradient times the normalised input. They are the
 * gradients of the bias and of the weight too.
 */

import {
  type ColumnKernel,
  type Compute,
  type Dtype,
  dtypes,
  type Expression,
  iterateRows,
  type RowKernel,
  term,
} from "../../ir/index.js";
import type { DeviceArray } from "../device-array.js";
import type { Lowering } from "../op.js";
import { cacheByDtypes } from "../row-lowering.js";
import { arrangeChannels, type ChannelColumns, type ChannelRows } from "./channel-layout.js";
import { loadAs } from "./channels.js";

/** Inputs: upstream, x, and the mean and 1 / σ of each channel, in any dtypes. */
export interface SummedOperands {
  readonly upstream: DeviceArray;
  readonly x: DeviceArray;
  /** Contiguous [C]. */
  readonly mean: DeviceArray;
  readonly inverseStd: DeviceArray;
}

/** Stores both sums: contiguous [C], in the compute dtype of x. */
export function lowerGradientSums(
  lowering: Lowering,
  { upstream, x, mean, inverseStd }: SummedOperands,
  sums: readonly DeviceArray[],
): void {
  const { arrays, layouts } = arrangeChannels(lowering, [x, upstream]);
  const [xArray = x, upstreamArray = upstream] = arrays;
  const operands = [upstreamArray, xArray, mean, inverseStd];
  const [xLayout, upstreamLayout] = layouts;
  if (!xLayout || !upstreamLayout) return;
  if (xLayout.kind === "columns" && upstreamLayout.kind === "columns")
    lowerColumns(lowering, operands, [upstreamLayout, xLayout], sums);
  else if (xLayout.kind === "rows" && upstreamLayout.kind === "rows")
    lowerRows(lowering, operands, [upstreamLayout, xLayout], sums);
}

/** The two summed values. */
export function summedValues(
  compute: Compute,
  [upstream = "f32", x = "f32", mean = "f32", inverseStd = "f32"]: readonly Dtype[],
): readonly [Expression, Expression] {
  const load = loadAs(compute, upstream, 0);
  const centred = term.sub(loadAs(compute, x, 1), loadAs(compute, mean, 2));
  return [load, term.mul(load, term.mul(centred, loadAs(compute, inverseStd, 3)))];
}

const storagesOf = (arrays: readonly DeviceArray[]) => arrays.flatMap(({ storage }) => storage ?? []);

const columnKernel = cacheByDtypes((...inputs): ColumnKernel => {
  const { compute } = dtypes[inputs[1] ?? "f32"];
  return {
    name: "channel gradient sums",
    inputs,
    outputs: [compute, compute],
    scalars: [],
    op: "add",
    values: summedValues(compute, inputs),
  };
});

function lowerColumns(
  lowering: Lowering,
  operands: readonly DeviceArray[],
  layouts: readonly ChannelColumns[],
  sums: readonly DeviceArray[],
): void {
  const [first] = layouts;
  const perColumn = { row: 0, column: "unit" } as const;
  lowering.column({
    kernel: columnKernel(...operands.map(({ dtype }) => dtype)),
    rows: first?.rows ?? 0,
    columns: operands[0]?.shape[1] ?? 0,
    strides: [
      ...layouts.map(({ rowStride }) => ({ row: rowStride, column: "unit" as const })),
      perColumn,
      perColumn,
    ],
    operands: [...storagesOf(operands), ...storagesOf(sums)],
  });
}

export const gradientRowKernel = cacheByDtypes((...inputs): RowKernel => {
  const { compute } = dtypes[inputs[1] ?? "f32"];
  const output = { dtype: compute, per: "row" } as const;
  return {
    name: "channel gradient sums",
    inputs,
    outputs: [output, output],
    scalars: [],
    stages: [
      ...summedValues(compute, inputs).map((value) => ({ kind: "reduce", op: "add", value }) as const),
      { kind: "store", output: 0, value: term.reduced(0, compute) },
      { kind: "store", output: 1, value: term.reduced(1, compute) },
    ],
  };
});

const combineKernel = cacheByDtypes((dtype = "f32"): RowKernel => {
  const { compute } = dtypes[dtype];
  const output = { dtype, per: "row" } as const;
  return {
    name: "combine gradient sums",
    inputs: [dtype, dtype],
    outputs: [output, output],
    scalars: [],
    stages: [
      { kind: "reduce", op: "add", value: term.load(0, compute) },
      { kind: "reduce", op: "add", value: term.load(1, compute) },
      { kind: "store", output: 0, value: term.reduced(0, compute) },
      { kind: "store", output: 1, value: term.reduced(1, compute) },
    ],
  };
});

function lowerRows(
  lowering: Lowering,
  operands: readonly DeviceArray[],
  layouts: readonly ChannelRows[],
  sums: readonly DeviceArray[],
): void {
  const [first] = layouts;
  const channels = operands[0]?.shape[1] ?? 0;
  if (!first) return;
  const { count, length } = first;
  const compute = sums[0]?.dtype ?? "f32";
  const partials = count === 1 ? sums : [0, 1].map(() => lowering.scratchArray([channels, count], compute));
  const elementStrides = layouts.map(({ strides: [channel, row] }) => [channel, row, 1]);
  const perChannel = [1, 0, 0];
  const perRow = [count, 1, 0];
  lowering.row({
    kernel: gradientRowKernel(...operands.map(({ dtype }) => dtype)),
    iteration: iterateRows(
      [channels, count, length],
      [...elementStrides, perChannel, perChannel, perRow, perRow],
      1,
    ),
    operands: [...storagesOf(operands), ...storagesOf(partials)],
  });
  if (count === 1) return;
  const rows = [count, 1];
  lowering.row({
    kernel: combineKernel(compute),
    iteration: iterateRows([channels, count], [rows, rows, [1, 0], [1, 0]], 1),
    operands: [...storagesOf(partials), ...storagesOf(sums)],
  });
}
