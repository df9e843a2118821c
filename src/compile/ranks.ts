/** What the ranks of a run compare before they run a step together: the collectives, and the work of the step. */

import type { Runtime } from "../runtime/index.js";
import { accessesOf, type Call } from "./program/program.js";
import type { Trace } from "./trace/trace.js";

export function isCollective(runtime: Runtime, { work }: Call): boolean {
  return work.kind === "launch" && runtime.isCollective(work.kernel);
}

/** The collectives, each with the bytes of its operands. They must be the same on every rank, in the same order. */
export function collectivesIn(runtime: Runtime, calls: readonly Call[]): readonly string[] {
  return calls.flatMap((call) => {
    const { work } = call;
    if (work.kind !== "launch" || !isCollective(runtime, call)) return [];
    const sizes = accessesOf(call).map(({ slice }) => `${slice.size} bytes`);
    return [`${work.kernel.name} (${sizes.join(", ")})`];
  });
}

/** The ops of a step with their types, and its other calls, without those that depend on the rank. */
export function workLines({
  calls,
  ops,
  rankParts,
}: Pick<Trace<unknown>, "calls" | "ops" | "rankParts">): readonly string[] {
  const lines: string[] = [];
  const isOfRank = (position: number): boolean =>
    rankParts.some(({ from, to }) => from <= position && position < to);
  let next = 0;
  const addOthers = (until: number): void => {
    for (; next < until; next++) if (!isOfRank(next)) lines.push(calls[next]?.op ?? "");
  };
  for (const { name, operands, outputs, from, to } of ops) {
    addOthers(from);
    if (from < to && !isOfRank(from)) lines.push(`${name}(${operands.join(", ")}) → ${outputs.join(", ")}`);
    next = to;
  }
  addOthers(calls.length);
  return lines;
}
