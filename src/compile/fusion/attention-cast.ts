/**
 * Attention stores half floats if every result is only converted to half floats for the next GEMM. The conversion and the memory
 * between are gone. Only the CUDA kernels can; a value is rounded once either way.
 */

import { dtypes } from "../../ir/index.js";
import { capabilitiesOf } from "../../kernels/index.js";
import type { Runtime } from "../../runtime/index.js";
import { type Cast, castOf } from "../program/casts.js";
import { type AttentionCall, mapAttentionSlices, resultsOf } from "../program/kinds/attention.js";
import { type Buffer, type BufferSlice, type Call, latestPhase } from "../program/program.js";
import { isMadeOnce, type Uses, usesOf } from "../program/uses.js";

export function fuseAttentionCasts(calls: readonly Call[], runtime: Runtime): readonly Call[] {
  if (!capabilitiesOf(runtime).storesHalfAttention) return calls;
  const uses = usesOf(calls);
  const changes = new Map<number, Call | undefined>();
  for (const [place, call] of calls.entries()) {
    if (call.work.kind !== "attention") continue;
    const { work } = call;
    const casts = new Map<Buffer, Cast>();
    for (const { buffer } of resultsOf(work)) {
      const cast = soleCastOf(calls, uses, buffer, place);
      if (cast) casts.set(buffer, cast);
    }
    const dtype = commonDtype(work, casts);
    if (!dtype) continue;
    const made = [...casts.values()];
    const joined = [call, ...made.map((cast) => calls[cast.index])];
    changes.set(place, {
      op: [...new Set(joined.map((one) => one?.op))].join(" + "),
      work: mapAttentionSlices(work, (slice) => convertedSlice(slice, casts), dtype),
      phase: latestPhase(joined),
    });
    for (const cast of made) changes.set(cast.index, undefined);
  }
  return calls.flatMap((call, place) => (changes.has(place) ? (changes.get(place) ?? []) : call));
}

/** The cast that is the only reader of a buffer with one writer, into step memory with one writer. */
function soleCastOf(
  calls: readonly Call[],
  uses: ReadonlyMap<Buffer, Uses>,
  buffer: Buffer,
  writer: number,
): Cast | undefined {
  const { writers = [], readers = [] } = uses.get(buffer) ?? {};
  const [reader, ...others] = readers;
  if (buffer.storage || reader === undefined || others.length > 0) return undefined;
  if (writers.some((place) => place !== writer)) return undefined;
  const work = calls[reader]?.work;
  const cast = work?.kind === "row" ? castOf(work, reader) : undefined;
  return cast && isMadeOnce(uses, cast.to.buffer) ? cast : undefined;
}

/** The dtype that all results are converted to; undefined if they differ or the kernel cannot store it. */
function commonDtype(call: AttentionCall, casts: ReadonlyMap<Buffer, Cast>): "f16" | "bf16" | undefined {
  const { dtype, resultDtype = dtype } = call.shape;
  const wanted = new Set(
    resultsOf(call).map((slice) => {
      const cast = casts.get(slice.buffer);
      return cast && covers(cast.from, slice) ? cast.call.kernel.outputs[0]?.dtype : undefined;
    }),
  );
  const [one, ...more] = wanted;
  if (dtype !== "f32" || resultDtype !== dtype || more.length > 0) return undefined;
  return one === "f16" || one === "bf16" ? one : undefined;
}

function covers(whole: BufferSlice, { offset, size }: BufferSlice): boolean {
  return whole.offset <= offset && offset + size <= whole.offset + whole.size;
}

/** The slice where the cast would have stored a result. */
function convertedSlice(slice: BufferSlice, casts: ReadonlyMap<Buffer, Cast>): BufferSlice {
  const cast = casts.get(slice.buffer);
  if (!cast) return slice;
  const { from, to, call } = cast;
  const [read, written] = [call.kernel.inputs[0], call.kernel.outputs[0]?.dtype].map(
    (dtype) => dtypes[dtype ?? "f32"].bytes,
  ) as [number, number];
  const inNew = (bytes: number): number => (bytes / read) * written;
  return {
    buffer: to.buffer,
    offset: to.offset + inNew(slice.offset - from.offset),
    size: inNew(slice.size),
  };
}
