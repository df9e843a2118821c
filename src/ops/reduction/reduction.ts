/** What a reduction computes, for the kernels that compute it. */

import { type Compute, type Dtype, dtypes, type Expression, type ReduceOp, term } from "../../ir/index.js";

/** A reduction of a row to one value: `finish(reduce(op, value(x)) · factor)`. Kernels are cached by name. */
export interface Reduction {
  readonly name: string;
  readonly op: ReduceOp;
  /** The reduced value of one element. */
  readonly value: (x: Expression) => Expression;
  /** Applied to the total. Default: the identity function. */
  readonly finish?: (total: Expression) => Expression;
  /** The result for no elements, before the factor. */
  readonly identity: number;
}

/** The factor is scalar 0 of the kernel. */
export function applyFactor({ finish = (total) => total }: Reduction, total: Expression): Expression {
  return finish(term.mul(total, term.scalar(0, total.type)));
}

/** The accumulator's type: half floats and small integers are accumulated in a wider type. */
export function accumulatorType(reduction: Reduction, input: Dtype): Compute {
  return reduction.value(term.load(0, dtypes[input].compute)).type;
}
