/**
 * Two-phase grouped reductions: launches the first phase (partials) as soon as its inputs are ready, so that it can run on a side
 * stream; the short combine phase stays at the end of the group. Each reduction keeps the bits that it has alone.
 */

import { capabilitiesOf, isSplitReduction } from "../../kernels/index.js";
import type { Runtime } from "../../runtime/index.js";
import type { Call, ColumnCall, GroupedReduceCall, PartialReduceCall } from "../program/program.js";
import { accesses, isWriting } from "../program/uses.js";
import { scratchMaker } from "./group-reductions.js";

export function splitReductions(runtime: Runtime, calls: readonly Call[]): readonly Call[] {
  if (!capabilitiesOf(runtime).combinesKernels) return calls;
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

/** The reductions of a group whose inputs are ready before the group, and the index for their first phase: after the last grouped GEMM. */
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
  const lastGemms = calls.findLastIndex(({ work }) => work.kind === "grouped-gemm");
  const place = Math.max(lastGemms + 1, ...early.map(({ readyAt }) => readyAt));
  return { kind: "partial-reduce", columns: begun, scratch, place };
}

/** True if a call writes an input of the reduction. */
function isWrittenBy({ kernel, operands }: ColumnCall, call: Call): boolean {
  return accesses(call, operands.slice(0, kernel.inputs.length), isWriting);
}
