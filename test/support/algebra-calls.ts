/** How each case of the algebra oracle, in PyTorch's terms, is called here. */

import { blockDiag, cdist, einsum, eye, linalg, pdist, type Tensor, tensordot } from "holdfast";

/** The arguments besides the tensors, as the oracle's script passed them. */
export type Arguments = readonly unknown[];

export type AlgebraCall = (operands: readonly Tensor[], args: Arguments) => Tensor | readonly Tensor[];

/** A method of tensors: the first operand's, with the others and then the arguments. */
function method(name: string): AlgebraCall {
  return ([x, ...others], args) => {
    const member = (x as unknown as Record<string, (...rest: unknown[]) => Tensor>)[name];
    return member!.apply(x, [...others, ...args]);
  };
}

function sumOfProducts(name: string): AlgebraCall {
  return (operands, [beta, alpha]) => method(name)(operands, [{ beta, alpha }]);
}

/** JSON has no infinity. */
const norm = (p: unknown) => ({ p: p === "inf" ? Number.POSITIVE_INFINITY : (p as number) });

export const algebraCalls: Readonly<Record<string, AlgebraCall>> = {
  einsum: (operands, [equation]) => einsum(equation as string, ...operands),
  tensordot: ([a, b], [axes]) => tensordot(a!, b!, axes as number),
  ...Object.fromEntries(
    ["mv", "dot", "vdot", "inner", "outer", "kron", "cross", "trace", "dist", "renorm"].map((name) => [
      name,
      method(name),
    ]),
  ),
  ...Object.fromEntries(
    ["addmm", "addmv", "addr", "baddbmm", "addbmm"].map((name) => [name, sumOfProducts(name)]),
  ),
  cdist: ([a, b], [p]) => cdist(a!, b!, norm(p)),
  pdist: ([x], [p]) => pdist(x!, norm(p)),
  block_diag: (operands) => blockDiag(...operands),
  "linalg.solve": ([a, b]) => linalg.solve(a!, b!),
  "linalg.solve_right": ([a, b]) => linalg.solve(a!, b!, { left: false }),
  "linalg.solve_triangular": ([a, b], [upper, left, unitriangular]) =>
    linalg.solveTriangular(a!, b!, {
      upper: upper as boolean,
      left: left as boolean,
      unitriangular: unitriangular as boolean,
    }),
  "linalg.inv": ([a]) => linalg.inv(a!),
  // The oracle has one case of a product without full rank, of a matrix of 3 rows.
  "linalg.pinv": ([a]) => linalg.pinv(isOfProduct(a!) ? a!.matmul(a!.t()) : a!),
  "linalg.matrix_rank": ([a]) => linalg.matrixRank(a!),
  "linalg.lstsq": ([a, b]) => linalg.lstsq(a!, b!).solution,
  "linalg.det": ([a]) => linalg.det(isOfProduct(a!) ? a!.matmul(a!.t()) : a!),
  "linalg.slogdet": ([a]) => Object.values(linalg.slogdet(a!)),
  "linalg.logdet": ([a]) => a!.logdet(),
  "linalg.cholesky": ([a], [upper]) => linalg.cholesky(positive(a!), { upper: upper as boolean }),
  "linalg.cholesky_solve": ([b, a]) => linalg.choleskySolve(b!, linalg.cholesky(positive(a!))),
  "linalg.cholesky_inverse": ([a]) => linalg.choleskyInverse(linalg.cholesky(positive(a!))),
  "linalg.lu": ([a]) => Object.values(linalg.lu(a!)),
  "linalg.lu_factor": ([a]) => Object.values(linalg.luFactor(a!)),
  "linalg.lu_solve": ([a, b]) => {
    const { LU, pivots } = linalg.luFactor(a!);
    return linalg.luSolve(LU, pivots, b!);
  },
  "linalg.qr": ([a]) => Object.values(linalg.qr(a!)),
  "linalg.eigh": ([a]) => {
    const { eigenvalues, eigenvectors } = linalg.eigh(a!);
    return [eigenvalues, eigenvectors.square()];
  },
  "linalg.eigvalsh": ([a]) => linalg.eigvalsh(a!),
  "linalg.svd": ([a]) => {
    const { U, S, Vh } = linalg.svd(a!, { fullMatrices: false });
    return [U.square(), S, Vh.square()];
  },
  "linalg.svdvals": ([a]) => linalg.svdvals(a!),
  "linalg.cond": ([a], [ord]) => linalg.cond(a!, { ord: ord as number }),
  "linalg.matrix_norm": ([a], [ord]) => linalg.matrixNorm(a!, { ord: order(ord) }),
  "linalg.vector_norm": ([a], [ord, axes]) =>
    linalg.vectorNorm(a!, { ord: order(ord) as number, axes: axes as number }),
  "linalg.norm": ([a]) => linalg.norm(a!),
  "linalg.multi_dot": (operands) => linalg.multiDot(operands),
  "linalg.matrix_power": ([a], [n]) => a!.matrixPower(n as number),
  "linalg.matrix_exp": ([a]) => a!.matrixExp(),
  "linalg.vecdot": ([x, y]) => linalg.vecdot(x!, y!),
  "linalg.vander": ([x], [n]) => linalg.vander(x!, { n: n as number }),
  "linalg.tensorinv": ([a], [ind]) => linalg.tensorinv(a!, { ind: ind as number }),
  "linalg.tensorsolve": ([a, b]) => linalg.tensorsolve(a!, b!),
};

const infinities: Readonly<Record<string, number>> = {
  inf: Number.POSITIVE_INFINITY,
  "-inf": Number.NEGATIVE_INFINITY,
};

const order = (ord: unknown): number | "fro" | "nuc" => infinities[ord as string] ?? (ord as number);

const isOfProduct = (a: Tensor): boolean => a.ndim === 2 && a.size(0) === 3 && a.size(1) === 2;

const positive = (a: Tensor): Tensor => {
  const { device, dtype } = a;
  return a.matmul(a.transpose(-2, -1)).add(eye(a.size(-1), a.size(-1), { device, dtype }));
};
