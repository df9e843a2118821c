/** What functions of linear algebra check: shapes of batches before they compute, and singular matrices after it. */

import { HoldfastError } from "../../errors/index.js";
import { dtypes } from "../../ir/index.js";
import { capabilitiesOf } from "../../kernels/index.js";
import { broadcastShapes, formatShape, type Shape } from "../../ops/index.js";
import type { Tensor } from "../tensor.js";

/** The difference from 1 to the next number, by dtype: the default of relative tolerances. */
const epsilons: Readonly<Record<string, number>> = {
  ...{ f64: 2 ** -52, f32: 2 ** -23, f16: 2 ** -10, bf16: 2 ** -7 },
};

/** The tolerance for singular values that count as 0, relative to the largest one. */
export function defaultTolerance({ dtype, shape }: Tensor): number {
  return (epsilons[dtype] ?? 0) * Math.max(shape.at(-1) ?? 0, shape.at(-2) ?? 0);
}

export function requireMatrix(op: string, a: Tensor): void {
  if (a.ndim >= 2) return;
  throw new HoldfastError(
    "BAD_SHAPE",
    `${op}: ${formatShape(a.shape)} is no matrix; pass [..., rows, columns].`,
    { numbers: { op } },
  );
}

/** A matrix that a decomposition or a solver takes: of floats, on a CPU. */
export function requireDecomposable(op: string, a: Tensor): void {
  requireMatrix(op, a);
  if (dtypes[a.dtype].kind !== "float") {
    throw new HoldfastError("BAD_DTYPE", `${op} of ${a.dtype}: it needs floats. Convert with to("f64").`, {
      numbers: { op },
    });
  }
  if (capabilitiesOf(a.device.runtime).runsHostKernels) return;
  throw new HoldfastError(
    "UNSUPPORTED",
    `${op}: decompositions and solvers run on the CPU. Read the matrix with data(), and compute on a tensor of device("cpu").`,
    { numbers: { op } },
  );
}

export function requireSquare(op: string, a: Tensor): void {
  requireDecomposable(op, a);
  if (a.size(-1) === a.size(-2)) return;
  throw new HoldfastError("BAD_SHAPE", `${op}: ${formatShape(a.shape)}: the matrices must be square.`, {
    numbers: { op },
  });
}

/** Two batches of matrices with the same leading axes, to which both broadcast. */
export function broadcastBatches(op: string, a: Tensor, b: Tensor): readonly [Tensor, Tensor] {
  requireMatrix(op, a);
  requireMatrix(op, b);
  const leading = broadcastShapes(op, [a.shape.slice(0, -2), b.shape.slice(0, -2)]);
  const spread = (x: Tensor): Tensor => x.expand([...leading, ...x.shape.slice(-2)]);
  return [spread(a), spread(b)];
}

/**
 * Rejects the first matrix of a batch with a number other than 0 in `info`. A compiled step can't read while it is traced: there the results of such
 * a matrix are NaN.
 */
export function requireRegular(op: string, info: Tensor, why: (code: number) => string): void {
  if (info.device.runtime.isTracing) return;
  const codes = info.dataSync();
  const index = codes.findIndex((code) => code !== 0);
  const code = codes[index];
  if (code === undefined) return;
  const which =
    info.ndim === 0 ? "the matrix" : `matrix ${formatShape(placeOf(index, info.shape))} of the batch`;
  throw new HoldfastError("SINGULAR_MATRIX", `${op}: ${which} ${why(code)}`, {
    numbers: { op, index, code },
  });
}

function placeOf(index: number, shape: Shape): Shape {
  const place: number[] = [];
  let rest = index;
  for (const size of shape.toReversed()) {
    place.unshift(rest % size);
    rest = Math.floor(rest / size);
  }
  return place;
}

export const isSingular = (pivot: number): string =>
  `is singular: pivot ${pivot} is 0. Add a multiple of the identity, or use linalg.lstsq or linalg.pinv.`;
