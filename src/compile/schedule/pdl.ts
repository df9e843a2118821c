/**
 * Programmatic dependent launch: a kernel may start during its predecessor's tail and prefetch operands that the predecessor does not
 * write. It executes griddepcontrol.wait before any other read or write. Launches older than the predecessor are complete by then,
 * because every kernel waits before it triggers its dependents.
 */

import type { Runtime } from "../../runtime/index.js";
import { kindOf } from "../program/kinds/index.js";
import { accessesOf, type BufferSlice, type Call, isLaunched, type Schedule } from "../program/program.js";
import { areDisjoint, extentOf } from "../program/slices.js";

export function markPdl({ device }: Runtime, schedule: Schedule): Schedule {
  if (!device.supportsPdl) return schedule;
  const latest = new Map<number, Call>();
  const calls = schedule.calls.map((scheduled) => {
    const { call, stream, after } = scheduled;
    const previous = latest.get(stream);
    latest.set(stream, call);
    const followsLaunch = previous && isLaunched(previous) && after.length === 0;
    const prefetches = followsLaunch && gainsByPdl(call) ? prefetchesOf(call, previous) : undefined;
    return prefetches ? { ...scheduled, prefetches } : scheduled;
  });
  return { ...schedule, calls };
}

/** Attention rereads its rows from L1. During the tail of a GEMM it has less of that cache and takes twice as long. A loop's kernels wait for each other. */
function gainsByPdl(call: Call): boolean {
  return isLaunched(call) && call.work.kind !== "attention" && call.work.kind !== "loop";
}

/**
 * Operands that the preceding launch does not write. An operand that the kernel forwards from its output is not read from memory. Undefined
 * if the kernel would prefetch an operand that the preceding launch writes.
 */
function prefetchesOf(call: Call, previous: Call): readonly BufferSlice[] | undefined {
  const { prefetchable, alwaysPrefetches = false } = kindOf(call.work);
  const wanted = prefetchable?.(call.work) ?? [];
  const read = new Set(accessesOf(call).flatMap(({ slice, reads }) => (reads ? [slice] : [])));
  const written = accessesOf(previous).flatMap(({ slice, writes }) => (writes ? [extentOf(slice)] : []));
  const found = wanted.filter(
    (slice) => read.has(slice) && written.every((other) => areDisjoint(extentOf(slice), other)),
  );
  return alwaysPrefetches && found.length < wanted.length ? undefined : found;
}
