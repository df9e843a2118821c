/**
 * On a GPU, large values that a row kernel made in forward are computed again in backward, if this lowers the memory peak by much: the
 * activation after a wide GEMM, for example. A kernel soon after the first reader often reads the same input, as the activation's
 * gradient does. It then stores the value again, so that recomputing costs a store, and the reader follows it.
 *
 * If no whole call is worth it, single outputs may be: the normalised rows of a fused add and layer norm, in the norm's gradient. They
 * are recomputed only in such kernels, and only as many as lower the peak by a given share.
 */

import { capabilitiesOf } from "../../kernels/index.js";
import type { Runtime } from "../../runtime/index.js";
import { comboLimits, maxReaderDelay, minRecomputedShare, recomputedOutputShare } from "../cost-model.js";
import { keepsColumnSums } from "../fusion/column-reductions.js";
import { combine, rowsOf } from "../fusion/vertical/combine.js";
import { fusionNodeOf } from "../fusion/vertical/fusion-node.js";
import { joinNames } from "../fusion/vertical/kernel-memo.js";
import { accessesOf, type Call, type Node, type Program } from "../program/program.js";
import { isReading, isWriting } from "../program/uses.js";
import { rematerialize, rematerializeOutputs } from "./rematerialize.js";

export function recomputeActivations(runtime: Runtime, program: Program): void {
  if (!capabilitiesOf(runtime).prefersMemoryOverRecompute) return;
  const minBytes = comboLimits(runtime.device).largeBytes;
  const nodes = rematerialize(program, { minBytes, minGain: minRecomputedShare });
  const outputs = nodes.length > 0 ? [] : recomputeOutputs(runtime, program, minBytes);
  for (const node of [...nodes, ...outputs]) {
    const readers = node.accesses
      .filter(isWriting)
      .flatMap(({ slice }) => program.uses(slice.buffer).readers.filter((reader) => reader !== node));
    const fusion = fusionOf(runtime, program, { call: node.call, from: node, readers });
    if (!fusion) continue;
    const { other, waiting, call } = fusion;
    for (const reader of waiting.toSorted((a, b) => (a.isBefore(b) ? 1 : -1)))
      program.moveAfter(reader, other);
    program.remove(node);
    program.replace(other, call);
  }
}

/** Only outputs that another kernel can compute in passing. */
function recomputeOutputs(runtime: Runtime, program: Program, minBytes: number): readonly Node[] {
  return rematerializeOutputs(program, {
    ...{ minBytes, minGain: recomputedOutputShare },
    isCheap: ({ buffer, reader, call }) => {
      const readers = program.uses(buffer).readers.filter((node) => !node.isBefore(reader));
      return fusionOf(runtime, program, { call, from: reader, readers }) !== undefined;
    },
  });
}

/** A call that computes a value again, at a node or directly before it. */
interface Recomputation {
  readonly call: Call;
  readonly from: Node;
  readonly readers: readonly Node[];
}

interface Fusion {
  /** The kernel that computes the value in passing, and its new call. */
  readonly other: Node;
  readonly call: Call;
  /** The readers that have to move after it. */
  readonly waiting: readonly Node[];
}

/** Computes a value in a later kernel that reads the same input, if the value's readers can wait for that kernel. */
function fusionOf(
  runtime: Runtime,
  program: Program,
  { call: again, from, readers }: Recomputation,
): Fusion | undefined {
  for (const other of laterReadersOfInputs(program, again, from)) {
    const waiting = [...new Set(readers)].filter((reader) => reader.isBefore(other));
    if (readers.includes(other) || waiting.length === 0) continue;
    const call = fusedCall(runtime, again, other);
    if (call && waiting.every((reader) => canFollow(program, reader, other))) return { other, call, waiting };
  }
  return undefined;
}

/** Row kernels soon after a node that read an input of a call, before any of its inputs changes. */
function laterReadersOfInputs(program: Program, call: Call, from: Node): readonly Node[] {
  const inputs = accessesOf(call)
    .filter(isReading)
    .map(({ slice }) => slice.buffer);
  const uses = inputs.map((buffer) => program.uses(buffer));
  const isIntact = (until: Node): boolean =>
    uses.every(({ writers }) => !writers.some((writer) => !writer.isBefore(from) && !until.isBefore(writer)));
  return uses
    .flatMap(({ readers }) => readers)
    .filter((reader) => from.isBefore(reader) && reader.call.work.kind === "row")
    .filter((reader) => program.distance(from, reader) <= maxReaderDelay && isIntact(reader));
}

function canFollow(program: Program, node: Node, other: Node): boolean {
  const consumer = program.firstConsumerOf(node);
  return !consumer || other.isBefore(consumer);
}

function fusedCall(runtime: Runtime, again: Call, other: Node): Call | undefined {
  const members = [fusionNodeOf(again), fusionNodeOf(other.call)].filter((member) => member !== undefined);
  if (members.length < 2 || other.calls.length > 1) return undefined;
  const draft = combine(members, () => true, capabilitiesOf(runtime));
  const work = draft && rowsOf(draft);
  if (!work || !keepsColumnSums(runtime, other.call.work, work)) return undefined;
  return { ...other.call, op: joinNames([again.op, other.call.op]), work };
}
