/** How each case of the algebra oracle, in PyTorch's terms, is called here. */

import { blockDiag, cdist, einsum, pdist, type Tensor, tensordot } from "holdfast";

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
};
