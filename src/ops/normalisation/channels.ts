/**
 * Arrays with channels along axis 1: [N, C, …], in groups of channels. An operand of a kernel has a value for each element, for each
 * channel [C], or for each group of each batch [N, G].
 */

import {
  type Compute,
  type Dtype,
  dtypes,
  type Expression,
  iterateElements,
  type RowKernel,
  term,
} from "../../ir/index.js";
import { copyArray } from "../copy.js";
import { contiguousStrides, type DeviceArray, isContiguous, type Strides } from "../device-array.js";
import { type Lowering, type OperandType, typeAt, type ValueType } from "../op.js";
import { requireFloat } from "../reduction/rule.js";
import { badShape, formatShape, isSameShape, type Shape, sizeOf } from "../shape.js";

export type Per = "element" | "channel" | "group";

/** [N, C, …] as [N, G, C / G, …]. */
export function groupedShape([batch = 1, channels = 1, ...positions]: Shape, groups: number): Shape {
  return [batch, groups, channels / groups, ...positions];
}

/** The strides of an operand over the grouped shape of [N, C, …]. */
export function groupedStrides({ strides }: DeviceArray, per: Per, shape: Shape, groups: number): Strides {
  const width = (shape[1] ?? 1) / groups;
  const none = shape.slice(2).map(() => 0);
  if (per === "group") return [strides[0] ?? 0, strides[1] ?? 0, 0, ...none];
  if (per === "channel") return [0, width * (strides[0] ?? 0), strides[0] ?? 0, ...none];
  const [batch = 0, channel = 0, ...positions] = strides;
  return [batch, width * channel, channel, ...positions];
}

/** Loads input `index`, converted to the type of the arithmetic. */
export function loadAs(compute: Compute, dtype: Dtype, index: number): Expression {
  return term.convert(term.load(index, dtypes[dtype].compute), compute);
}

export interface ChannelOperand {
  readonly array: DeviceArray;
  readonly per: Per;
}

/** Runs an elementwise kernel over all elements of [N, C, …]. */
export function lowerElements(
  lowering: Lowering,
  kernel: RowKernel,
  operands: readonly ChannelOperand[],
  output: DeviceArray,
  { groups = 1, scalars = [] }: { readonly groups?: number; readonly scalars?: readonly number[] } = {},
): void {
  if (!output.storage) return;
  const { shape } = output;
  const all: readonly ChannelOperand[] = [...operands, { array: output, per: "element" }];
  lowering.row({
    kernel,
    iteration: iterateElements(
      groupedShape(shape, groups),
      all.map(({ array, per }) => groupedStrides(array, per, shape, groups)),
    ),
    operands: all.flatMap(({ array }) => array.storage ?? []),
    scalars,
  });
}

/** The array itself if it is contiguous, or else a copy that is. */
export function contiguousOf(lowering: Lowering, array: DeviceArray): DeviceArray {
  if (isContiguous(array)) return { ...array, strides: contiguousStrides(array.shape) };
  const copy = lowering.scratchArray(array.shape, array.dtype);
  copyArray(lowering, array, copy);
  return copy;
}

/** The type of x, checked: floats with a batch and channels. Further operands have one value for each channel. */
export function inferChannels(
  op: string,
  operands: readonly OperandType[],
  names: readonly string[],
): ValueType {
  const { shape, dtype } = typeAt(op, operands, 0);
  requireFloat(op, dtype);
  if (shape.length < 2) {
    throw badShape(op, `the input is ${formatShape(shape)}; it needs a batch and channels, [N, C, …].`);
  }
  for (const [index, name] of names.entries()) {
    if (index + 1 >= operands.length) break;
    const type = typeAt(op, operands, index + 1);
    requireFloat(op, type.dtype);
    if (isSameShape(type.shape, [shape[1] ?? 0])) continue;
    throw badShape(
      op,
      `the ${name} is ${formatShape(type.shape)}; the input ${formatShape(shape)} has ${shape[1]} channels, so pass [${shape[1]}].`,
    );
  }
  return { shape, dtype };
}

/** The number of elements of each channel. */
export function elementsPerChannel(shape: Shape): number {
  return sizeOf(shape) / Math.max(1, shape[1] ?? 1);
}
