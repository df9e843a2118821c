/**
 * Begins reductions whose operands are there long before all of their group's are. Nobody waits for them, so that they can run
 * beside others: what takes a launch over much memory goes aside, and a short one at the end joins what that has left. Each has the
 * bits that it has alone.
 */

import { isSplitReduction } from "../../kernels/index.js";
import type { Runtime } from "../../runtime/index.js";
import type { Call, ColumnCall, GroupedReduceCall, PartialReduceCall } from "../program/program.js";
import { isWriting, meets } from "../program/uses.js";
import { scratchMaker } from "./group-reductions.js";

export function splitReductions(runtime: Runtime, calls: readonly Call[]): readonly Call[] {
  if (runtime.device.kind !== "cuda") return calls;
  const scratchFor = scratchMaker(calls);
  const made: Call[] = [];
  for (const call of calls) {
    const { work } = call;
    const begun = work.kind === "grouped-reduce" ? partialsIn(work, made, scratchFor) : undefined;
    if (work.kind !== "grouped-reduce" || !begun) {
      made.push(call);
      continue;
    }
    const { place, ...early } = begun;
    const columns = work.columns.filter((one) => !early.columns.includes(one));
    const scratch = scratchFor(columns);
    made.splice(place, 0, { ...call, work: early });
    made.push({
      ...call,
      work: { kind: "grouped-reduce", columns, partials: early, ...(scratch && { scratch }) },
    });
  }
  return made;
}

/** What of a group can be begun before the last of these calls, and where: behind products that nobody waits for either, or at once. */
function partialsIn(
  { columns }: GroupedReduceCall,
  calls: readonly Call[],
  scratchFor: ReturnType<typeof scratchMaker>,
): (PartialReduceCall & { readonly place: number }) | undefined {
  const early = columns
    .filter(isSplitReduction)
    .map((column) => ({ column, readyAt: 1 + calls.findLastIndex((call) => isWrittenBy(column, call)) }))
    .filter(({ readyAt }) => readyAt < calls.length);
  const begun = early.map(({ column }) => column);
  const scratch = scratchFor(begun);
  if (!scratch) return undefined;
  const beside = calls.findLastIndex(({ work }) => work.kind === "grouped-gemm");
  const place = Math.max(beside + 1, ...early.map(({ readyAt }) => readyAt));
  return { kind: "partial-reduce", columns: begun, scratch, place };
}

/** Does a call write what a reduction reads? */
function isWrittenBy({ kernel, operands }: ColumnCall, call: Call): boolean {
  return meets(call, operands.slice(0, kernel.inputs.length), isWriting);
}
