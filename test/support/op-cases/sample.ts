/** A part of the cases, for tests that take long for each. */

import type { Op } from "../../../src/ops/index.js";
import { opCases } from "./index.js";
import type { OpCase } from "./op-case.js";

/** One case per op, and one per variant that several ops share, such as a number as the right operand. */
export function sampleCases(cases = opCases): readonly OpCase[] {
  const opsOf = (variant: string | undefined): number =>
    new Set(cases.filter(({ what }) => what === variant).map(({ op }) => op)).size;
  const ops = new Set<Op>();
  const variants = new Set<string | undefined>();
  return cases.filter(({ op, what }) => {
    const isNew = !ops.has(op) || (!variants.has(what) && opsOf(what) > 1);
    ops.add(op);
    variants.add(what);
    return isNew;
  });
}
