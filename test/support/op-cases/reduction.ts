/** Cases of the reductions: over one axis, several, none and all, kept or not. */

import fc from "fast-check";
import type { Shape } from "../../../src/ops/index.js";
import { mean, type ReductionAttributes, sum } from "../../../src/ops/index.js";
import { anyShape, call, operand, someAxes } from "./draw.js";
import { type OpCase, opCase } from "./op-case.js";

/** All axes without naming them, or some, counted from either end. */
export function anyReduction(shape: Shape): fc.Arbitrary<ReductionAttributes> {
  return fc.oneof(
    fc.record({ keepsAxes: fc.boolean() }),
    fc.record({ axes: someAxes(shape), keepsAxes: fc.boolean() }),
    ...(shape.length > 0
      ? [fc.record({ axes: fc.integer({ min: -shape.length, max: shape.length - 1 }) })]
      : []),
  );
}

export const reductionCases: readonly OpCase[] = [
  ...[sum, mean].map((op) =>
    opCase({
      op,
      gradients: [0],
      draw: (elements) =>
        anyShape({ elements }).chain((shape) => call([operand(shape)], anyReduction(shape))),
    }),
  ),
];
