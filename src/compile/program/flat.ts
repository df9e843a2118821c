/** Elementwise calls over contiguous memory. Their work can be done part by part. */

import { factsOf } from "../../ir/index.js";
import type { RowCall } from "./program.js";

/** True for an elementwise kernel over contiguous memory and single values. A draw has no memory that could be split. */
export function isFlat({ kernel, iteration }: RowCall): boolean {
  const { isElementwise, usesPosition, readsAtIndex, hasDraws } = factsOf(kernel);
  const { outer, row } = iteration;
  if (!isElementwise || usesPosition || hasDraws || outer.length > 0 || readsAtIndex) return false;
  return row.strides.every(
    (stride, operand) => stride === 1 || (stride === 0 && operand < kernel.inputs.length),
  );
}

/** The work of a flat call on some of its elements. */
export function sliceFlat(work: RowCall, start: number, count: number): RowCall {
  const { kernel, iteration, operands } = work;
  const { bytes } = factsOf(kernel);
  return {
    ...work,
    iteration: { ...iteration, row: { ...iteration.row, size: count }, elements: count },
    operands: operands.map((slice, operand) => {
      if (iteration.row.strides[operand] === 0) return slice;
      const size = bytes[operand] ?? 1;
      return { buffer: slice.buffer, offset: slice.offset + start * size, size: count * size };
    }),
  };
}
