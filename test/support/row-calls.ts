/**
 * Programs of row calls in short notation: buffers by shape, values by expressions over the operands'
 * elements.
 */

import type { Buffer, BufferSlice, Call } from "../../src/compile/program/program.js";
import {
  type Dtype,
  dtypes,
  type Expression,
  iterateElements,
  iterateRows,
  type Output,
  type ReduceOp,
  type RowKernel,
  type Stage,
  term,
} from "../../src/ir/index.js";
import type { Storage } from "../../src/runtime/index.js";
import { span } from "../../src/units/index.js";

/** A buffer that is viewed as a tensor. */
export interface View {
  readonly slice: BufferSlice;
  readonly dtype: Dtype;
  readonly shape: readonly number[];
  readonly strides: readonly number[];
}

export function contiguous(shape: readonly number[]): number[] {
  return shape.map((_, axis) => shape.slice(axis + 1).reduce((count, size) => count * size, 1));
}

let next = 0;

export interface BufferOptions {
  readonly dtype?: Dtype;
  readonly label?: string;
  /** The address of a persistent one. */
  readonly address?: number;
}

export function bufferOf(shape: readonly number[], options: BufferOptions = {}): View {
  const { dtype = "f32", label = "buffer", address } = options;
  const bytes = shape.reduce((total, size) => total * size, dtypes[dtype].bytes);
  const storage: Storage | undefined =
    address === undefined
      ? undefined
      : {
          kind: "persistent",
          span: span(address, bytes),
          generation: 0,
          label,
          home: {},
          owner: undefined,
        };
  const buffer: Buffer = { id: next++, bytes, label, ...(storage && { storage }) };
  return { slice: { buffer, offset: 0, size: bytes }, dtype, shape, strides: contiguous(shape) };
}

export const transposed = (view: View): View => ({
  ...view,
  shape: view.shape.toReversed(),
  strides: view.strides.toReversed(),
});

/** The view's strides along a shape that it is broadcast to. */
function broadcastStrides({ shape, strides }: View, to: readonly number[]): number[] {
  const added = to.length - shape.length;
  return to.map((size, axis) => (shape[axis - added] === size ? strides[axis - added]! : 0));
}

export const load = ({ dtype }: View, input: number): Expression => term.load(input, dtypes[dtype].compute);

const kernels = new Map<string, RowKernel>();

/** Kernels of one name and the same dtypes are one object, as those of an op are. */
function kernelOf(kernel: RowKernel): RowKernel {
  const { name, inputs, outputs } = kernel;
  const key = `${name} ${inputs} ${outputs.map(({ dtype, per }) => `${dtype} ${per}`)}`;
  const shared = kernels.get(key) ?? kernel;
  kernels.set(key, shared);
  return shared;
}

/** One value for each element of the output. */
export function elementwise(
  op: string,
  value: (...loads: Expression[]) => Expression,
  inputs: readonly View[],
  output: View,
): Call {
  return storing(op, [value], inputs, [output]);
}

/** One value for each element of each output; all have one shape. */
export function storing(
  op: string,
  values: readonly ((...loads: Expression[]) => Expression)[],
  inputs: readonly View[],
  outputs: readonly View[],
): Call {
  const { shape } = outputs[0]!;
  const kernel = kernelOf({
    name: op,
    inputs: inputs.map(({ dtype }) => dtype),
    outputs: outputs.map(({ dtype }) => ({ dtype, per: "element" })),
    scalars: [],
    stages: values.map((value, output) => ({ kind: "store", output, value: value(...inputs.map(load)) })),
  });
  const strides = [...inputs, ...outputs].map((view) => broadcastStrides(view, shape));
  const operands = [...inputs, ...outputs].map(({ slice }) => slice);
  return {
    op,
    work: { kind: "row", kernel, iteration: iterateElements(shape, strides), operands, scalars: [] },
  };
}

/** Reductions of the last axis, then a value for each element or each row of the outputs. */
export function reducing(
  op: string,
  reductions: readonly [ReduceOp, (...loads: Expression[]) => Expression][],
  values: readonly ((...loads: Expression[]) => Expression)[],
  inputs: readonly View[],
  outputs: readonly View[],
): Call {
  const { shape } = inputs[0]!;
  const per = (view: View): Output["per"] => (view.shape.length < shape.length ? "row" : "element");
  const loads = inputs.map(load);
  const kernel = kernelOf({
    name: op,
    inputs: inputs.map(({ dtype }) => dtype),
    outputs: outputs.map((view) => ({ dtype: view.dtype, per: per(view) })),
    scalars: [],
    stages: [
      ...reductions.map(([reduce, value]): Stage => ({ kind: "reduce", op: reduce, value: value(...loads) })),
      ...values.map((value, output): Stage => ({ kind: "store", output, value: value(...loads) })),
    ],
  });
  const along = (view: View): number[] =>
    view.shape.length < shape.length && view.shape.length > 0 && view.shape[0] === shape[0]
      ? [...view.strides, 0]
      : broadcastStrides(view, shape);
  const iteration = iterateRows(shape, [...inputs, ...outputs].map(along), 1);
  return {
    op,
    work: {
      kind: "row",
      kernel,
      iteration,
      operands: [...inputs, ...outputs].map(({ slice }) => slice),
      scalars: [],
    },
  };
}

/** x [N, D] minus its mean, over its deviation; mean and 1 / σ [N]. */
export function layerNorm(x: View, y: View, mean: View, perSpread: View): Call {
  const perCount = 1 / (x.shape.at(-1) ?? 1);
  const average = term.mul(term.reduced(0, "f32"), perCount);
  const spread = term.div(1, term.sqrt(term.add(term.mul(term.reduced(1, "f32"), perCount), 1e-5)));
  const centred = (load: Expression): Expression => term.sub(load, average);
  return reducing(
    "layerNorm",
    [
      ["add", (load) => load],
      ["add", (load) => term.mul(centred(load), centred(load))],
    ],
    [(load) => term.mul(centred(load), spread), () => average, () => spread],
    [x],
    [y, mean, perSpread],
  );
}
