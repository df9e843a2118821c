/** A few calls of a case that are worth their time. */

import fc from "fast-check";
import type { CaseCall, OpCase } from "./op-case.js";

/** fast-check begins with the smallest values, most of them without an element: many are drawn, and few kept. */
const drawsOfACall = 4;

/** This many calls with elements, if the case has them, and one without. */
export function drawCalls(
  { draw }: OpCase,
  { elements, seed, count }: { readonly elements: number; readonly seed: number; readonly count: number },
): readonly CaseCall[] {
  const drawn = fc.sample(draw(elements), { seed, numRuns: drawsOfACall * count });
  const full = drawn.filter((call) => !isEmpty(call)).slice(-count);
  return [...full, ...drawn.filter(isEmpty).slice(0, 1)];
}

function isEmpty({ operands }: CaseCall): boolean {
  return operands.some((operand) => typeof operand === "object" && operand.values.length === 0);
}
