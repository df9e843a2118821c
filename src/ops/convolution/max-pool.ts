/**
 * maxPool1d and maxPool2d: the largest element of every window. One pass for each place in the window keeps the maximum
 * so far and where it was found; nothing is copied, and the border is never there.
 */

import {
  type Dtype,
  dtypes,
  type Expression,
  iterateElements,
  type RowKernel,
  term,
} from "../../ir/index.js";
import { copyArray } from "../copy.js";
import type { DeviceArray, Layout } from "../device-array.js";
import { type Part, viewStrided } from "../movement/part.js";
import { type Range, slicedView } from "../movement/slice.js";
import { arrayAt, type KernelOp, type Lowering, typeAt, type ValueType } from "../op.js";
import { fillWith } from "../reduction/reduce.js";
import { requireFloat } from "../reduction/rule.js";
import { badShape, formatShape, type Shape } from "../shape.js";
import {
  eachAxis,
  type PerAxis,
  placesIn,
  type WindowOptions,
  type Windows,
  windowsOver,
} from "./geometry.js";

/** `stride`: as large as the kernel, unless given. */
export type PoolAttributes = WindowOptions & { readonly kernel: PerAxis };

export const maxPool1d = maxPool("maxPool1d", 1);
export const maxPool2d = maxPool("maxPool2d", 2);

/** The second output has the place of each maximum in its window, for the gradient. */
function maxPool(name: string, rank: number): KernelOp<PoolAttributes> {
  return {
    kind: "kernel",
    name,
    infer(operands, attributes) {
      const x = typeAt(name, operands, 0);
      const { count } = poolWindows(name, rank, x, attributes);
      const shape = [...x.shape.slice(0, x.shape.length - rank), ...count];
      return [
        { shape, dtype: x.dtype },
        { shape, dtype: "i32" },
      ];
    },
    saves: () => ({ outputs: [1] }),
    gradient(rule) {
      const { shape } = rule.typeOf(0);
      const over = poolWindows(name, rank, rule.typeOf(0), rule.attributes);
      return [rule.apply(maxPoolGradient, [rule.upstream, rule.output(1)], { shape, over })];
    },
    lower(lowering, operands, [output, chosen], attributes) {
      const x = arrayAt(operands, 0);
      if (!output?.storage || !chosen?.storage) return;
      fillWith(lowering, output, Number.NEGATIVE_INFINITY);
      fillWith(lowering, chosen, -1);
      const over = poolWindows(name, rank, x, attributes);
      for (const [number, place] of placesIn(over.kernel).entries()) {
        const { inside, reached } = atPlace(x, output, over, place);
        const [from, best, at] = [
          viewStrided(lowering, x, inside),
          viewStrided(lowering, output, slicedView(output, reached)),
          viewStrided(lowering, chosen, slicedView(chosen, reached)),
        ];
        if (!from.storage || !best.storage || !at.storage) continue;
        lowering.row({
          kernel: largerOf(x.dtype),
          iteration: iterateElements(
            best.shape,
            [from, best, at, best, at].map(({ strides }) => strides),
          ),
          operands: [from.storage, best.storage, at.storage, best.storage, at.storage],
          scalars: [number],
        });
      }
    },
  };
}

const maxPoolGradient: KernelOp<{ readonly shape: Shape; readonly over: Windows }> = {
  kind: "kernel",
  name: "maxPoolGradient",
  noGradient: "gradients of gradients are not recorded",
  infer: (operands, { shape }) => [{ shape, dtype: typeAt("maxPoolGradient", operands, 0).dtype }],
  lower(lowering, operands, [output], { shape, over }) {
    const [upstream, chosen] = [arrayAt(operands, 0), arrayAt(operands, 1)];
    if (!output?.storage) return;
    // Half floats are added up in f32 and narrowed once.
    const wide = dtypes[output.dtype].compute;
    const sum = output.dtype === wide ? output : lowering.scratchArray(shape, wide);
    if (!sum.storage) return;
    lowering.fill(sum.storage, 0);
    for (const [number, place] of placesIn(over.kernel).entries()) {
      const { inside, reached } = atPlace(sum, chosen, over, place);
      addWhereChosen(lowering, number, {
        upstream: viewStrided(lowering, upstream, slicedView(upstream, reached)),
        chosen: viewStrided(lowering, chosen, slicedView(chosen, reached)),
        sum: viewStrided(lowering, sum, inside),
      });
    }
    if (sum !== output) copyArray(lowering, sum, output);
  },
};

/** What pools check: the axes, the kernel, and that every window has an element of the input. */
export function poolWindows(
  op: string,
  rank: number,
  { shape, dtype }: ValueType,
  { kernel, stride = kernel, ...options }: PoolAttributes,
): Windows {
  requireFloat(op, dtype);
  if (shape.length !== rank + 1 && shape.length !== rank + 2) {
    const spatial = rank === 1 ? "L" : "H, W";
    throw badShape(op, `input ${formatShape(shape)}: it is [N, C, ${spatial}] or [C, ${spatial}].`);
  }
  const sizes = eachAxis(op, "the kernel", kernel, rank, 1);
  const over = windowsOver(op, shape, sizes, { stride, ...options });
  const tooWide = over.padding.findIndex((border, axis) => 2 * border > (sizes[axis] ?? 1));
  if (tooWide < 0) return over;
  throw badShape(
    op,
    `padding ${formatShape(over.padding)} for a kernel of ${formatShape(sizes)}: it is at most half of the kernel, so that no window ` +
      "lies in the border alone.",
  );
}

interface AtPlace {
  /** The input's elements at this place of the windows. */
  readonly inside: Part;
  /** Of the output, the windows whose place is inside the input. */
  readonly reached: readonly Range[];
}

function atPlace(input: Layout, output: Layout, over: Windows, place: readonly number[]): AtPlace {
  const rest = input.shape.length - place.length;
  const spans = place.map((at, axis) => {
    const [stride = 1, size = 0] = [over.stride[axis], input.shape[rest + axis]];
    // Window w has this place at w · stride + first.
    const first = at * (over.dilation[axis] ?? 1) - (over.padding[axis] ?? 0);
    const from = Math.max(0, Math.ceil(-first / stride));
    const to = Math.min(output.shape[rest + axis] ?? 0, Math.floor((size - 1 - first) / stride) + 1);
    return { from, to: Math.max(from, to), start: from * stride + first, stride };
  });
  const steps = input.strides.slice(rest);
  return {
    reached: [...new Array<Range>(rest).fill(null), ...spans.map(({ from, to }): Range => [from, to])],
    inside: {
      shape: [...input.shape.slice(0, rest), ...spans.map(({ from, to }) => to - from)],
      strides: [
        ...input.strides.slice(0, rest),
        ...spans.map(({ stride }, axis) => stride * (steps[axis] ?? 0)),
      ],
      offset: spans.reduce((sum, { start }, axis) => sum + start * (steps[axis] ?? 0), 0),
    },
  };
}

const larger = new Map<Dtype, RowKernel>();

/** Takes over what is larger, what is NaN, and the first of all. */
function largerOf(dtype: Dtype): RowKernel {
  const { compute } = dtypes[dtype];
  const [x, best, at] = [term.load(0, compute), term.load(1, compute), term.load(2, "i32")];
  const isTaken = term.max(term.max(term.gt(x, best), term.ne(x, x)), term.lt(at, 0));
  const kernel: RowKernel = larger.get(dtype) ?? {
    name: "maximum of windows",
    inputs: [dtype, dtype, "i32"],
    outputs: [
      { dtype, per: "element" },
      { dtype: "i32", per: "element" },
    ],
    scalars: ["i32"],
    // The place first: it is decided on the maximum as it was.
    stages: [
      { kind: "store", output: 1, value: term.select(isTaken, term.scalar(0, "i32"), at) },
      { kind: "store", output: 0, value: term.max(x, best) },
    ],
  };
  larger.set(dtype, kernel);
  return kernel;
}

const shares = new Map<string, RowKernel>();

function shareKernel(upstream: Dtype, sum: Dtype): RowKernel {
  const key = `${upstream} ${sum}`;
  const { compute } = dtypes[sum];
  const share: Expression = term.select(
    term.eq(term.load(1, "i32"), term.scalar(0, "i32")),
    term.convert(term.load(0, dtypes[upstream].compute), compute),
    0,
  );
  const kernel: RowKernel = shares.get(key) ?? {
    name: "maxPoolGradient",
    inputs: [upstream, "i32", sum],
    outputs: [{ dtype: sum, per: "element" }],
    scalars: ["i32"],
    stages: [{ kind: "store", output: 0, value: term.add(term.load(2, compute), share) }],
  };
  shares.set(key, kernel);
  return kernel;
}

function addWhereChosen(
  lowering: Lowering,
  number: number,
  { upstream, chosen, sum }: Readonly<Record<"upstream" | "chosen" | "sum", DeviceArray>>,
): void {
  if (!upstream.storage || !chosen.storage || !sum.storage) return;
  lowering.row({
    kernel: shareKernel(upstream.dtype, sum.dtype),
    iteration: iterateElements(
      sum.shape,
      [upstream, chosen, sum, sum].map(({ strides }) => strides),
    ),
    operands: [upstream.storage, chosen.storage, sum.storage, sum.storage],
    scalars: [number],
  });
}
