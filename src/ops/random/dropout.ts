/**
 * dropout: sets elements to 0 with probability p and scales the others up, so that the mean stays the same. An element is kept if its number
 * of a draw is below a threshold: integers are compared, never floats, so the decisions are the same on every machine. Backward computes
 * the numbers again from the draw, so no mask stays in memory.
 */

import { HoldfastError } from "../../errors/index.js";
import { type Dtype, dtypes, iterateElements, type RowKernel, term } from "../../ir/index.js";
import {
  blocksForCalls,
  keepAll,
  numbersPerCall,
  randomKernels,
  scaleOfKept,
  thresholdOf,
} from "../../kernels/index.js";
import type { Storage } from "../../runtime/index.js";
import { copyArray } from "../copy.js";
import { contiguousStrides, type DeviceArray } from "../device-array.js";
import { arrayAt, type KernelOp, type Lowering, typeAt, type ValueType } from "../op.js";
import { fillWith } from "../reduction/reduce.js";
import { requireFloat } from "../reduction/rule.js";
import { badShape, formatShape, type Shape, sizeOf } from "../shape.js";

export type DropoutAttributes = {
  /** The probability that an element is dropped, in steps of 2⁻¹⁶. */
  readonly p: number;
  /** True if each row along the last axis begins with a new Philox call, as attention kernels need it. Default: numbers have no gaps. */
  readonly alignsRows?: boolean;
};

/** Operands: a tensor, and the device's random state, which advances by one draw. The second output is the draw. */
export const dropout: KernelOp<DropoutAttributes> = {
  kind: "kernel",
  name: "dropout",
  infer(operands, { p }) {
    const [{ shape, dtype }, state] = [typeAt("dropout", operands, 0), typeAt("dropout", operands, 1)];
    requireFloat("dropout", dtype);
    requireDropout("dropout", state, p);
    return [{ shape, dtype }, state];
  },
  saves: () => ({ outputs: [1] }),
  gradient: (rule) => [
    rule.apply(dropoutGradient, [rule.upstream, rule.output(1)], rule.attributes),
    undefined,
  ],
  lower(lowering, operands, [output, draw], attributes) {
    const [x, state] = [arrayAt(operands, 0), arrayAt(operands, 1)];
    if (!output || !draw) return;
    reserveDraw(lowering, state, draw, output.storage !== undefined && dropsAny(attributes.p));
    dropElements(lowering, x, draw, output, attributes);
  },
};

/** Operands: the upstream gradient, and the draw of the forward pass. */
export const dropoutGradient: KernelOp<DropoutAttributes> = {
  kind: "kernel",
  name: "dropoutGradient",
  saves: () => ({ operands: [1] }),
  gradient: ({ apply, upstream, operand, attributes }) => [
    apply(dropoutGradient, [upstream, operand(1)], attributes),
  ],
  infer: (operands) => [typeAt("dropoutGradient", operands, 0)],
  lower(lowering, operands, [output], attributes) {
    const [upstream, draw] = [arrayAt(operands, 0), arrayAt(operands, 1)];
    if (output) dropElements(lowering, upstream, draw, output, attributes);
  },
};

/** Throws unless `state` is a random state and `p` a probability. */
export function requireDropout(op: string, state: ValueType, p: number): void {
  requireRandomState(op, state);
  if (!(p >= 0 && p <= 1)) {
    throw new HoldfastError("BAD_ARGUMENT", `${op}: p is ${p}; pass a probability from 0 to 1.`, {
      numbers: { p },
    });
  }
}

export function requireRandomState(op: string, state: ValueType): void {
  if (state.dtype !== "i32" || formatShape(state.shape) !== "[4]") {
    throw badShape(op, `a random state of ${state.dtype} ${formatShape(state.shape)}; it must be i32 [4].`);
  }
}

/** False if the probability is so small that every number is below the threshold: then none is drawn. */
export function dropsAny(p: number): boolean {
  return thresholdOf(1 - p) !== keepAll;
}

/** Copies the random state to `draw` and advances it, unless nothing is drawn. */
export function reserveDraw(
  lowering: Lowering,
  state: DeviceArray,
  draw: DeviceArray,
  isDrawn: boolean,
): void {
  if (isDrawn && draw.storage && state.storage) {
    lowering.launch({
      ...{ op: "dropout", source: randomKernels.reserveDraw, blocks: 1 },
      arguments: [draw.storage, state.storage, 1],
    });
  } else fillWith(lowering, draw, 0);
}

/** Stores 0 for dropped elements, and the others scaled. */
function dropElements(
  lowering: Lowering,
  x: DeviceArray,
  draw: DeviceArray,
  output: DeviceArray,
  { p, alignsRows = false }: DropoutAttributes,
): void {
  if (!x.storage || !draw.storage || !output.storage) return;
  if (!dropsAny(p)) {
    copyArray(lowering, x, output);
    return;
  }
  const { shape, dtype } = x;
  const threshold = thresholdOf(1 - p);
  const numbers = shapeOfNumbers(shape, alignsRows);
  const iteration = iterateElements(shape, [x.strides, contiguousStrides(numbers), output.strides]);
  const launch = (input: "draw" | "bool", drawn: Storage, ...thresholds: readonly number[]): void =>
    lowering.row({
      ...{ kernel: kernelOf(lowering.op, dtype, input), iteration },
      operands: [x, { storage: drawn }, output].flatMap(({ storage }) => storage ?? []),
      scalars: [scaleOfKept(p), ...thresholds],
    });
  if (lowering.backend.capabilities.drawsInKernels) launch("draw", draw.storage, threshold);
  else launch("bool", drawMask(lowering, draw.storage, sizeOf(numbers), threshold));
}

/** The shape of the draw of which the elements take the first numbers of each row. */
function shapeOfNumbers(shape: Shape, alignsRows: boolean): Shape {
  const columns = shape.at(-1);
  if (!alignsRows || columns === undefined) return shape;
  return [...shape.slice(0, -1), Math.ceil(columns / numbersPerCall) * numbersPerCall];
}

/** Scratch memory with 1 for each number of a draw that is below the threshold, else 0. */
function drawMask(lowering: Lowering, draw: Storage, count: number, threshold: number): Storage {
  const calls = Math.ceil(count / numbersPerCall);
  const mask = lowering.scratch(calls * numbersPerCall);
  lowering.launch({
    ...{ op: "dropout", source: randomKernels.drawMask, blocks: blocksForCalls(calls) },
    arguments: [mask, draw, calls, threshold],
  });
  return mask;
}

const kernels = new Map<string, RowKernel>();

/** Inputs: elements, and a draw or a mask of it. Scalars: the scale, and the threshold of a draw. */
function kernelOf(name: string, dtype: Dtype, numbers: "draw" | "bool"): RowKernel {
  const key = `${name} ${dtype} ${numbers}`;
  const cached = kernels.get(key);
  if (cached) return cached;
  const { compute } = dtypes[dtype];
  const drawn = term.load(1, "i32");
  const isKept = numbers === "draw" ? term.lt(drawn, term.scalar(1, "i32")) : drawn;
  const scaled = term.mul(term.load(0, compute), term.scalar(0, compute));
  const value = term.select(isKept, scaled, term.constant(0, compute));
  const kernel: RowKernel = {
    ...{ name, inputs: [dtype, numbers], outputs: [{ dtype, per: "element" }] },
    scalars: numbers === "draw" ? [compute, "i32"] : [compute],
    stages: [{ kind: "store", output: 0, value }],
  };
  kernels.set(key, kernel);
  return kernel;
}
