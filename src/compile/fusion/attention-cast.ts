/**
 * Attention stores half floats if every result is only converted to half floats for the next GEMM. The conversion and the memory
 * between are gone. Only the CUDA kernels can; a value is rounded once either way. The backward pass may read the forward result too: it
 * then reads the half floats.
 */

import { inputDtypes } from "../../ir/index.js";
import { capabilitiesOf } from "../../kernels/index.js";
import type { Runtime } from "../../runtime/index.js";
import { type Cast, castOf } from "../program/casts.js";
import {
  type AttentionCall,
  mapAttentionSlices,
  readAsHalves,
  resultsOf,
} from "../program/kinds/attention.js";
import { type Buffer, type BufferSlice, latestPhase, type Node, type Program } from "../program/program.js";
import { isWrittenOnce } from "../program/uses.js";

export function fuseAttentionCasts(runtime: Runtime, program: Program): void {
  if (!capabilitiesOf(runtime).storesHalfAttention) return;
  for (const node of program.nodes) {
    const { work } = node.call;
    if (work.kind !== "attention") continue;
    const casts = new Map<Buffer, Cast>();
    for (const { buffer } of resultsOf(work)) {
      const cast = soleCastOf(program, buffer, node);
      if (cast) casts.set(buffer, cast);
    }
    const dtype = commonDtype(work, casts);
    if (!dtype) continue;
    const castNodes = [...casts.values()].map((cast) => cast.node);
    const calls = [node, ...castNodes].map(({ call }) => call);
    program.replace(node, {
      op: [...new Set(calls.map(({ op }) => op))].join(" + "),
      work: mapAttentionSlices(work, (slice) => convertedSlice(slice, casts), dtype),
      phase: latestPhase(calls),
    });
    for (const cast of casts.values()) readHalves(program, cast, dtype);
    for (const castNode of castNodes) program.remove(castNode);
  }
}

/** The only cast of a buffer with one writer, into step memory with one writer. No call reads the buffer, except attention backward. */
function soleCastOf(program: Program, buffer: Buffer, writer: Node): Cast | undefined {
  const { writers, readers } = program.uses(buffer);
  const [reader, ...others] = readers.filter((node) => !readsResult(node, buffer));
  if (buffer.storage || !reader || others.length > 0) return undefined;
  if (writers.some((node) => node !== writer)) return undefined;
  const cast = castOf(reader);
  return cast && isWrittenOnce(program, cast.to.buffer) ? cast : undefined;
}

/** True if a call reads a buffer as the forward result in an attention's backward pass, and nowhere else. */
function readsResult({ call: { work } }: Node, buffer: Buffer): boolean {
  if (work.kind !== "attention" || work.direction === "forward") return false;
  return Object.entries(work.operands).every(([name, slice]) => slice.buffer !== buffer || name === "out");
}

/** The backward pass reads the converted result. */
function readHalves(program: Program, cast: Cast, dtype: "f16" | "bf16"): void {
  const { buffer } = cast.from;
  for (const node of program.uses(buffer).readers.filter((reader) => readsResult(reader, buffer))) {
    const { work } = node.call;
    if (work.kind !== "attention") continue;
    const casts = new Map([[buffer, cast]]);
    const moved = mapAttentionSlices(work, (slice) => convertedSlice(slice, casts));
    const converted = readAsHalves(moved, dtype, (slice) => slice.buffer === cast.to.buffer);
    if (converted) program.replace(node, { ...node.call, work: converted });
  }
}

/** The dtype that all results are converted to; undefined if they differ or the kernel cannot store it. */
function commonDtype(call: AttentionCall, casts: ReadonlyMap<Buffer, Cast>): "f16" | "bf16" | undefined {
  const { dtype, resultDtype = dtype } = call.shape;
  const wanted = new Set(
    resultsOf(call).map((slice) => {
      const cast = casts.get(slice.buffer);
      return cast && covers(cast.from, slice) ? cast.work.kernel.outputs[0]?.dtype : undefined;
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
  const { from, to, work } = cast;
  const [read, written] = [work.kernel.inputs[0], work.kernel.outputs[0]?.dtype].map(
    (dtype) => inputDtypes[dtype ?? "f32"].bytes,
  ) as [number, number];
  const inNew = (bytes: number): number => (bytes / read) * written;
  return {
    buffer: to.buffer,
    offset: to.offset + inNew(slice.offset - from.offset),
    size: inNew(slice.size),
  };
}
