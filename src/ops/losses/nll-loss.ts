/** nllLoss: the negative log probability of each row's class, from log probabilities. crossEntropy computes it from logits. */

import { type Dtype, dtypes, type Expression, type RowKernel, term } from "../../ir/index.js";
import type { DeviceArray } from "../device-array.js";
import { arrayAt, type KernelOp } from "../op.js";
import {
  type ClassLossAttributes,
  checkLabels,
  classRowsOf,
  classStride,
  defaultIgnoreIndex,
  inferClassRows,
  labelTerms,
  launchClassRows,
  lowerTotal,
  perClass,
  perElement,
  perRow,
  rejectWeightGradient,
} from "./class-rows.js";
import * as recorded from "./recorded-gradients.js";

interface Variant {
  readonly input: Dtype;
  readonly target: Dtype;
  readonly weight: Dtype | undefined;
  readonly isMean: boolean;
}

const kernels = new Map<string, RowKernel>();

function kernelOf(name: string, variant: Variant, more: string, make: () => RowKernel): RowKernel {
  const key = [name, ...Object.values(variant), more].join(" ");
  const kernel = kernels.get(key) ?? make();
  kernels.set(key, kernel);
  return kernel;
}

/**
 * Inputs: log probabilities, target, weights. Outputs for each row: the loss, and for a mean the row's weight. Scalars: the ignored
 * label, the strides from class to class in the input and in the weights, and the number of classes.
 */
function forwardKernel(variant: Variant, loss: Dtype): RowKernel {
  return kernelOf("nllLoss", variant, loss, () => {
    const { input, target, weight, isMean } = variant;
    const { compute } = dtypes[input];
    const weightAt = (classIndex: Expression): Expression =>
      term.load(2, dtypes[weight ?? input].compute, term.mul(classIndex, term.scalar(2, "i32")));
    const limits = { ignored: term.scalar(0, "i32"), classes: term.scalar(3, compute) };
    const row = labelTerms(compute, limits, weight && weightAt, term.index(1, target));
    const targetLogProbability = term.load(0, compute, term.mul(row.classIndex, term.scalar(1, "i32")));
    const value = term.select(
      row.isCounted,
      term.neg(term.mul(row.weight, targetLogProbability)),
      term.constant(0, compute),
    );
    return {
      name: "nllLoss",
      inputs: [input, target, ...(weight ? [weight] : [])],
      outputs: [loss, ...(isMean ? [compute] : [])].map((dtype) => ({ dtype, per: "row" })),
      scalars: ["i32", "i32", "i32", compute],
      stages: [
        { kind: "store", output: 0, value },
        ...(isMean ? [{ kind: "store", output: 1, value: row.weight } as const] : []),
      ],
    };
  });
}

/** The row's gradient is negative at the target and 0 elsewhere. Inputs: the upstream gradient, target, weights, for a mean its divisor. */
function backwardKernel(variant: Variant, upstream: Dtype): RowKernel {
  return kernelOf("nllLossGradient", variant, upstream, () => {
    const { input, target, weight, isMean } = variant;
    const { compute } = dtypes[input];
    const label = term.index(1, target);
    // The weight of the element's class: at the target, this is the target's weight.
    const classWeight = weight
      ? term.convert(term.load(2, dtypes[weight].compute), compute)
      : term.constant(1, compute);
    const upstreamLoad = term.convert(term.load(0, dtypes[upstream].compute), compute);
    const scaledUpstream = isMean ? term.div(upstreamLoad, term.load(weight ? 3 : 2, compute)) : upstreamLoad;
    const isTarget = term.min(term.eq(term.position, label), term.ne(label, term.scalar(0, "i32")));
    const value = term.select(
      isTarget,
      term.neg(term.mul(scaledUpstream, classWeight)),
      term.constant(0, compute),
    );
    return {
      name: "nllLossGradient",
      inputs: [upstream, target, ...(weight ? [weight] : []), ...(isMean ? [compute] : [])],
      outputs: [{ dtype: input, per: "element" }],
      scalars: ["i32"],
      stages: [{ kind: "store", output: 0, value }],
    };
  });
}

function variantOf(
  operands: readonly (DeviceArray | number)[],
  input: Dtype,
  { reduction = "mean" }: ClassLossAttributes,
): Variant {
  const weight = operands[2];
  return {
    input,
    target: arrayAt(operands, 1).dtype,
    weight: typeof weight === "object" ? weight.dtype : undefined,
    isMean: reduction === "mean",
  };
}

/** Operands: log probabilities [N, C], [N, C, …] or [C]; labels of that shape without the classes; optional weights [C]. */
export const nllLoss: KernelOp<ClassLossAttributes> = {
  kind: "kernel",
  name: "nllLoss",
  infer(operands, { reduction = "mean" }) {
    const { input, rows } = inferClassRows("nllLoss", operands);
    return [
      { shape: reduction === "none" ? rows.kept : [], dtype: input.dtype },
      ...(reduction === "mean" ? [{ shape: [], dtype: dtypes[input.dtype].compute }] : []),
    ];
  },
  check: checkLabels,
  saves: (_, { reduction = "mean" }) => ({ operands: [1, 2], outputs: reduction === "mean" ? [1] : [] }),
  gradient(rule) {
    if (rule.needs(2)) rejectWeightGradient("nllLoss");
    const { reduction = "mean" } = rule.attributes;
    if (rule.isRecorded) {
      return [recorded.nllLossGradient(rule, reduction === "mean" ? rule.constantOutput(1) : undefined)];
    }
    const hasWeights = rule.typeOf(2).shape.length > 0;
    const operands = [
      rule.upstream,
      rule.operand(1),
      hasWeights ? rule.operand(2) : 1,
      ...(reduction === "mean" ? [rule.output(1)] : []),
    ];
    return [rule.apply(nllLossGradient, operands, { ...rule.attributes, input: rule.typeOf(0) })];
  },
  lower(lowering, operands, [output, divisor], attributes) {
    const [input, target] = [arrayAt(operands, 0), arrayAt(operands, 1)];
    if (!output) return;
    const weights = operands.slice(2).filter((operand) => typeof operand === "object");
    const { compute } = dtypes[input.dtype];
    const rows = classRowsOf(input.shape);
    const isUnreduced = attributes.reduction === "none";
    const losses = isUnreduced ? output : lowering.scratchArray(rows.kept, compute);
    const rowWeights = divisor && lowering.scratchArray(rows.kept, compute);
    if (input.storage) {
      const kernel = forwardKernel(variantOf(operands, input.dtype, attributes), losses.dtype);
      const inputs = [perElement(input), perRow(target), ...weights.map(perClass)];
      const rowOutputs = [losses, ...(rowWeights ? [rowWeights] : [])].map(perRow);
      const { ignoreIndex = defaultIgnoreIndex } = attributes;
      const strides = [classStride(input, rows), weights[0]?.strides[0] ?? 0];
      const scalars = [ignoreIndex, ...strides, rows.classes];
      launchClassRows(lowering, rows, kernel, [...inputs, ...rowOutputs], scalars);
    }
    if (!isUnreduced) lowerTotal(lowering, { losses, weights: rowWeights }, output, divisor);
  },
};

type GradientAttributes = ClassLossAttributes & {
  readonly input: { readonly shape: readonly number[]; readonly dtype: Dtype };
};

/** Operands: the upstream gradient, labels, weights or 1, and a mean's divisor. */
const nllLossGradient: KernelOp<GradientAttributes> = {
  kind: "kernel",
  name: "nllLossGradient",
  noGradient: "a recorded gradient is composed of other ops",
  infer: (_, { input: { shape, dtype } }) => [{ shape, dtype }],
  lower(lowering, operands, [output], attributes) {
    const [upstream, target] = [arrayAt(operands, 0), arrayAt(operands, 1)];
    if (!output?.storage) return;
    const weights = operands.slice(2, 3).filter((operand) => typeof operand === "object");
    const variant = variantOf(operands, output.dtype, attributes);
    const divisor = variant.isMean ? [arrayAt(operands, 3)] : [];
    launchClassRows(
      lowering,
      classRowsOf(output.shape),
      backwardKernel(variant, upstream.dtype),
      [
        perRow(upstream),
        perRow(target),
        ...weights.map(perClass),
        ...divisor.map(perRow),
        perElement(output),
      ],
      [attributes.ignoreIndex ?? defaultIgnoreIndex],
    );
  },
};
