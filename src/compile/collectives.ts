/** The collectives of a step. They must be the same on every rank, in the same order. */

import type { Runtime } from "../runtime/index.js";
import { accessesOf, type Call } from "./program/program.js";

/** Each with the bytes of its operands. */
export function collectivesIn(runtime: Runtime, calls: readonly Call[]): readonly string[] {
  return calls.flatMap((call) => {
    const { work } = call;
    if (work.kind !== "launch" || !runtime.isCollective(work.kernel)) return [];
    const sizes = accessesOf(call).map(({ slice }) => `${slice.size} bytes`);
    return [`${work.kernel.name} (${sizes.join(", ")})`];
  });
}
