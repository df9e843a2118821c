/**
 * Weights that are converted one by one, each for the product that reads it, are converted together: one call passes over
 * the memory that they share.
 */

import { dtypes, type Expression, iterateElements } from "../../ir/index.js";
import {
  type Buffer,
  type BufferSlice,
  type Call,
  latestPhase,
  mapSlices,
  type RowCall,
} from "../program/program.js";
import { isAsBefore, isMadeOnce, usesOf } from "../program/uses.js";

/** How much of the memory passed over must be wanted, or more is read for nothing than launches are saved. */
const minShare = 0.6;

/** A call that converts one stretch of memory into another and does nothing else. */
export interface Cast {
  readonly place: number;
  readonly call: RowCall;
  readonly from: BufferSlice;
  readonly to: BufferSlice;
}

export function coalesceCasts(calls: readonly Call[]): readonly Call[] {
  const uses = usesOf(calls);
  const groups = new Map<object, Map<Buffer, Cast[]>>();
  for (const [place, { work }] of calls.entries()) {
    const cast = work.kind === "row" ? castOf(work, place) : undefined;
    if (!cast) continue;
    const { buffer } = cast.from;
    if (!isAsBefore(uses, buffer, place) || !isMadeOnce(uses, cast.to.buffer)) continue;
    const byBuffer = groups.get(cast.call.kernel) ?? new Map<Buffer, Cast[]>();
    groups.set(cast.call.kernel, byBuffer);
    byBuffer.set(buffer, [...(byBuffer.get(buffer) ?? []), cast]);
  }
  const changes = new Map<number, Call | undefined>();
  const moves = new Map<Buffer, { readonly buffer: Buffer; readonly offset: number }>();
  for (const casts of [...groups.values()].flatMap((byBuffer) => [...byBuffer.values()])) {
    mergeCasts(calls, casts, changes, moves);
  }
  if (changes.size === 0) return calls;
  const moved = (slice: BufferSlice): BufferSlice => {
    const move = moves.get(slice.buffer);
    return move ? { ...slice, buffer: move.buffer, offset: slice.offset + move.offset } : slice;
  };
  return calls.flatMap((call, place) => {
    const changed = changes.has(place) ? changes.get(place) : { ...call, work: mapSlices(call.work, moved) };
    return changed ? [changed] : [];
  });
}

/** What a call converts, if it does nothing else. */
export function castOf(call: RowCall, place: number): Cast | undefined {
  const { kernel, iteration, operands } = call;
  const [from, to] = operands;
  const isCast =
    movedBy(call) !== undefined &&
    kernel.inputs[0] !== kernel.outputs[0]?.dtype &&
    iteration.outer.length === 0 &&
    iteration.row.strides.every((stride) => stride === 1);
  if (!isCast || !from || !to || to.offset !== 0 || to.size !== to.buffer.bytes) return undefined;
  return { place, call, from, to };
}

/** What a call stores that does nothing but move elements: those of its one input as they lie there, or converted. */
export function movedBy({ kernel, scalars }: RowCall): Expression | undefined {
  const { inputs, outputs, stages } = kernel;
  const [stage] = stages;
  if (inputs.length !== 1 || outputs.length !== 1 || stages.length !== 1 || scalars.length > 0)
    return undefined;
  if (stage?.kind !== "store") return undefined;
  const { value } = stage;
  const loaded = value.kind === "convert" ? value.a : value;
  return loaded.kind === "load" && !loaded.at ? value : undefined;
}

function mergeCasts(
  calls: readonly Call[],
  casts: readonly Cast[],
  changes: Map<number, Call | undefined>,
  moves: Map<Buffer, { readonly buffer: Buffer; readonly offset: number }>,
): void {
  const [first] = casts;
  if (!first || casts.length < 2) return;
  const { kernel } = first.call;
  const [read, written] = [
    dtypes[kernel.inputs[0] ?? "f32"].bytes,
    dtypes[kernel.outputs[0]?.dtype ?? "f32"].bytes,
  ];
  const start = Math.min(...casts.map(({ from }) => from.offset));
  const end = Math.max(...casts.map(({ from }) => from.offset + from.size));
  const wanted = casts.reduce((sum, { from }) => sum + from.size, 0);
  const length = (end - start) / read;
  if (wanted < minShare * (end - start) || !Number.isInteger(length)) return;
  const buffer: Buffer = { id: first.to.buffer.id, bytes: length * written, label: first.to.buffer.label };
  for (const { place, from, to } of casts) {
    changes.set(place, undefined);
    moves.set(to.buffer, { buffer, offset: ((from.offset - start) / read) * written });
  }
  const work: RowCall = {
    kind: "row",
    kernel,
    iteration: iterateElements([length], [[1], [1]]),
    operands: [
      { buffer: first.from.buffer, offset: start, size: end - start },
      { buffer, offset: 0, size: buffer.bytes },
    ],
    scalars: [],
  };
  const converted = casts.map(({ place }) => calls[place]);
  const op = `${converted[0]?.op ?? "cast"} of ${casts.length}`;
  changes.set(first.place, { op, phase: latestPhase(converted.slice(0, 1)), work });
}
