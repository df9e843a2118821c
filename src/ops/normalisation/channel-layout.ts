/**
 * How the elements of each channel of [N, C, …] are in memory, for reductions to one value for each channel. If they are contiguous, each
 * channel is a row. Of contiguous images, each channel of each image is a row, and partial results are reduced once more. Of channels-last
 * images and of matrices [N, C], each channel is a column.
 */

import { copyArray } from "../copy.js";
import { channelsLastStrides, type DeviceArray, mergeAxes } from "../device-array.js";
import type { Lowering } from "../op.js";
import { sizeOf } from "../shape.js";
import { contiguousOf } from "./channels.js";

/** `count` rows for each channel. `strides`: of the channels and of the rows of one channel. */
export interface ChannelRows {
  readonly kind: "rows";
  readonly count: number;
  readonly length: number;
  readonly strides: readonly [channel: number, row: number];
}

export interface ChannelColumns {
  readonly kind: "columns";
  readonly rows: number;
  readonly rowStride: number;
}

export type ChannelLayout = ChannelRows | ChannelColumns;

export interface ArrangedChannels {
  readonly arrays: readonly DeviceArray[];
  /** One for each array, all of one kind. */
  readonly layouts: readonly ChannelRows[] | readonly ChannelColumns[];
}

/** Gives arrays of one shape layouts of one kind, if need be by copies. The first array decides. */
export function arrangeChannels(lowering: Lowering, arrays: readonly DeviceArray[]): ArrangedChannels {
  const layouts = arrays.map(layoutOf);
  const [first] = layouts;
  if (first && layouts.every((layout) => layout && isSameKind(layout, first)))
    return { arrays, layouts: layouts as readonly ChannelRows[] | readonly ChannelColumns[] };
  const arranged = arrays.map((array, index) => {
    if (first?.kind !== "columns") return contiguousOf(lowering, array);
    return layouts[index]?.kind === "columns" ? array : channelsLastOf(lowering, array);
  });
  return {
    arrays: arranged,
    layouts: arranged.flatMap((array) => layoutOf(array) ?? []) as
      | readonly ChannelRows[]
      | readonly ChannelColumns[],
  };
}

function layoutOf({ shape, strides }: DeviceArray): ChannelLayout | undefined {
  const [batch = 1, , ...positions] = shape;
  const [batchStride = 0, channelStride = 0, ...positionStrides] = strides;
  const all = mergeAxes({ shape: [batch, ...positions], strides: [batchStride, ...positionStrides] });
  if (all && (all.stride === 1 || all.size === 1))
    return { kind: "rows", count: 1, length: all.size, strides: [channelStride, 0] };
  if (all && all.stride > 0 && channelStride === 1)
    return { kind: "columns", rows: all.size, rowStride: all.stride };
  const inner = mergeAxes({ shape: positions, strides: positionStrides });
  if (inner?.stride !== 1 || sizeOf(positions) === 1) return undefined;
  return { kind: "rows", count: batch, length: inner.size, strides: [channelStride, batchStride] };
}

function isSameKind(a: ChannelLayout, b: ChannelLayout): boolean {
  if (a.kind === "columns" || b.kind === "columns") return a.kind === b.kind;
  return a.count === b.count;
}

/** A copy that is channels-last. */
export function channelsLastOf(lowering: Lowering, array: DeviceArray): DeviceArray {
  const copy = {
    ...lowering.scratchArray(array.shape, array.dtype),
    strides: channelsLastStrides(array.shape),
  };
  copyArray(lowering, array, copy);
  return copy;
}
