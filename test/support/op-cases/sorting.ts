/** Cases of sorting. Floats are distinct, by more than the step of a difference. */

import fc from "fast-check";
import { sort } from "../../../src/ops/index.js";
import { anyAxis, anyShape, call, operand, whole } from "./arbitraries.js";
import { type OpCase, opCase } from "./op-case.js";

const draw = (elements: number, options: Parameters<typeof operand>[1]) =>
  anyShape({ elements, axes: [1, 4] }).chain((shape) =>
    call([operand(shape, options)], fc.record({ axis: anyAxis(shape), isDescending: fc.boolean() })),
  );

export const sortingCases: readonly OpCase[] = [
  opCase({ op: sort, gradients: [0], draw: (elements) => draw(elements, { isDistinct: true }) }),
  opCase({
    op: sort,
    what: "of integers with ties",
    gradients: "none",
    draw: (elements) => draw(elements, { dtype: "i32", values: whole(-3, 3) }),
  }),
];
