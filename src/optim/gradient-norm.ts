/**
 * The norm of several vectors as one, and the factor that brings it down to a limit. Powers are added up in f64, part by
 * part in a fixed order: f32 can't hold the squares of large gradients, and the same gradients give the same bits.
 */

import {
  type Dtype,
  dtypes,
  type Expression,
  iterateRows,
  launchRows,
  type RowKernel,
  term,
} from "../kernels/index.js";
import type { DeviceArray, KernelOp, Lowering } from "../ops/index.js";
import type { Storage } from "../runtime/index.js";
import { wideOf } from "./update-rule.js";

export type GradientNormAttributes = {
  /** Above 0; Infinity is the largest magnitude. */
  readonly normType: number;
  readonly maxNorm: number;
};

/** What is added to the norm before dividing by it, as in PyTorch. */
const guard = 1e-6;
const partLength = 1 << 12;

/**
 * Operands: contiguous vectors. Outputs: the norm in f64, and the factor min(1, maxNorm / (norm + 1e-6)) in f64 and in
 * f32. Where the norm is infinite or NaN the factor is 1: no gradient is ever scaled to zero for having overflowed.
 */
export const gradientNorm: KernelOp<GradientNormAttributes> = {
  kind: "kernel",
  name: "gradientNorm",
  noGradient: "it measures gradients",
  infer: () => [
    { shape: [], dtype: "f64" },
    { shape: [], dtype: "f64" },
    { shape: [], dtype: "f32" },
  ],
  lower(lowering, operands, outputs, { normType, maxNorm }) {
    const vectors = operands.filter((operand) => typeof operand === "object");
    const counts = vectors.map(({ shape }) => Math.ceil((shape[0] ?? 0) / partLength));
    const parts = counts.reduce((sum, count) => sum + count, 0);
    const partials = lowering.scratch(Math.max(1, parts) * dtypes.f64.bytes); // f64 [parts]
    if (parts === 0) lowering.runtime.fill(partials, 0);
    let at = 0;
    for (const [index, vector] of vectors.entries()) {
      reduceVector(lowering, vector, normType, partials, at);
      at += counts[index] ?? 0;
    }
    const targets = outputs.flatMap(({ storage }) => storage ?? []);
    launchRows(lowering.runtime, {
      kernel: finishKernel(kindOf(normType)),
      iteration: iterateRows([Math.max(1, parts)], [[1], ...targets.map(() => [0])], 1),
      operands: [partials, ...targets],
      scalars: [1 / normType, maxNorm],
    });
  },
};

/** Reduces one vector to its parts: the whole ones first, then what is left. */
function reduceVector(
  lowering: Lowering,
  { storage, dtype, shape }: DeviceArray,
  normType: number,
  partials: Storage,
  at: number,
): void {
  if (!storage) return;
  const length = shape[0] ?? 0;
  const whole = Math.floor(length / partLength);
  reduceParts(0, whole, partLength, at);
  reduceParts(whole * partLength, 1, length - whole * partLength, at + whole);

  function reduceParts(first: number, rows: number, size: number, target: number): void {
    if (!storage || rows * size === 0) return;
    const { bytes } = dtypes[dtype];
    const source = lowering.view(storage, first * bytes, rows * size * bytes);
    const sums = lowering.view(partials, target * dtypes.f64.bytes, rows * dtypes.f64.bytes);
    const strides = [
      [size, 1],
      [1, 0],
    ];
    launchRows(lowering.runtime, {
      kernel: partKernel(kindOf(normType), dtype),
      iteration: iterateRows([rows, size], strides, 1),
      operands: [source, sums],
      scalars: [normType],
    });
  }
}

type NormKind = "euclidean" | "sum" | "largest" | "power";

function kindOf(normType: number): NormKind {
  if (normType === 2) return "euclidean";
  if (normType === 1) return "sum";
  return normType === Infinity ? "largest" : "power";
}

/** What is reduced of an element's magnitude, and what the reduction's result becomes. */
const formulas: Readonly<Record<NormKind, readonly [of: Formula, finish: Formula]>> = {
  euclidean: [(x) => term.mul(x, x), (sum) => term.sqrt(sum)],
  sum: [(x) => x, (sum) => sum],
  largest: [(x) => x, (largest) => largest],
  power: [(x) => term.pow(x, term.scalar(0, "f64")), (sum) => term.pow(sum, term.scalar(0, "f64"))],
};
type Formula = (x: Expression) => Expression;

const reduceOpOf = (kind: NormKind): "max" | "add" => (kind === "largest" ? "max" : "add");

const partKernels = new Map<string, RowKernel>();
const finishKernels = new Map<NormKind, RowKernel>();

function partKernel(kind: NormKind, dtype: Dtype): RowKernel {
  const key = `${kind} ${dtype}`;
  const [formula] = formulas[kind];
  const magnitude = term.abs(term.convert(term.load(0, wideOf(dtype)), "f64"));
  const kernel: RowKernel = partKernels.get(key) ?? {
    name: "gradientNorm of parts",
    inputs: [dtype],
    outputs: [{ dtype: "f64", per: "row" }],
    scalars: ["f64"],
    stages: [
      { kind: "reduce", op: reduceOpOf(kind), value: formula(magnitude) },
      { kind: "store", output: 0, value: term.reduced(0, "f64") },
    ],
  };
  partKernels.set(key, kernel);
  return kernel;
}

/** Scalars: 1 / normType, maxNorm. */
function finishKernel(kind: NormKind): RowKernel {
  const known = finishKernels.get(kind);
  if (known) return known;
  const [, finish] = formulas[kind];
  const norm = finish(term.reduced(0, "f64"));
  const wanted = term.min(term.div(term.scalar(1, "f64"), term.add(norm, guard)), 1);
  // Neither infinity nor NaN is below infinity.
  const factor = term.select(term.lt(norm, Infinity), wanted, 1);
  const kernel: RowKernel = {
    name: "gradientNorm",
    inputs: ["f64"],
    outputs: [
      { dtype: "f64", per: "row" },
      { dtype: "f64", per: "row" },
      { dtype: "f32", per: "row" },
    ],
    scalars: ["f64", "f64"],
    stages: [
      { kind: "reduce", op: reduceOpOf(kind), value: term.load(0, "f64") },
      { kind: "store", output: 0, value: norm },
      { kind: "store", output: 1, value: factor },
      { kind: "store", output: 2, value: term.convert(factor, "f32") },
    ],
  };
  finishKernels.set(kind, kernel);
  return kernel;
}
