/**
 * dropout: sets elements to 0 with probability p and scales the others up, so that the mean stays. The mask is decided
 * on random integers against a threshold, never on floats, so it has the same bits on every machine.
 */

import { HoldfastError } from "../../errors/index.js";
import { type Dtype, dtypes, iterateElements, type RowKernel, term } from "../../ir/index.js";
import { blocksForWords, keepAll, randomKernels, thresholdOf } from "../../kernels/index.js";
import { copyArray } from "../copy.js";
import { contiguousStrides, type DeviceArray } from "../device-array.js";
import { elementwise } from "../elementwise/elementwise.js";
import { arrayAt, type KernelOp, type Lowering, typeAt } from "../op.js";
import { fillWith } from "../reduction/reduce.js";
import { requireFloat } from "../reduction/rule.js";
import { badShape, formatShape, sizeOf } from "../shape.js";

/** `p`: the probability that an element is dropped. */
export type DropoutAttributes = { readonly p: number };

const none = term.constant(0, "f32");
const half = 2 ** 31;

/** Operands: a tensor, and the device's random state, which moves on by one draw. The second output is the mask. */
export const dropout: KernelOp<DropoutAttributes> = {
  kind: "kernel",
  name: "dropout",
  infer(operands, { p }) {
    const [{ shape, dtype }, state] = [typeAt("dropout", operands, 0), typeAt("dropout", operands, 1)];
    requireFloat("dropout", dtype);
    if (state.dtype !== "i32" || formatShape(state.shape) !== "[4]") {
      throw badShape(
        "dropout",
        `a random state of ${state.dtype} ${formatShape(state.shape)}; it is i32 [4].`,
      );
    }
    if (!(p >= 0 && p <= 1)) {
      throw new HoldfastError("BAD_ARGUMENT", `dropout: p is ${p}; give a probability from 0 to 1.`, {
        numbers: { p },
      });
    }
    return [
      { shape, dtype },
      { shape, dtype: "bool" },
    ];
  },
  saves: () => ({ outputs: [1] }),
  gradient: (rule) => [
    rule.apply(keepScaled, [rule.upstream, rule.output(1)], { scale: scaleOf(rule.attributes.p) }),
    undefined,
  ],
  lower(lowering, operands, [output, mask], { p }) {
    const [x, state] = [arrayAt(operands, 0), arrayAt(operands, 1)];
    if (!output?.storage || !mask?.storage || !x.storage) return;
    const threshold = thresholdOf(1 - p);
    if (threshold === keepAll) {
      // Every word lies below it, so none has to be drawn.
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
      scalars: [threshold - half, scaleOf(p)],
    });
  },
};

/** What stays is scaled by this. With a p of 1 nothing stays. */
function scaleOf(p: number): number {
  return p < 1 ? 1 / (1 - p) : 0;
}

/** Random words for elements in row-major order; the state has moved on. */
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
  const known = kernels.get(dtype);
  if (known) return known;
  const { compute } = dtypes[dtype];
  const x = term.load(0, compute);
  // Less 2³¹, which wraps round, the order of unsigned words is that of signed ones.
  const keeps = term.lt(term.sub(term.load(1, "i32"), -half), term.scalar(0, "i32"));
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
      { kind: "store", output: 0, value: term.select(keeps, scaled, term.constant(0, compute)) },
      { kind: "store", output: 1, value: keeps },
    ],
  };
  kernels.set(dtype, kernel);
  return kernel;
}

const keepScaled = elementwise<{ readonly scale: number }>({
  name: "dropoutGradient",
  operands: 2,
  conditions: [1],
  scalars: ({ scale }) => [scale],
  value: ([upstream = none, keeps = none], [scale = none]) =>
    term.select(keeps, term.mul(upstream, scale), term.constant(0, upstream.type)),
  noGradient: "gradients of gradients are not recorded",
});
