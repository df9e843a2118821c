/** Bias and activation after a GEMM that fuses neither: a separate elementwise pass over C, in place. */

import type { Expression, RowKernel } from "../../../ir/index.js";
import { iterateElements, term } from "../../../ir/index.js";
import type { RowLaunch } from "../../kernel-call.js";
import type { GemmProblem } from "../desc.js";
import type { GemmDtype } from "./element.js";

type Activation = NonNullable<GemmProblem["activation"]>;

/** Undefined if the GEMM has neither bias nor activation. */
export function epilogueLaunch(problem: GemmProblem, op: string): RowLaunch | undefined {
  const { dtype, m, n, batch = 1, c, bias, biasBatchStride = 0, activation } = problem;
  if (!bias && !activation) return undefined;
  const strides = [c.batchStride ?? 0, c.rowStride, 1];
  return {
    kernel: kernelOf(dtype, bias !== undefined, activation, op),
    iteration: iterateElements([batch, m, n], [strides, ...(bias ? [[biasBatchStride, 0, 1]] : []), strides]),
    operands: [c.storage, ...(bias ? [bias] : []), c.storage],
  };
}

const activations: Readonly<Record<Activation, (x: Expression) => Expression>> = {
  relu: (x) => term.max(x, 0),
  gelu: (x) => {
    const inner = term.mul(
      term.add(term.mul(term.mul(term.mul(x, x), x), 0.044715), x),
      Math.sqrt(2 / Math.PI),
    );
    return term.mul(term.mul(x, 0.5), term.add(term.tanh(inner), 1));
  },
};

const kernels = new Map<string, RowKernel>();

function kernelOf(
  dtype: GemmDtype,
  hasBias: boolean,
  activation: Activation | undefined,
  op: string,
): RowKernel {
  const key = `${dtype} ${hasBias} ${activation} ${op}`;
  const cached = kernels.get(key);
  if (cached) return cached;
  const element = term.load(0, dtype);
  const biased = hasBias ? term.add(element, term.load(1, dtype)) : element;
  const kernel: RowKernel = {
    name: op,
    inputs: hasBias ? [dtype, dtype] : [dtype],
    outputs: [{ dtype, per: "element" }],
    scalars: [],
    stages: [{ kind: "store", output: 0, value: activation ? activations[activation](biased) : biased }],
  };
  kernels.set(key, kernel);
  return kernel;
}
