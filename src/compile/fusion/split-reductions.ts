/**
 * Two-phase grouped reductions: launches the first phase (partials) as soon as its inputs are ready, so that it can run on a side
 * stream; the short combine phase stays at the end of the group. Each reduction keeps the bits that it has alone.
 */

import { capabilitiesOf, isSplitReduction } from "../../kernels/index.js";
import type { Runtime } from "../../runtime/index.js";
import { column as columnKind } from "../program/kinds/column.js";
import type { ColumnCall, GroupedReduceCall, Node, PartialReduceCall, Program } from "../program/program.js";
import { isReading } from "../program/uses.js";
import { scratchFor } from "./group-reductions.js";

export function splitReductions(runtime: Runtime, program: Program): void {
  if (!capabilitiesOf(runtime).combinesKernels) return;
  let lastGroupedGemm: Node | undefined;
  for (const node of program.nodes) {
    const { call } = node;
    if (call.work.kind === "grouped-gemm") lastGroupedGemm = node;
    if (call.work.kind !== "grouped-reduce") continue;
    const first = firstPhaseOf(program, node, call.work, lastGroupedGemm);
    if (!first) continue;
    const { anchor, partials } = first;
    const columns = call.work.columns.filter((column) => !partials.columns.includes(column));
    const scratch = scratchFor(program, columns);
    program.insertAfter(anchor, { ...call, work: partials });
    program.replace(node, {
      ...call,
      work: { kind: "grouped-reduce", columns, partials, ...(scratch && { scratch }) },
    });
  }
}

interface FirstPhase {
  /** The node to run after: the last one that it depends on, or the last grouped GEMM. Undefined: the start of the program. */
  readonly anchor: Node | undefined;
  readonly partials: PartialReduceCall;
}

/** The first phase of those reductions of a group whose inputs are ready before the group. */
function firstPhaseOf(
  program: Program,
  node: Node,
  { columns }: GroupedReduceCall,
  lastGroupedGemm: Node | undefined,
): FirstPhase | undefined {
  const writerOf = (column: ColumnCall): Node | undefined =>
    program.lastWriterOf(node, columnKind.accesses(column).filter(isReading));
  const ready = columns
    .filter(isSplitReduction)
    .map((column) => ({ column, writer: writerOf(column) }))
    .filter(({ writer }) => writer !== program.previous(node));
  const split = ready.map(({ column }) => column);
  const scratch = scratchFor(program, split);
  if (!scratch) return undefined;
  let anchor = lastGroupedGemm;
  for (const { writer } of ready) if (writer && !(anchor && writer.isBefore(anchor))) anchor = writer;
  return { anchor, partials: { kind: "partial-reduce", columns: split, scratch } };
}
