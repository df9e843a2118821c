/** A convolution, as the kernels take it, over slices. */

import {
  type ConvolutionProblem,
  type ConvolutionShape,
  convolutionCalls,
  lowerCalls,
  writtenOperand,
} from "../../../kernels/index.js";
import { accessOf } from "../access.js";
import type { BufferSlice } from "../buffer.js";
import type { Kind } from "./kind.js";

type Operands = Pick<ConvolutionProblem, "x" | "weight" | "y" | "bias" | "scratch">;

export interface ConvolutionCall {
  readonly kind: "convolution";
  readonly shape: ConvolutionShape;
  /** By the names that the problem gives them. */
  readonly operands: { readonly [Name in keyof Operands]: BufferSlice };
}

export const convolution: Kind<ConvolutionCall> = {
  accesses: ({ shape, operands }) =>
    Object.entries(operands).map(([name, slice]) => accessOf(slice, isWritten(shape, name) ? "out" : "in")),
  mapSlices: (work, to) => ({ ...work, operands: mapOperands(work.operands, to) }),
  key({ shape, operands }, { read, written, literal }) {
    const slices = Object.entries(operands).map(([name, slice]) =>
      isWritten(shape, name) ? written(slice) : read(slice),
    );
    return `${slices.join(" ")} ${literal(shape)}`;
  },
  name: ({ shape: { direction, dtype }, operands: { bias } }) =>
    `convolution ${direction} ${dtype}${bias ? " + bias" : ""}`,
  shape: describeShape,
  emit({ shape, operands }, { backend, op, resolve }) {
    return lowerCalls(backend, convolutionCalls({ ...shape, ...mapOperands(operands, resolve) }, op));
  },
};

/** The call of a problem, over the slices that its storages are. */
export function convolutionCall(
  { x, weight, y, bias, scratch, ...shape }: ConvolutionProblem,
  sliceOf: (storage: Operands["x"]) => BufferSlice,
): ConvolutionCall {
  const storages = { x, weight, y, ...(bias && { bias }), ...(scratch && { scratch }) };
  return { kind: "convolution", shape, operands: mapOperands(storages, sliceOf) };
}

function mapOperands<From, To>(
  operands: { readonly [Name in keyof Operands]: From },
  to: (operand: From) => To,
): { readonly [Name in keyof Operands]: To } {
  const { x, weight, y, bias, scratch } = operands;
  return {
    ...{ x: to(x), weight: to(weight), y: to(y) },
    ...(bias !== undefined && { bias: to(bias) }),
    ...(scratch !== undefined && { scratch: to(scratch) }),
  };
}

/** Partial sums are written before they are read, all of them. */
function isWritten({ direction }: ConvolutionShape, name: string): boolean {
  return name === writtenOperand[direction] || name === "scratch";
}

/** [N, C, H, W] ⋆ [out, C / groups, kH, kW]. */
function describeShape({ shape }: ConvolutionCall): string {
  const { batch, groups, channels, outChannels, size, kernel } = shape;
  return `${[batch, groups * channels, ...size].join("×")} ⋆ ${[groups * outChannels, channels, ...kernel].join("×")}`;
}
