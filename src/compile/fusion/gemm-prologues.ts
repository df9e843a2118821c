/**
 * Prologue fusion: skinny GEMMs of one row and the row kernel that computes this row of A, such as a norm in generation, become one launch.
 * Each CTA computes the row while its first weights are being loaded, which saves the time of a launch.
 *
 * The row's sums have another order than in a separate kernel, so this is for steps whose GEMMs may round differently from eager code.
 */

import { prologueCandidates } from "../../kernels/index.js";
import type { Runtime } from "../../runtime/index.js";
import { describePrologue } from "../autotune/gemm-desc.js";
import {
  type BufferSlice,
  type Call,
  forwardedOutput,
  type GemmCall,
  type GemmPrologueCall,
  isSameSlice,
  latestPhase,
  type Node,
  type Program,
} from "../program/program.js";
import { areSeparate } from "../program/slices.js";
import { isReadByOthers, isWrittenOnce } from "../program/uses.js";

export function fuseGemmPrologues(runtime: Runtime, program: Program): void {
  for (const node of program.nodes) {
    const problems = problemsOf(node.call);
    const writer = problems[0] && writerOf(program, node, problems[0].a.slice);
    const work = writer && fusedWork(writer, node, problems);
    if (!work || countCandidates(runtime, work) === 0) continue;
    const anchor = program.fusionAnchor(writer, node);
    if (!anchor) continue;
    const calls = [writer.call, node.call];
    program.fuse(writer, node, anchor);
    program.replace(writer, {
      ...{ op: calls.map(({ op }) => op).join(" + "), work },
      phase: latestPhase(calls),
    });
  }
}

/** The number of algorithms of a call, before there is a memory plan. */
export function countCandidates(runtime: Runtime, work: GemmPrologueCall): number {
  const { problems, prologue } = describePrologue(work);
  return prologueCandidates(runtime, problems, prologue);
}

/** The GEMMs of a call, if all have the same A; otherwise none. */
function problemsOf({ work }: Call): readonly GemmCall["problem"][] {
  const problems = work.kind === "gemm" ? [work.problem] : work.kind === "grouped-gemm" ? work.problems : [];
  const [first] = problems;
  return first && problems.every(({ a }) => isSameSlice(a.slice, first.a.slice)) ? problems : [];
}

/** The only writer of a slice, if it is a row kernel and nothing else reads what it writes there. */
function writerOf(program: Program, reader: Node, { buffer }: BufferSlice): Node | undefined {
  const [writer] = program.uses(buffer).writers;
  const isOnlyForReader = isWrittenOnce(program, buffer) && !isReadByOthers(program, buffer, [reader]);
  return writer && isOnlyForReader && writer.call.work.kind === "row" ? writer : undefined;
}

/** Both as one call; undefined if a CTA could store what another one has yet to read. */
function fusedWork(
  writer: Node,
  reader: Node,
  gemms: readonly GemmCall["problem"][],
): GemmPrologueCall | undefined {
  const { work } = writer.call;
  const a = gemms[0]?.a.slice;
  if (work.kind !== "row" || !a || writer.calls.length > 1 || reader.calls.length > 1) return undefined;
  if (writer.call.isRematerialized && !reader.call.isRematerialized) return undefined;
  const { kernel, operands } = work;
  const inputs = operands.slice(0, kernel.inputs.length);
  const outputs = operands.slice(kernel.inputs.length);
  const output = outputs.findIndex((slice) => isSameSlice(slice, a));
  if (output < 0 || inputs.some((slice) => slice.buffer === a.buffer)) return undefined;
  const problems = gemms.map(({ scratch: _, algorithm: __, ...problem }) => problem);
  const read = [
    ...inputs.filter((_, input) => forwardedOutput(work, input) === undefined),
    ...problems.flatMap(({ b, bias }) => (bias ? [b.slice, bias] : [b.slice])),
  ];
  const written = [...outputs.filter((_, index) => index !== output), ...problems.map(({ c }) => c.slice)];
  if (problems.some(({ beta = 0 }) => beta !== 0)) return undefined;
  const areFresh = read.every((slice) => written.every((other) => areSeparate(slice, other)));
  const activations = kernel.inputs.length + output;
  return areFresh ? { kind: "gemm-prologue", rows: work, activations, problems } : undefined;
}
