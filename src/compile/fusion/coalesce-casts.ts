/** Coalesced casts: weights that are converted one by one, each for its GEMM, are converted in one call over the memory they share. */

import { dtypes, inputDtypes, iterateElements } from "../../ir/index.js";
import { minWantedShare } from "../cost-model.js";
import { type Cast, castOf } from "../program/casts.js";
import { type Buffer, type Call, latestPhase, type Program, type RowCall } from "../program/program.js";
import { relocateCalls } from "../program/relocation.js";
import { isUnchangedBefore, isWrittenOnce } from "../program/uses.js";
import { groupCalls } from "./group-calls.js";

export function coalesceCasts(program: Program): void {
  const groups = new Map<Call, readonly Cast[]>();
  for (const group of castsOfPersistent(program))
    if (isDense(group)) for (const { node } of group) groups.set(node.call, group);
  if (groups.size === 0) return;
  const moved = new Map<Buffer, { readonly buffer: Buffer; readonly offset: number }>();
  groupCalls<readonly Cast[]>(program, {
    maxDistance: Infinity,
    itemOf: (call) => groups.get(call),
    canJoin: ({ items }, cast) => items[0] === cast,
    merge: ({ items: [group = []], calls: converted }) => ({
      op: `${converted[0]?.op ?? "cast"} of ${group.length}`,
      phase: latestPhase(converted.slice(0, 1)),
      work: mergeCasts(group, moved),
    }),
  });
  relocateCalls(program, moved);
}

/** Casts of persistent memory that the step has not changed, by kernel and source buffer. */
function castsOfPersistent(program: Program): readonly (readonly Cast[])[] {
  const groups = new Map<object, Map<Buffer, Cast[]>>();
  for (const node of program.nodes) {
    const cast = castOf(node);
    if (!cast) continue;
    const { buffer } = cast.from;
    if (!isUnchangedBefore(program, buffer, node) || !isWrittenOnce(program, cast.to.buffer)) continue;
    const byBuffer = groups.get(cast.work.kernel) ?? new Map<Buffer, Cast[]>();
    groups.set(cast.work.kernel, byBuffer);
    byBuffer.set(buffer, [...(byBuffer.get(buffer) ?? []), cast]);
  }
  return [...groups.values()].flatMap((byBuffer) => [...byBuffer.values()]);
}

const rangeOf = (casts: readonly Cast[]): { readonly start: number; readonly end: number } => ({
  start: Math.min(...casts.map(({ from }) => from.offset)),
  end: Math.max(...casts.map(({ from }) => from.offset + from.size)),
});

const elementBytes = ({ work: { kernel } }: Cast): { readonly read: number; readonly written: number } => ({
  read: inputDtypes[kernel.inputs[0] ?? "f32"].bytes,
  written: dtypes[kernel.outputs[0]?.dtype ?? "f32"].bytes,
});

/** True if most bytes between the first and the last weight are wanted. */
function isDense(casts: readonly Cast[]): boolean {
  const [first] = casts;
  if (!first || casts.length < 2) return false;
  const { start, end } = rangeOf(casts);
  const wanted = casts.reduce((sum, { from }) => sum + from.size, 0);
  return (
    wanted >= minWantedShare * (end - start) && Number.isInteger((end - start) / elementBytes(first).read)
  );
}

/** One cast of the whole range; each result becomes a slice of one buffer. */
function mergeCasts(
  casts: readonly Cast[],
  moved: Map<Buffer, { readonly buffer: Buffer; readonly offset: number }>,
): RowCall {
  const [first] = casts as [Cast];
  const { read, written } = elementBytes(first);
  const { start, end } = rangeOf(casts);
  const length = (end - start) / read;
  const buffer: Buffer = { id: first.to.buffer.id, bytes: length * written, label: first.to.buffer.label };
  for (const { from, to } of casts)
    moved.set(to.buffer, { buffer, offset: ((from.offset - start) / read) * written });
  return {
    kind: "row",
    kernel: first.work.kernel,
    iteration: iterateElements([length], [[1], [1]]),
    operands: [
      { buffer: first.from.buffer, offset: start, size: end - start },
      { buffer, offset: 0, size: buffer.bytes },
    ],
    scalars: [],
  };
}
