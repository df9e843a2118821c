/**
 * Lets launches begin while the one before them on their branch ends, on GPUs that can: a product fetches its weights meanwhile, and
 * a kernel of rows what it has from earlier. Each waits by itself before it looks at anything else, and before it writes. What came
 * before the one before has ended by then, as none lets the next begin before it has waited.
 */

import type { Runtime } from "../../runtime/index.js";
import {
  accessesOf,
  type BufferSlice,
  type Call,
  isLaunched,
  type RowCall,
  type Schedule,
} from "../program/program.js";
import { areDisjoint, extentOf } from "../program/slices.js";

export function markPdl({ device }: Runtime, schedule: Schedule): Schedule {
  if (!device.supportsPdl) return schedule;
  const latest = new Map<number, Call>();
  const calls = schedule.calls.map((scheduled) => {
    const { call, stream, after } = scheduled;
    const previous = latest.get(stream);
    latest.set(stream, call);
    const isBehind = previous && isLaunched(previous) && after.length === 0;
    return isBehind && gainsByPrefetch(call)
      ? { ...scheduled, prefetches: goodBefore(call, previous) }
      : scheduled;
  });
  return { ...schedule, calls };
}

/** Attention reads its rows again and again, and has less of a cache for them beside a product that ends: that takes twice as long. */
function gainsByPrefetch(call: Call): boolean {
  return isLaunched(call) && call.work.kind !== "attention";
}

/** What a call can fetch before the one before it has ended: what that one doesn't write, and it doesn't write itself before it reads it. */
function goodBefore(call: Call, previous: Call): readonly BufferSlice[] {
  const read = new Set(accessesOf(call).flatMap(({ slice, reads }) => (reads ? [slice] : [])));
  const written = accessesOf(previous).flatMap(({ slice, writes }) => (writes ? [extentOf(slice)] : []));
  return fetchedFirst(call).filter(
    (slice) => read.has(slice) && written.every((other) => areDisjoint(extentOf(slice), other)),
  );
}

/** What the kernels of a call can fetch before all else. */
function fetchedFirst({ work }: Call): readonly BufferSlice[] {
  switch (work.kind) {
    case "row":
      return inputsOf(work);
    case "combo":
      return work.rows.flatMap(inputsOf);
    case "gemm":
    case "gemm-epilogue":
      return [work.problem.b.slice];
    default:
      return [];
  }
}

function inputsOf({ operands, kernel }: RowCall): readonly BufferSlice[] {
  return operands.slice(0, kernel.inputs.length);
}
