/**
 * On a GPU, a large value that only row kernels read is not stored, if each of them loads everything that the value is computed from
 * anyway: it computes the value again. The activation of a gated layer is an example: the kernel of the gate's gradient reads the
 * gate, and the kernel that multiplies the activation also computes it.
 */

import { capabilitiesOf } from "../../kernels/index.js";
import type { Runtime } from "../../runtime/index.js";
import { comboLimits } from "../cost-model.js";
import { combine, rowsOf } from "../fusion/vertical/combine.js";
import { type FusionNode, fusionNodeOf } from "../fusion/vertical/fusion-node.js";
import { joinNames } from "../fusion/vertical/kernel-memo.js";
import { singleOutput } from "../fusion/vertical/single-output.js";
import type { Buffer, BufferSlice, Call, Node, Program } from "../program/program.js";
import { isWriting } from "../program/uses.js";

export function recomputeInReaders(runtime: Runtime, program: Program): void {
  if (!capabilitiesOf(runtime).prefersMemoryOverRecompute) return;
  const minBytes = comboLimits(runtime.device).largeBytes;
  // The last value of a kernel comes first: an earlier one may be an input of its computation.
  for (const node of program.nodes.toReversed()) {
    for (const buffer of valuesOf(program, node, minBytes)) {
      const edits = editsFor(runtime, program, node, buffer);
      for (const [edited, call] of edits) program.replace(edited, call);
    }
  }
}

/** The large buffers of step memory that a row call alone writes, the last one first. */
export function valuesOf(program: Program, node: Node, minBytes: number): readonly Buffer[] {
  if (node.call.work.kind !== "row" || node.call.isRematerialized) return [];
  const written = new Set(node.accesses.filter(isWriting).map(({ slice }) => slice.buffer));
  return [...written]
    .filter((buffer) => !buffer.storage && buffer.bytes >= minBytes)
    .filter((buffer) => program.uses(buffer).writers.length === 1)
    .toReversed();
}

type Edits = readonly (readonly [Node, Call])[];

/** The producer without the value, and the readers that compute it; none if that is impossible for any of them. */
function editsFor(runtime: Runtime, program: Program, producer: Node, value: Buffer): Edits {
  const { readers } = program.uses(value);
  const member = fusionNodeOf(producer.call);
  if (!member || readers.length === 0 || readers.includes(producer)) return [];
  const edits: (readonly [Node, Call])[] = [];
  for (const reader of readers) {
    const call = readerWith(runtime, program, { producer, reader, value });
    if (!call) return [];
    edits.push([reader, call]);
  }
  const isNeeded = ({ buffer }: BufferSlice): boolean => buffer !== value;
  if (!member.outputs.some(({ slice }) => isNeeded(slice))) return [];
  const rest = combine([member], isNeeded, capabilitiesOf(runtime));
  return rest ? [...edits, [producer, { ...producer.call, work: rowsOf(rest) }]] : [];
}

interface Reading {
  readonly producer: Node;
  readonly reader: Node;
  readonly value: Buffer;
}

/** The reader, computing the value itself; undefined if it would load more, or other values than the producer did. */
function readerWith(
  runtime: Runtime,
  program: Program,
  { producer, reader, value }: Reading,
): Call | undefined {
  const { work } = producer.call;
  const before = fusionNodeOf(reader.call);
  if (work.kind !== "row" || !before || reader.calls.length > 1 || producer.calls.length > 1)
    return undefined;
  const loaded = new Set(before.inputs.filter(({ isIndexed }) => !isIndexed).map(({ key }) => key));
  const isLoaded = ({ key }: FusionNode["inputs"][number]): boolean => loaded.has(key);
  const loadedBuffers = new Set(before.inputs.map(({ slice }) => slice.buffer));
  const again = singleOutput(work, value, (buffer) => buffer !== value && loadedBuffers.has(buffer));
  const first = again && fusionNodeOf({ ...producer.call, work: again });
  if (!first?.inputs.every(isLoaded)) return undefined;
  if (first.inputs.some(({ slice }) => isWrittenBetween(program, slice.buffer, producer, reader)))
    return undefined;
  const draft = combine([first, before], ({ buffer }) => buffer !== value, capabilitiesOf(runtime));
  if (!draft || draft.iteration.elements !== before.elements) return undefined;
  const op = joinNames([producer.call.op, reader.call.op]);
  return { ...reader.call, op, work: rowsOf(draft) };
}

/** True if another call, or the reader itself, writes a buffer that the producer read. */
export function isWrittenBetween(program: Program, buffer: Buffer, producer: Node, reader: Node): boolean {
  return program
    .uses(buffer)
    .writers.some((writer) => !writer.isBefore(producer) && !reader.isBefore(writer) && writer !== producer);
}
