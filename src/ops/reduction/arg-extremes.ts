/** Where the largest or the smallest element stands: along one axis, or in the whole array's order. */

import { dtypes, type RowKernel, term } from "../../ir/index.js";
import { arrayAt, type KernelOp, typeAt } from "../op.js";
import { forDtypes, passRows } from "../row-pass.js";
import { axesOf } from "../shape.js";
import { reducedType, requireElements } from "./rule.js";

/** `axis`: the place is counted over the whole array where none is named. */
export type PlaceAttributes = {
  readonly axis?: number;
  readonly keepsAxes?: boolean;
};

const beyondAll = 2 ** 31 - 1;

/** The first of equal elements; the first NaN where there is one, as in PyTorch. */
function place(name: "argmax" | "argmin", op: "max" | "min"): KernelOp<PlaceAttributes> {
  const kernelFor = forDtypes((dtype = "f32"): RowKernel => {
    const { compute } = dtypes[dtype];
    const x = term.load(0, compute);
    // NaN equals nothing, and where there is one the extreme is NaN too: then only NaNs are found.
    const isFound = term.max(term.eq(x, term.reduced(0, compute)), term.ne(x, x));
    const at = term.select(isFound, term.position, term.constant(beyondAll, "i32"));
    return {
      name,
      inputs: [dtype],
      outputs: [{ dtype: "i32", per: "row" }],
      scalars: [],
      stages: [
        { kind: "reduce", op, value: x },
        { kind: "reduce", op: "min", value: at },
        { kind: "store", output: 0, value: term.reduced(1, "i32") },
      ],
    };
  });
  return {
    kind: "kernel",
    name,
    noGradient: "a place has no slope",
    infer(operands, { axis, keepsAxes = false }) {
      const attributes = { keepsAxes, ...(axis !== undefined && { axes: axis }) };
      requireElements(name, typeAt(name, operands, 0).shape, attributes);
      return [reducedType(name, operands, attributes, "i32")];
    },
    lower(lowering, operands, outputs, { axis }) {
      const input = arrayAt(operands, 0);
      const { shape, dtype } = input;
      const axes = axesOf(name, axis, shape.length);
      passRows(lowering, { kernel: kernelFor(dtype), shape, axes, inputs: [input], outputs });
    },
  };
}

export const argmax = place("argmax", "max");
export const argmin = place("argmin", "min");
