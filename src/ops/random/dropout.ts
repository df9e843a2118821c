/**
 * dropout: sets elements to 0 with probability p and scales the others up, so that the mean stays the same. The mask compares random
 * integers with a threshold, never floats, so it has the same bits on every machine.
 */

import { HoldfastError } from "../../errors/index.js";
import { type Dtype, dtypes, iterateElements, type RowKernel, term } from "../../ir/index.js";
import { blocksForWords, keepAll, randomKernels, scaleOfKept, thresholdOf } from "../../kernels/index.js";
import { copyArray } from "../copy.js";
import { contiguousStrides, type DeviceArray } from "../device-array.js";
import { elementwise } from "../elementwise/elementwise.js";
import { arrayAt, type KernelOp, type Lowering, typeAt, type ValueType } from "../op.js";
import { fillWith } from "../reduction/reduce.js";
import { requireFloat } from "../reduction/rule.js";
import { badShape, formatShape, sizeOf } from "../shape.js";

/** `p`: the probability that an element is dropped. */
export type DropoutAttributes = { readonly p: number };

const none = term.constant(0, "f32");
const signedOffset = 2 ** 31;

/** Operands: a tensor, and the device's random state, which advances by one draw. The second output is the mask. */
export const dropout: KernelOp<DropoutAttributes> = {
  kind: "kernel",
  name: "dropout",
  infer(operands, { p }) {
    const [{ shape, dtype }, state] = [typeAt("dropout", operands, 0), typeAt("dropout", operands, 1)];
    requireFloat("dropout", dtype);
    requireDropout("dropout", state, p);
    return [
      { shape, dtype },
      { shape, dtype: "bool" },
    ];
  },
  saves: () => ({ outputs: [1] }),
  gradient: (rule) => [
    rule.apply(dropoutGradient, [rule.upstream, rule.output(1)], { scale: scaleOfKept(rule.attributes.p) }),
    undefined,
  ],
  lower(lowering, operands, [output, mask], { p }) {
    const [x, state] = [arrayAt(operands, 0), arrayAt(operands, 1)];
    if (!output?.storage || !mask?.storage || !x.storage) return;
    const threshold = thresholdOf(1 - p);
    if (threshold === keepAll) {
      // Every random word is below this threshold, so none has to be drawn.
      copyArray(lowering, x, output);
      fillWith(lowering, mask, 1);
      return;
    }
    const words = drawWords(lowering, state, sizeOf(x.shape));
    const row = contiguousStrides(x.shape);
    lowering.row({
      kernel: dropoutKernel(x.dtype),
      iteration: iterateElements(x.shape, [x.strides, row, row, row]),
      operands: [x, words, output, mask].flatMap(({ storage }) => storage ?? []),
      scalars: [threshold - signedOffset, scaleOfKept(p)],
    });
  },
};

/** Throws unless `state` is a random state and `p` a probability. */
export function requireDropout(op: string, state: ValueType, p: number): void {
  if (state.dtype !== "i32" || formatShape(state.shape) !== "[4]") {
    throw badShape(op, `a random state of ${state.dtype} ${formatShape(state.shape)}; it must be i32 [4].`);
  }
  if (!(p >= 0 && p <= 1)) {
    throw new HoldfastError("BAD_ARGUMENT", `${op}: p is ${p}; pass a probability from 0 to 1.`, {
      numbers: { p },
    });
  }
}

/** Draws a random word for each element, in row-major order, and advances the state. */
function drawWords(lowering: Lowering, state: DeviceArray, count: number): DeviceArray {
  const words = lowering.scratchArray([count], "i32");
  if (!words.storage || !state.storage) return words;
  const { randomBits, advance } = randomKernels;
  lowering.launch({
    op: "dropout",
    source: randomBits,
    blocks: blocksForWords(count),
    arguments: [words.storage, state.storage, count],
  });
  lowering.launch({ op: "dropout", source: advance, blocks: 1, arguments: [state.storage] });
  return words;
}

const kernels = new Map<Dtype, RowKernel>();

/** Inputs: elements and words. Scalars: the threshold less 2³¹, and the scale. Outputs: the result and the mask. */
function dropoutKernel(dtype: Dtype): RowKernel {
  const cached = kernels.get(dtype);
  if (cached) return cached;
  const { compute } = dtypes[dtype];
  const x = term.load(0, compute);
  // Subtracting 2³¹ wraps around: signed words then compare like the unsigned words before.
  const isKept = term.lt(term.sub(term.load(1, "i32"), -signedOffset), term.scalar(0, "i32"));
  const scaled = term.mul(x, term.scalar(1, compute));
  const kernel: RowKernel = {
    name: "dropout",
    inputs: [dtype, "i32"],
    outputs: [
      { dtype, per: "element" },
      { dtype: "bool", per: "element" },
    ],
    scalars: ["i32", compute],
    stages: [
      { kind: "store", output: 0, value: term.select(isKept, scaled, term.constant(0, compute)) },
      { kind: "store", output: 1, value: isKept },
    ],
  };
  kernels.set(dtype, kernel);
  return kernel;
}

const dropoutGradient = elementwise<{ readonly scale: number }>({
  name: "dropoutGradient",
  operands: 2,
  conditions: [1],
  scalars: ({ scale }) => [scale],
  value: ([upstream = none, isKept = none], [scale = none]) =>
    term.select(isKept, term.mul(upstream, scale), term.constant(0, upstream.type)),
  noGradient: "gradients of gradients are not recorded",
});
