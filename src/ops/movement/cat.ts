/** cat and stack: concatenate arrays. */

import { HoldfastError } from "../../errors/index.js";
import { promote } from "../../ir/index.js";
import { copyArray } from "../copy.js";
import { channelsLastStrides, hasChannelsLast } from "../device-array.js";
import { fitToOperand } from "../gradients.js";
import { arrayAt, type CompositeOp, type KernelOp, type OperandType, typeAt, type ValueType } from "../op.js";
import { axisOf, badShape, formatShape, isSameShape, type Shape } from "../shape.js";
import { reshape } from "./reshape.js";
import { type Range, slice, slicedView } from "./slice.js";
import { viewStrided } from "./strided-view.js";

type AxisAttribute = { readonly axis: number };

/** Concatenates along an existing axis. The other axes are equal, and dtypes are promoted. */
export const cat: KernelOp<AxisAttribute> = {
  kind: "kernel",
  name: "cat",
  infer(operands, { axis }) {
    const [first, ...rest] = typesOf("cat", operands);
    const catAxis = axisOf("cat", axis, first.shape.length);
    for (const { shape } of rest) requireEqualOtherAxes(first.shape, shape, catAxis);
    const length = [first, ...rest].reduce((sum, { shape }) => sum + (shape[catAxis] ?? 0), 0);
    const dtype = rest.reduce((promoted, type) => promote(promoted, type.dtype), first.dtype);
    return [{ shape: first.shape.with(catAxis, length), dtype }];
  },
  outputStrides(_, operands, [type]) {
    const isLast = operands.every((_operand, index) => hasChannelsLast(arrayAt(operands, index)));
    return [type && isLast ? channelsLastStrides(type.shape) : undefined];
  },
  gradient(rule) {
    const gradients = [];
    let start = 0;
    // Every operand has at least one axis; the type after the last operand has none.
    for (let index = 0; rule.typeOf(index).shape.length > 0; index++) {
      const { shape } = rule.typeOf(index);
      const catAxis = axisOf("cat", rule.attributes.axis, shape.length);
      const end = start + (shape[catAxis] ?? 0);
      const ranges = rangeOn(catAxis, start, end);
      gradients[index] = rule.needs(index)
        ? fitToOperand(rule, rule.apply(slice, [rule.upstream], { ranges }), index)
        : undefined;
      start = end;
    }
    return gradients;
  },
  lower(lowering, operands, [output], { axis }) {
    if (!output?.storage) return;
    const catAxis = axisOf("cat", axis, output.shape.length);
    let start = 0;
    for (const index of operands.keys()) {
      const array = arrayAt(operands, index);
      const end = start + (array.shape[catAxis] ?? 0);
      const target = viewStrided(lowering, output, slicedView(output, rangeOn(catAxis, start, end)));
      copyArray(lowering, array, target);
      start = end;
    }
  },
};

/** Concatenates arrays of one shape along a new axis. */
export const stack: CompositeOp<AxisAttribute> = {
  kind: "composite",
  name: "stack",
  infer(operands, { axis }) {
    const [first, ...rest] = typesOf("stack", operands);
    const other = rest.find(({ shape }) => !isSameShape(shape, first.shape));
    if (other) {
      throw badShape(
        "stack",
        `shapes ${formatShape(first.shape)} and ${formatShape(other.shape)}; they must be equal. cat concatenates along an existing axis.`,
      );
    }
    const stackAxis = axisOf("stack", axis, first.shape.length + 1);
    const dtype = rest.reduce((promoted, type) => promote(promoted, type.dtype), first.dtype);
    return [{ shape: first.shape.toSpliced(stackAxis, 0, operands.length), dtype }];
  },
  compose({ apply, typeOf }, operands, { axis }) {
    const expanded = operands.map((operand) => {
      const { shape } = typeOf(operand);
      const stackAxis = axisOf("stack", axis, shape.length + 1);
      return apply(reshape, [operand], { shape: shape.toSpliced(stackAxis, 0, 1) });
    });
    return [apply(cat, expanded, { axis })];
  },
};

function rangeOn(axis: number, start: number, end: number): readonly Range[] {
  return [...new Array<Range>(axis).fill(null), [start, end]];
}

function typesOf(op: string, operands: readonly OperandType[]): readonly [ValueType, ...ValueType[]] {
  const [first, ...rest] = operands.map((_, index) => typeAt(op, operands, index));
  if (first) return [first, ...rest];
  throw new HoldfastError("BAD_ARGUMENT", `${op} takes at least one tensor, but got none.`);
}

function requireEqualOtherAxes(first: Shape, other: Shape, axis: number): void {
  const isEqual =
    first.length === other.length && first.every((size, index) => index === axis || size === other[index]);
  if (isEqual) return;
  throw badShape(
    "cat",
    `shapes ${formatShape(first)} and ${formatShape(other)} along axis ${axis}: all other axes must be equal.`,
  );
}
