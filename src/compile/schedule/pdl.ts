/**
 * Lets launches begin while the one before them on their branch ends, on GPUs that can: a product fetches its weights meanwhile, and
 * a kernel of rows what it has from earlier. Each waits by itself before it looks at anything else, and before it writes. What came
 * before the one before has ended by then, as none lets the next begin before it has waited.
 */

import type { Runtime } from "../../runtime/index.js";
import {
  accessesOf,
  type Call,
  isLaunched,
  type Part,
  type RowCall,
  type Schedule,
} from "../program/program.js";
import { areApart, extentOf } from "../program/slices.js";

export function handOver({ device }: Runtime, schedule: Schedule): Schedule {
  if (!device.canBeginEarly) return schedule;
  const latest = new Map<number, Call>();
  const calls = schedule.calls.map((scheduled) => {
    const { call, branch, after } = scheduled;
    const previous = latest.get(branch);
    latest.set(branch, call);
    const isBehind = previous && isLaunched(previous) && after.length === 0;
    return isBehind && gainsByBeginning(call)
      ? { ...scheduled, early: goodBefore(call, previous) }
      : scheduled;
  });
  return { ...schedule, calls };
}

/** Attention reads its rows again and again, and has less of a cache for them beside a product that ends: that takes twice as long. */
function gainsByBeginning(call: Call): boolean {
  return isLaunched(call) && call.work.kind !== "attention";
}

/** What a call can fetch before the one before it has ended: what that one doesn't write, and it doesn't write itself before it reads it. */
function goodBefore(call: Call, previous: Call): readonly Part[] {
  const read = new Set(accessesOf(call).flatMap(({ part, reads }) => (reads ? [part] : [])));
  const written = accessesOf(previous).flatMap(({ part, writes }) => (writes ? [extentOf(part)] : []));
  return fetchedFirst(call).filter(
    (part) => read.has(part) && written.every((other) => areApart(extentOf(part), other)),
  );
}

/** What the kernels of a call can fetch before all else. */
function fetchedFirst({ work }: Call): readonly Part[] {
  switch (work.kind) {
    case "rows":
      return inputsOf(work);
    case "beside":
      return work.rows.flatMap(inputsOf);
    case "product":
    case "finished":
      return [work.problem.b.part];
    default:
      return [];
  }
}

function inputsOf({ operands, kernel }: RowCall): readonly Part[] {
  return operands.slice(0, kernel.inputs.length);
}
