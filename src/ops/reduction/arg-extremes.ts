/** argmax and argmin: the index of the largest or the smallest element, along one axis or in the flattened array. */

import { dtypes, type RowKernel, term } from "../../ir/index.js";
import { arrayAt, type KernelOp, typeAt } from "../op.js";
import { cacheByDtypes, lowerRows } from "../row-lowering.js";
import { axesOf } from "../shape.js";
import { reducedType, requireElements } from "./rule.js";

/** `axis`: default: the flattened array. */
export type ArgExtremeAttributes = {
  readonly axis?: number;
  readonly keepsAxes?: boolean;
};

const maxIndex = 2 ** 31 - 1;

/** Of equal elements the first index; the first NaN if there is one, as in PyTorch. */
function argExtreme(name: "argmax" | "argmin", op: "max" | "min"): KernelOp<ArgExtremeAttributes> {
  const kernelFor = cacheByDtypes((dtype = "f32"): RowKernel => {
    const { compute } = dtypes[dtype];
    const x = term.load(0, compute);
    // NaN equals nothing. If a row has a NaN its extreme is NaN too, and only NaNs match.
    const isExtreme = term.max(term.eq(x, term.reduced(0, compute)), term.ne(x, x));
    const index = term.select(isExtreme, term.position, term.constant(maxIndex, "i32"));
    return {
      name,
      inputs: [dtype],
      outputs: [{ dtype: "i32", per: "row" }],
      scalars: [],
      stages: [
        { kind: "reduce", op, value: x },
        { kind: "reduce", op: "min", value: index },
        { kind: "store", output: 0, value: term.reduced(1, "i32") },
      ],
    };
  });
  return {
    kind: "kernel",
    name,
    noGradient: "an index has no derivative",
    infer(operands, { axis, keepsAxes = false }) {
      const attributes = { keepsAxes, ...(axis !== undefined && { axes: axis }) };
      requireElements(name, typeAt(name, operands, 0).shape, attributes);
      return [reducedType(name, operands, attributes, "i32")];
    },
    lower(lowering, operands, outputs, { axis }) {
      const input = arrayAt(operands, 0);
      const { shape, dtype } = input;
      const axes = axesOf(name, axis, shape.length);
      lowerRows(lowering, { kernel: kernelFor(dtype), shape, axes, inputs: [input], outputs });
    },
  };
}

export const argmax = argExtreme("argmax", "max");
export const argmin = argExtreme("argmin", "min");
