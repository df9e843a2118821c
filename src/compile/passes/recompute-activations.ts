/**
 * On a GPU, large values that a row kernel made in forward are computed again in backward, if this lowers the memory peak by much: the
 * activation after a wide GEMM, for example. A kernel soon after the first reader often reads the same input, as the activation's
 * gradient does. It then stores the value again, so that recomputing costs a store, and the reader follows it.
 */

import { capabilitiesOf } from "../../kernels/index.js";
import type { Runtime } from "../../runtime/index.js";
import { comboLimits, maxReaderDelay, minRecomputedShare } from "../cost-model.js";
import { keepsColumnSums } from "../fusion/column-reductions.js";
import { combine, rowsOf } from "../fusion/vertical/combine.js";
import { fusionNodeOf } from "../fusion/vertical/fusion-node.js";
import { joinNames } from "../fusion/vertical/kernel-memo.js";
import type { Call, Node, Program } from "../program/program.js";
import { isReading, isWriting } from "../program/uses.js";
import { rematerialize } from "./rematerialize.js";

export function recomputeActivations(runtime: Runtime, program: Program): void {
  if (!capabilitiesOf(runtime).prefersMemoryOverRecompute) return;
  const limits = { minBytes: comboLimits(runtime.device).largeBytes, minGain: minRecomputedShare };
  for (const node of rematerialize(program, limits)) fuseWithReader(runtime, program, node);
}

/** Computes a recomputed value in a later kernel that reads the same input, if its readers can wait for that kernel. */
function fuseWithReader(runtime: Runtime, program: Program, node: Node): void {
  const readers = node.accesses
    .filter(isWriting)
    .flatMap(({ slice }) => program.uses(slice.buffer).readers.filter((reader) => reader !== node));
  for (const other of laterReadersOfInputs(program, node)) {
    const waiting = [...new Set(readers)].filter((reader) => reader.isBefore(other));
    if (readers.includes(other) || waiting.length === 0) continue;
    const call = fusedCall(runtime, node, other);
    if (!call || !waiting.every((reader) => canFollow(program, reader, other))) continue;
    for (const reader of waiting.sort((a, b) => (a.isBefore(b) ? 1 : -1))) program.moveAfter(reader, other);
    program.remove(node);
    program.replace(other, call);
    return;
  }
}

/** Row kernels soon after a node that read one of its inputs, before any of its inputs changes. */
function laterReadersOfInputs(program: Program, node: Node): readonly Node[] {
  const inputs = node.accesses.filter(isReading).map(({ slice }) => slice.buffer);
  const uses = inputs.map((buffer) => program.uses(buffer));
  const isIntact = (until: Node): boolean =>
    uses.every(({ writers }) => !writers.some((writer) => node.isBefore(writer) && !until.isBefore(writer)));
  return uses
    .flatMap(({ readers }) => readers)
    .filter((reader) => node.isBefore(reader) && reader.call.work.kind === "row")
    .filter((reader) => program.distance(node, reader) <= maxReaderDelay && isIntact(reader));
}

function canFollow(program: Program, node: Node, other: Node): boolean {
  const consumer = program.firstConsumerOf(node);
  return !consumer || other.isBefore(consumer);
}

function fusedCall(runtime: Runtime, node: Node, other: Node): Call | undefined {
  const members = [fusionNodeOf(node.call), fusionNodeOf(other.call)].filter(
    (member) => member !== undefined,
  );
  if (members.length < 2 || other.calls.length > 1) return undefined;
  const draft = combine(members, () => true, capabilitiesOf(runtime));
  const work = draft && rowsOf(draft);
  if (!work || !keepsColumnSums(runtime, other.call.work, work)) return undefined;
  return { ...other.call, op: joinNames([node.call.op, other.call.op]), work };
}
