/**
 * The total norm of several vectors, and the clipping factor. Powers are summed in f64, because f32 cannot hold the squares of large
 * gradients. Chunks are summed in a fixed order, so the same gradients give the same bits.
 */

import {
  type ChunkedReduceKernel,
  type Dtype,
  dtypes,
  type Expression,
  iterateRows,
  type RowKernel,
  term,
} from "../ir/index.js";
import { type ChunkedReduceLaunch, chunkCount } from "../kernels/index.js";
import type { DeviceArray, KernelOp } from "../ops/index.js";
import { momentDtype } from "./update-rule.js";

export type GradientNormAttributes = {
  /** Above 0; Infinity is the largest magnitude. */
  readonly normType: number;
  readonly maxNorm: number;
};

/** Added to the norm before the division, as in PyTorch. */
const normEps = 1e-6;

/**
 * Operands: contiguous vectors. Outputs: the norm in f64, and the factor min(1, maxNorm / (norm + 1e-6)) in f64 and in
 * f32. If the norm is infinite or NaN, the factor is 1: an overflow never scales gradients to zero.
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
    const vectors = operands.flatMap(toVector);
    const countAll = (group: readonly Vector[]): number =>
      group.reduce((sum, { length }) => sum + chunkCount(length), 0);
    const totalChunks = countAll(vectors);
    const partials = lowering.scratch(Math.max(1, totalChunks) * dtypes.f64.bytes); // f64 [totalChunks]
    if (totalChunks === 0) lowering.fill(partials, 0);
    let firstChunk = 0;
    for (const dtype of new Set(vectors.map((vector) => vector.dtype))) {
      const group = vectors.filter((vector) => vector.dtype === dtype);
      const chunks = countAll(group);
      lowering.chunkedReduce({
        kernel: chunkedReduceKernel(normKind(normType), dtype),
        vectors: group,
        results: lowering.view(partials, firstChunk * dtypes.f64.bytes, chunks * dtypes.f64.bytes),
        scalars: [normType],
      });
      firstChunk += chunks;
    }
    const targets = outputs.flatMap(({ storage }) => storage ?? []);
    lowering.row({
      kernel: finishKernel(normKind(normType)),
      iteration: iterateRows([Math.max(1, totalChunks)], [[1], ...targets.map(() => [0])], 1),
      operands: [partials, ...targets],
      scalars: [1 / normType, maxNorm],
    });
  },
};

type Vector = ChunkedReduceLaunch["vectors"][number] & { readonly dtype: Dtype };

function toVector(operand: DeviceArray | number): Vector[] {
  if (typeof operand === "number" || !operand.storage) return [];
  const { storage, dtype, shape } = operand;
  return [{ storage, dtype, length: shape[0] ?? 0 }];
}

type NormKind = "euclidean" | "sum" | "largest" | "power";

function normKind(normType: number): NormKind {
  if (normType === 2) return "euclidean";
  if (normType === 1) return "sum";
  return normType === Infinity ? "largest" : "power";
}

/** The reduced function of an element's magnitude, and the function of the result. */
const formulas: Readonly<Record<NormKind, readonly [of: Formula, finish: Formula]>> = {
  euclidean: [(x) => term.mul(x, x), (sum) => term.sqrt(sum)],
  sum: [(x) => x, (sum) => sum],
  largest: [(x) => x, (largest) => largest],
  power: [(x) => term.pow(x, term.scalar(0, "f64")), (sum) => term.pow(sum, term.scalar(0, "f64"))],
};
type Formula = (x: Expression) => Expression;

const selectReduceOp = (kind: NormKind): "max" | "add" => (kind === "largest" ? "max" : "add");

const chunkedReduceKernels = new Map<string, ChunkedReduceKernel>();
const finishKernels = new Map<NormKind, RowKernel>();

function chunkedReduceKernel(kind: NormKind, dtype: Dtype): ChunkedReduceKernel {
  const key = `${kind} ${dtype}`;
  const [formula] = formulas[kind];
  const kernel: ChunkedReduceKernel = chunkedReduceKernels.get(key) ?? {
    name: "gradientNorm of chunks",
    dtype,
    scalars: ["f64"],
    op: selectReduceOp(kind),
    value: formula(term.abs(term.convert(term.load(0, momentDtype(dtype)), "f64"))),
    // All norms are of magnitudes, and the largest of none is 0.
    ignoresZeros: true,
  };
  chunkedReduceKernels.set(key, kernel);
  return kernel;
}

/** Scalars: 1 / normType, maxNorm. */
function finishKernel(kind: NormKind): RowKernel {
  const existing = finishKernels.get(kind);
  if (existing) return existing;
  const [, finish] = formulas[kind];
  const norm = finish(term.reduced(0, "f64"));
  const clipFactor = term.min(term.div(term.scalar(1, "f64"), term.add(norm, normEps)), 1);
  // Neither infinity nor NaN is below infinity.
  const factor = term.select(term.lt(norm, Infinity), clipFactor, 1);
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
      { kind: "reduce", op: selectReduceOp(kind), value: term.load(0, "f64") },
      { kind: "store", output: 0, value: norm },
      { kind: "store", output: 1, value: factor },
      { kind: "store", output: 2, value: term.convert(factor, "f32") },
    ],
  };
  finishKernels.set(kind, kernel);
  return kernel;
}
