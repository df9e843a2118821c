/** cat and stack: several arrays as one. */

import { HoldfastError } from "../../errors/index.js";
import { promote } from "../../ir/index.js";
import { copyArray } from "../copy.js";
import { fitToOperand } from "../gradients.js";
import { arrayAt, type CompositeOp, type KernelOp, type OperandType, typeAt, type ValueType } from "../op.js";
import { axisOf, badShape, formatShape, isSameShape, type Shape } from "../shape.js";
import { viewStrided } from "./part.js";
import { reshape } from "./reshape.js";
import { type Range, slice, slicedView } from "./slice.js";

type AxisAttribute = { readonly axis: number };

/** Side by side along an axis that is there; the other axes are equal. Dtypes meet by promotion. */
export const cat: KernelOp<AxisAttribute> = {
  kind: "kernel",
  name: "cat",
  infer(operands, { axis }) {
    const [first, ...rest] = typesOf("cat", operands);
    const place = axisOf("cat", axis, first.shape.length);
    for (const { shape } of rest) requireEqualBeside(first.shape, shape, place);
    const length = [first, ...rest].reduce((sum, { shape }) => sum + (shape[place] ?? 0), 0);
    const dtype = rest.reduce((meeting, one) => promote(meeting, one.dtype), first.dtype);
    return [{ shape: first.shape.with(place, length), dtype }];
  },
  gradient(rule) {
    const gradients = [];
    let start = 0;
    // No operand has no axes: behind the last one there is only a shape of none.
    for (let index = 0; rule.typeOf(index).shape.length > 0; index++) {
      const { shape } = rule.typeOf(index);
      const place = axisOf("cat", rule.attributes.axis, shape.length);
      const end = start + (shape[place] ?? 0);
      const ranges = rangeOn(place, start, end);
      gradients[index] = rule.needs(index)
        ? fitToOperand(rule, rule.apply(slice, [rule.upstream], { ranges }), index)
        : undefined;
      start = end;
    }
    return gradients;
  },
  lower(lowering, operands, [output], { axis }) {
    if (!output?.storage) return;
    const place = axisOf("cat", axis, output.shape.length);
    let start = 0;
    for (const index of operands.keys()) {
      const array = arrayAt(operands, index);
      const end = start + (array.shape[place] ?? 0);
      const part = viewStrided(lowering, output, slicedView(output, rangeOn(place, start, end)));
      copyArray(lowering, array, part);
      start = end;
    }
  },
};

/** Side by side along a new axis; all of one shape. */
export const stack: CompositeOp<AxisAttribute> = {
  kind: "composite",
  name: "stack",
  infer(operands, { axis }) {
    const [first, ...rest] = typesOf("stack", operands);
    const other = rest.find(({ shape }) => !isSameShape(shape, first.shape));
    if (other) {
      throw badShape(
        "stack",
        `shapes ${formatShape(first.shape)} and ${formatShape(other.shape)}; they must be equal. cat joins along an axis that is there.`,
      );
    }
    const place = axisOf("stack", axis, first.shape.length + 1);
    const dtype = rest.reduce((meeting, one) => promote(meeting, one.dtype), first.dtype);
    return [{ shape: first.shape.toSpliced(place, 0, operands.length), dtype }];
  },
  compose({ apply, typeOf }, operands, { axis }) {
    const parts = operands.map((operand) => {
      const { shape } = typeOf(operand);
      const place = axisOf("stack", axis, shape.length + 1);
      return apply(reshape, [operand], { shape: shape.toSpliced(place, 0, 1) });
    });
    return [apply(cat, parts, { axis })];
  },
};

function rangeOn(axis: number, start: number, end: number): readonly Range[] {
  return [...new Array<Range>(axis).fill(null), [start, end]];
}

function typesOf(op: string, operands: readonly OperandType[]): readonly [ValueType, ...ValueType[]] {
  const [first, ...rest] = operands.map((_, index) => typeAt(op, operands, index));
  if (first) return [first, ...rest];
  throw new HoldfastError("BAD_ARGUMENT", `${op} takes one tensor or more, and was given none.`);
}

function requireEqualBeside(first: Shape, other: Shape, axis: number): void {
  const isEqual =
    first.length === other.length && first.every((size, place) => place === axis || size === other[place]);
  if (isEqual) return;
  throw badShape(
    "cat",
    `shapes ${formatShape(first)} and ${formatShape(other)} along axis ${axis}: all other axes must be equal.`,
  );
}
