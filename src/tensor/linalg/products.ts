/** Products and powers of matrices. */

import { checkOptions, HoldfastError } from "../../errors/index.js";
import { formatShape, linearAlgebra as ops } from "../../ops/index.js";
import { eye, onesLike } from "../creation.js";
import { stack } from "../functions.js";
import type { Tensor } from "../tensor.js";
import { requireMatrix, requireSquare } from "./checks.js";
import { found, inv } from "./solvers.js";

/**
 * The product of matrices, in the order with the fewest multiplications. The first and the last may be vectors.
 *
 * @example
 * ```ts
 * import { device, linalg, ones } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(linalg.multiDot([ones([10, 2]), ones([2, 30]), ones([30])]).shape); // → [ 10 ]
 * cpu.close();
 * ```
 */
export function multiDot(tensors: readonly Tensor[]): Tensor {
  const [first, last] = [tensors[0], tensors.at(-1)];
  if (!first || !last) throw new HoldfastError("BAD_ARGUMENT", "linalg.multiDot takes one tensor or more.");
  const matrices = tensors.map((x, index) => {
    if (x.ndim === 1 && index === 0) return x.unsqueeze(0);
    if (x.ndim === 1 && index === tensors.length - 1) return x.unsqueeze(1);
    if (x.ndim === 2) return x;
    throw new HoldfastError(
      "BAD_SHAPE",
      `linalg.multiDot: tensor ${index} is ${formatShape(x.shape)}; pass matrices, and vectors only first and last.`,
      { numbers: { op: "linalg.multiDot" } },
    );
  });
  if (tensors.length === 1) return first;
  const product = chain(matrices);
  const shape = [
    ...(first.ndim === 1 ? [] : [product.size(0)]),
    ...(last.ndim === 1 ? [] : [product.size(1)]),
  ];
  return product.reshape(shape);
}

/** Dynamic programming over the ranges of the chain. */
function chain(matrices: readonly Tensor[]): Tensor {
  const sizes = [matrices[0]?.size(0) ?? 0, ...matrices.map((matrix) => matrix.size(1))];
  const costs = matrices.map(() => new Array<number>(matrices.length).fill(0));
  const splits = matrices.map(() => new Array<number>(matrices.length).fill(0));
  const costOf = (from: number, to: number): number => costs[from]?.[to] ?? 0;
  for (let length = 2; length <= matrices.length; length++) {
    for (let from = 0; from + length <= matrices.length; from++) {
      const to = from + length - 1;
      const options = Array.from({ length: length - 1 }, (_, index) => {
        const split = from + index;
        const multiplications = (sizes[from] ?? 0) * (sizes[split + 1] ?? 0) * (sizes[to + 1] ?? 0);
        return { split, cost: costOf(from, split) + costOf(split + 1, to) + multiplications };
      });
      const best = options.reduce((a, b) => (b.cost < a.cost ? b : a));
      found(costs[from])[to] = best.cost;
      found(splits[from])[to] = best.split;
    }
  }
  const multiply = (from: number, to: number): Tensor => {
    if (from === to) return found(matrices[from]);
    const split = splits[from]?.[to] ?? from;
    return multiply(from, split).matmul(multiply(split + 1, to));
  };
  return multiply(0, matrices.length - 1);
}

/**
 * A whole power of square matrices, by repeated squaring. A negative one is a power of the inverse.
 *
 * @example
 * ```ts
 * import { device, linalg, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(linalg.matrixPower(tensor([[1, 1], [0, 1]]), 5).tolist()); // → [ [ 1, 5 ], [ 0, 1 ] ]
 * cpu.close();
 * ```
 */
export function matrixPower(a: Tensor, n: number): Tensor {
  requireMatrix("linalg.matrixPower", a);
  if (!Number.isInteger(n) || a.size(-1) !== a.size(-2)) {
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `linalg.matrixPower of ${formatShape(a.shape)} to ${n}: pass square matrices and a whole number.`,
      { numbers: { n } },
    );
  }
  if (n < 0) return matrixPower(inv(a), -n);
  const { device, dtype, shape } = a;
  if (n === 0) return eye(a.size(-1), a.size(-1), { device, dtype }).expand(shape);
  const half = n > 1 ? matrixPower(a, Math.floor(n / 2)) : a;
  if (n === 1) return a;
  return n % 2 === 0 ? half.matmul(half) : half.matmul(half).matmul(a);
}

/**
 * e to the power of square matrices.
 *
 * @example
 * ```ts
 * import { device, linalg, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(linalg.matrixExp(tensor([[0, 1], [0, 0]])).tolist()); // → [ [ 1, 1 ], [ 0, 1 ] ]
 * cpu.close();
 * ```
 */
export function matrixExp(a: Tensor): Tensor {
  requireSquare("linalg.matrixExp", a);
  return a.device.apply(ops.matrixExponential, [a]);
}

/**
 * The sums of the products of two tensors along an axis. The other axes broadcast.
 *
 * @example
 * ```ts
 * import { device, linalg, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(linalg.vecdot(tensor([[1, 2], [3, 4]]), tensor([1, 10])).tolist()); // → [ 21, 43 ]
 * cpu.close();
 * ```
 */
export function vecdot(x: Tensor, y: Tensor, options: { readonly axis?: number } = {}): Tensor {
  const { axis = -1 } = checkOptions("linalg.vecdot", options, { axis: true });
  return x.mul(y).sum(axis);
}

/**
 * The powers of the elements from 0 to n − 1, along a new last axis. Default of n: the size of the last axis. The older `torch.vander` has the
 * powers in reverse.
 *
 * @example
 * ```ts
 * import { device, linalg, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(linalg.vander(tensor([2, 3]), { n: 3 }).tolist()); // → [ [ 1, 2, 4 ], [ 1, 3, 9 ] ]
 * cpu.close();
 * ```
 */
export function vander(x: Tensor, options: { readonly n?: number } = {}): Tensor {
  const { n = x.size(-1) } = checkOptions("linalg.vander", options, { n: true });
  if (!Number.isInteger(n) || n < 1) {
    throw new HoldfastError("BAD_ARGUMENT", `linalg.vander: ${n} powers; pass a whole number, 1 or more.`, {
      numbers: { n },
    });
  }
  const powers = [onesLike(x)];
  for (let power = 1; power < n; power++) powers.push(power === 1 ? x : found(powers[power - 1]).mul(x));
  return stack(powers, -1);
}
