/**
 * groupNorm: normalises each group of channels of each batch of [N, C, …] to mean 0 and variance 1, then applies an optional weight and an
 * optional bias for each channel. With as many groups as channels it is an instance norm.
 */

import { HoldfastError } from "../../errors/index.js";
import { type ColumnKernel, dtypes, iterateRows, type RowKernel, term } from "../../ir/index.js";
import { contiguousStrides, type DeviceArray, keptStrides } from "../device-array.js";
import { arrayAt, type KernelOp, type Lowering, typeAt, type ValueType } from "../op.js";
import { fillWith } from "../reduction/reduce.js";
import { cacheByDtypes } from "../row-lowering.js";
import { sizeOf } from "../shape.js";
import { normalizeKernel } from "./batch-norm.js";
import { gradientRowKernel } from "./channel-gradients.js";
import { contiguousOf, inferChannels, loadAs, lowerElements, type Per } from "./channels.js";
import { areColumns, lowerColumnStatistics, lowerColumnSums } from "./group-columns.js";
import { recordedGradients } from "./recorded-gradients.js";

/** `eps` is added to the variance. */
export type GroupNormAttributes = { readonly groups: number; readonly eps?: number };

const defaultEps = 1e-5;

/** Scalars: 1 / length and eps. */
const rowStatisticsKernel = cacheByDtypes((dtype = "f32"): RowKernel => {
  const { compute } = dtypes[dtype];
  const x = term.load(0, compute);
  const [inverseLength, eps] = [term.scalar(0, compute), term.scalar(1, compute)];
  const mean = term.mul(term.reduced(0, compute), inverseLength);
  const centred = term.sub(x, mean);
  const variance = term.mul(term.reduced(1, compute), inverseLength);
  const output = { dtype: compute, per: "row" } as const;
  return {
    name: "group statistics",
    inputs: [dtype],
    outputs: [output, output],
    scalars: [compute, compute],
    stages: [
      { kind: "reduce", op: "add", value: x },
      { kind: "reduce", op: "add", value: term.mul(centred, centred) },
      { kind: "store", output: 0, value: mean },
      { kind: "store", output: 1, value: term.div(1, term.sqrt(term.add(variance, eps))) },
    ],
  };
});

interface GroupStatistics {
  /** Contiguous [N, G], in the compute dtype. */
  readonly mean: DeviceArray;
  readonly inverseStd: DeviceArray;
  readonly groups: number;
  readonly eps: number;
}

function lowerStatistics(lowering: Lowering, x: DeviceArray, statistics: GroupStatistics): void {
  if (areColumns(lowering, x)) lowerColumnStatistics(lowering, x, statistics);
  else lowerRowStatistics(lowering, x, statistics);
}

function lowerRowStatistics(
  lowering: Lowering,
  x: DeviceArray,
  { mean, inverseStd, eps }: GroupStatistics,
): void {
  const count = sizeOf(mean.shape);
  const length = sizeOf(x.shape) / count;
  lowering.row({
    kernel: rowStatisticsKernel(x.dtype),
    iteration: iterateRows(
      [count, length],
      [
        [length, 1],
        [1, 0],
        [1, 0],
      ],
      1,
    ),
    operands: [contiguousOf(lowering, x), mean, inverseStd].flatMap(({ storage }) => storage ?? []),
    scalars: [1 / length, eps],
  });
}

function groupType({ shape, dtype }: ValueType, groups: number): ValueType {
  return { shape: [shape[0] ?? 1, groups], dtype: dtypes[dtype].compute };
}

const pers: readonly Per[] = ["element", "group", "group", "channel", "channel"];

/** Operands: x, the optional weight, the optional bias. Further outputs: mean and 1 / σ of each group, [N, G]. */
export const groupNorm: KernelOp<GroupNormAttributes> = {
  kind: "kernel",
  name: "groupNorm",
  infer(operands, { groups }) {
    const type = inferChannels("groupNorm", operands, ["weight", "bias"]);
    const channels = type.shape[1] ?? 0;
    if (!(Number.isSafeInteger(groups) && groups >= 1 && channels % groups === 0)) {
      throw new HoldfastError(
        "BAD_ARGUMENT",
        `groupNorm: ${channels} channels in ${groups} groups. The number of groups must divide the number of channels.`,
        { numbers: { channels, groups } },
      );
    }
    return [type, groupType(type, groups), groupType(type, groups)];
  },
  outputStrides: (_, [x], [type]) => [x !== undefined && type ? keptStrides([x], type.shape) : undefined],
  saves: ([needsX = false, ...others]) => ({
    operands: needsX && others.length > 0 ? [0, 1] : [0],
    outputs: [1, 2],
  }),
  gradient(rule) {
    const { groups, eps = defaultEps } = rule.attributes;
    if (rule.isRecorded) {
      const [batch = 1, channels = 1, ...positions] = rule.typeOf(0).shape;
      const width = channels / groups;
      const shape = [batch, groups, width, ...positions];
      const axes = [...shape.keys()].slice(2);
      const affineShape = [1, groups, width, ...positions.map(() => 1)];
      return recordedGradients(rule, { shape, axes, affineShape, eps, isCentred: true });
    }
    const saved = [rule.upstream, rule.operand(0), rule.output(1), rule.output(2)];
    const sums = rule.applyAll(groupGradientSums, saved, { groups });
    const weight = rule.needs(0) && rule.operandCount > 1 ? [rule.operand(1)] : [];
    const affine = [1, 2].filter((index) => index < rule.operandCount && rule.needs(index));
    const affineGradients =
      affine.length > 0
        ? rule.applyAll(batchSums, sums.toReversed(), {
            dtypes: [1, 2].map((index) => rule.typeOf(Math.min(index, rule.operandCount - 1)).dtype),
          })
        : [];
    return [
      rule.needs(0) ? rule.apply(groupNormGradient, [...saved, ...sums, ...weight], { groups }) : undefined,
      ...[1, 2].map((index) => (affine.includes(index) ? affineGradients[index - 1] : undefined)),
    ];
  },
  lower(lowering, operands, [output, mean, inverseStd], { groups, eps = defaultEps }) {
    const [x = arrayAt(operands, 0), ...affine] = operands.map((_, index) => arrayAt(operands, index));
    if (!output || !mean || !inverseStd) return;
    if (!x.storage) {
      for (const statistic of [mean, inverseStd]) fillWith(lowering, statistic, Number.NaN);
      return;
    }
    lowerStatistics(lowering, x, { mean, inverseStd, groups, eps });
    const arrays = [x, mean, inverseStd, ...affine];
    lowerElements(
      lowering,
      normalizeKernel(...arrays.map(({ dtype }) => dtype)),
      arrays.map((array, index) => ({ array, per: pers[index] ?? "channel" })),
      output,
      { groups },
    );
  },
};

/** Operands: upstream, x, mean, 1 / σ. Outputs: sums over the elements of each channel of each batch, [N, C]. */
const groupGradientSums: KernelOp<{ readonly groups: number }> = {
  kind: "kernel",
  name: "groupGradientSums",
  noGradient: "a recorded gradient is composed of other ops",
  infer(operands) {
    const { shape, dtype } = typeAt("groupGradientSums", operands, 1);
    const sum = { shape: shape.slice(0, 2), dtype: dtypes[dtype].compute };
    return [sum, sum];
  },
  lower(lowering, operands, outputs, { groups }) {
    const [mean, inverseStd] = [arrayAt(operands, 2), arrayAt(operands, 3)];
    if (!arrayAt(operands, 0).storage) {
      for (const output of outputs) fillWith(lowering, output, 0);
      return;
    }
    if (areColumns(lowering, arrayAt(operands, 1))) {
      const statistics = { mean, inverseStd, groups };
      lowerColumnSums(lowering, arrayAt(operands, 0), arrayAt(operands, 1), statistics, outputs);
      return;
    }
    const [upstream = mean, x = mean] = [0, 1].map((index) =>
      contiguousOf(lowering, arrayAt(operands, index)),
    );
    const [batch = 1, channels = 1, ...positions] = x.shape;
    const [width, length] = [channels / groups, sizeOf(positions)];
    const elements = [channels * length, width * length, length, 1];
    const perGroup = [groups, 1, 0, 0];
    const perChannel = [channels, width, 1, 0];
    lowering.row({
      kernel: gradientRowKernel(upstream.dtype, x.dtype, mean.dtype, inverseStd.dtype),
      iteration: iterateRows(
        [batch, groups, width, length],
        [elements, elements, perGroup, perGroup, perChannel, perChannel],
        1,
      ),
      operands: [upstream, x, mean, inverseStd, ...outputs].flatMap(({ storage }) => storage ?? []),
    });
  },
};

const batchSumKernel = cacheByDtypes((dtype = "f32", ...outputs): ColumnKernel => {
  const { compute } = dtypes[dtype];
  return {
    name: "batch sums",
    inputs: [dtype, dtype],
    outputs,
    scalars: [],
    op: "add",
    values: [term.load(0, compute), term.load(1, compute)],
  };
});

/** Sums two contiguous arrays [N, C] over the batch, in one pass. */
const batchSums: KernelOp<{ readonly dtypes: readonly ValueType["dtype"][] }> = {
  kind: "kernel",
  name: "batchSums",
  noGradient: "a recorded gradient is composed of other ops",
  infer(operands, { dtypes }) {
    const { shape } = typeAt("batchSums", operands, 0);
    return dtypes.map((dtype) => ({ shape: shape.slice(1), dtype }));
  },
  lower(lowering, operands, outputs) {
    const arrays = [arrayAt(operands, 0), arrayAt(operands, 1)];
    const [rows = 0, columns = 0] = arrays[0]?.shape ?? [];
    if (rows === 0 || columns === 0) {
      for (const output of outputs) fillWith(lowering, output, 0);
      return;
    }
    const stride = { row: columns, column: "unit" } as const;
    lowering.column({
      kernel: batchSumKernel(arrays[0]?.dtype ?? "f32", ...outputs.map(({ dtype }) => dtype)),
      rows,
      columns,
      strides: [stride, stride],
      operands: [...arrays, ...outputs].flatMap(({ storage }) => storage ?? []),
    });
  },
};

/** The sums of each group, with the channels' weights. Inputs: both sums, and the optional weight. */
const groupSumKernel = cacheByDtypes((dtype = "f32", ...weights): RowKernel => {
  const { compute } = dtypes[dtype];
  const [weight] = weights.map((weightDtype) => loadAs(compute, weightDtype, 2));
  const output = { dtype, per: "row" } as const;
  const weighted = (index: number) => {
    const sum = term.load(index, compute);
    return weight ? term.mul(sum, weight) : sum;
  };
  return {
    name: "group sums",
    inputs: [dtype, dtype, ...weights],
    outputs: [output, output],
    scalars: [],
    stages: [
      { kind: "reduce", op: "add", value: weighted(0) },
      { kind: "reduce", op: "add", value: weighted(1) },
      { kind: "store", output: 0, value: term.reduced(0, compute) },
      { kind: "store", output: 1, value: term.reduced(1, compute) },
    ],
  };
});

/** Inputs: upstream, x, mean, 1 / σ, both sums of the group, and the optional weight. Scalar: 1 / length. */
const inputGradientKernel = cacheByDtypes(
  (upstream = "f32", x = "f32", dtype = "f32", ...weights): RowKernel => {
    const { compute } = dtypes[x];
    const [mean, inverseStd, sum, projection] = [2, 3, 4, 5].map((index) =>
      loadAs(compute, dtype, index),
    ) as [
      ReturnType<typeof loadAs>,
      ReturnType<typeof loadAs>,
      ReturnType<typeof loadAs>,
      ReturnType<typeof loadAs>,
    ];
    const [weight] = weights.map((weightDtype) => loadAs(compute, weightDtype, 6));
    const inverseLength = term.scalar(0, compute);
    const normalized = term.mul(term.sub(term.load(1, compute), mean), inverseStd);
    const load = loadAs(compute, upstream, 0);
    const centred = term.sub(
      term.sub(weight ? term.mul(load, weight) : load, term.mul(sum, inverseLength)),
      term.mul(normalized, term.mul(projection, inverseLength)),
    );
    return {
      name: "groupNormGradient",
      inputs: [upstream, x, dtype, dtype, dtype, dtype, ...weights],
      outputs: [{ dtype: x, per: "element" }],
      scalars: [compute],
      stages: [{ kind: "store", output: 0, value: term.mul(centred, inverseStd) }],
    };
  },
);

const gradientPers: readonly Per[] = ["element", "element", "group", "group", "group", "group", "channel"];

/** Operands: upstream, x, mean, 1 / σ, both sums of `groupGradientSums`, and the optional weight. */
const groupNormGradient: KernelOp<{ readonly groups: number }> = {
  kind: "kernel",
  name: "groupNormGradient",
  noGradient: "a recorded gradient is composed of other ops",
  infer: (operands) =>
    [typeAt("groupNormGradient", operands, 1)].map(({ shape, dtype }) => ({ shape, dtype })),
  outputStrides: (_, [, x], [type]) => [x !== undefined && type ? keptStrides([x], type.shape) : undefined],
  lower(lowering, operands, [output], { groups }) {
    const arrays = operands.map((_, index) => arrayAt(operands, index));
    const [upstream, x, mean, inverseStd, sum, projection, weight] = arrays;
    if (!output?.storage || !upstream || !x || !mean || !inverseStd || !sum || !projection) return;
    const [batch = 1, channels = 1] = x.shape;
    const width = channels / groups;
    const perGroup = groupType(x, groups);
    const groupSums: readonly DeviceArray[] = [0, 1].map(() =>
      lowering.scratchArray(perGroup.shape, perGroup.dtype),
    );
    const rowStrides = contiguousStrides([batch, groups, width]);
    const weights = weight ? [weight] : [];
    lowering.row({
      kernel: groupSumKernel(sum.dtype, ...weights.map(({ dtype }) => dtype)),
      iteration: iterateRows(
        [batch, groups, width],
        [rowStrides, rowStrides, ...weights.map(() => [0, width, 1]), [groups, 1, 0], [groups, 1, 0]],
        1,
      ),
      operands: [
        sum,
        projection,
        ...weights.map((array) => contiguousOf(lowering, array)),
        ...groupSums,
      ].flatMap(({ storage }) => storage ?? []),
    });
    const inputs = [upstream, x, mean, inverseStd, ...groupSums, ...weights];
    lowerElements(
      lowering,
      inputGradientKernel(upstream.dtype, x.dtype, mean.dtype, ...weights.map(({ dtype }) => dtype)),
      inputs.map((array, index) => ({ array, per: gradientPers[index] ?? "channel" })),
      output,
      { groups, scalars: [1 / (sizeOf(x.shape) / (batch * groups))] },
    );
  },
};
