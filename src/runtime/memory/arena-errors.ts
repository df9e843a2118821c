/** What the arena says when it rejects: the subject, the figures, the verdict and the way out. */

import { HoldfastError } from "../../errors/index.js";
import { formatBytes } from "../../units/index.js";
import type { ArenaFigure } from "../observe/shared-status.js";
import type { Holder } from "./arena-blocks.js";
import type { OomDiagnosis } from "./diagnose-oom.js";
import { ownerOf, type Storage } from "./storage.js";

export function describe(storage: Storage): string {
  return `storage "${storage.label}"`;
}

/** A request that found no room, or no memory to grow into (then with the cause). */
export function noRoom(request: {
  readonly size: number;
  readonly label: string;
  readonly diagnosis: OomDiagnosis;
  readonly figures: Readonly<Record<ArenaFigure, number>>;
  readonly holders: readonly Holder[];
  readonly cause?: HoldfastError;
}): HoldfastError {
  const { size, label, diagnosis, figures: now, holders, cause } = request;
  const resets = now.resetsByStep + now.resetsByCall;
  const lines = [
    `${label} asked the arena for ${formatBytes(size)} and ${cause ? "it can't grow" : "it has no room"}. ` +
      `Verdict: ${diagnosis.verdict}: ${diagnosis.why}.`,
    `  capacity ${formatBytes(now.capacity)}, committed ${formatBytes(now.committed)}, offset ${formatBytes(now.offset)}, ` +
      `pinned ${formatBytes(now.pinned)}`,
    `  this step: ${now.allocationsThisStep} allocations, ${formatBytes(now.bytesThisStep)}; ` +
      `${resets} resets in all (${now.resetsByStep} by steps, ${now.resetsByCall} by calls)`,
    ...holders.map((one) => `  · ${one.label} ${formatBytes(one.size)} in ${one.count}`),
    diagnosis.help,
    ...(cause ? [cause.message] : []),
  ];
  return new HoldfastError(cause?.code ?? "ARENA_FULL", lines.join("\n"), {
    numbers: { ...cause?.numbers, ...now, asked: size, verdict: diagnosis.verdict },
    ...(cause && { cause }),
  });
}

export function badSize(size: number, label: string): HoldfastError {
  return new HoldfastError(
    "BAD_SIZE",
    `${label} asked the arena for ${size} bytes. Ask for a whole number above 0; an empty tensor needs no memory.`,
    { numbers: { size, label } },
  );
}

export function badView(storage: Storage, offset: number, size: number): HoldfastError {
  return new HoldfastError(
    "BAD_ARGUMENT",
    `A view of ${size} bytes at ${offset} does not fit ${describe(storage)} of ${storage.span.size} bytes.`,
    { numbers: { offset, size, available: storage.span.size } },
  );
}

export function viewFreed(view: Storage): HoldfastError {
  return new HoldfastError(
    "VIEW_NOT_OWNER",
    `${describe(view)} is a view of ${describe(ownerOf(view))} and owns no bytes. Drop the view, or free its owner.`,
  );
}

export function pinnedFreed(storage: Storage, pinnedBy: readonly string[]): HoldfastError {
  return new HoldfastError(
    "PINNED",
    `${describe(storage)} is pinned by ${pinnedBy.join(", ")} and can't be given up. Unpin it first.`,
    { numbers: { pins: pinnedBy.length } },
  );
}

export function viewedFreed(storage: Storage, views: number): HoldfastError {
  return new HoldfastError(
    "HAS_VIEWS",
    `${describe(storage)} can't be freed: ${views} views of it are alive, and a view keeps its owner. Drop them first.`,
    { numbers: { views } },
  );
}

export function notPinned(storage: Storage): HoldfastError {
  return new HoldfastError(
    "NOT_PINNED",
    `${describe(storage)} has no pin to take back. Unpin as often as you pinned.`,
  );
}

export function notOwner(storage: Storage, use: string): HoldfastError {
  return new HoldfastError(
    "NOT_OWNER",
    `${use} of ${describe(storage)}: this arena did not make it as it is (its owner, address or size is another's). ` +
      "Use the very storage that allocate() returned.",
  );
}

export function dead(storage: Storage, use: string, step: number, now: number): HoldfastError {
  return new HoldfastError(
    use === "free" ? "DOUBLE_FREE" : "DEAD_STORAGE",
    `${use} of ${describe(storage)}, which is dead: it was made in generation ${storage.generation}` +
      `${step > 0 ? ` (step ${step})` : ""}, and the arena is at generation ${now}. ` +
      "Pin what must outlive its step, or use it inside.",
    { numbers: { generation: storage.generation, now, step } },
  );
}

export function deadInside(storage: Storage, use: string): HoldfastError {
  return new HoldfastError(
    use === "free" ? "DOUBLE_FREE" : "DEAD_STORAGE",
    `${use} of ${describe(storage)}, which is dead: it lay inside another storage, and ended with the function that was ` +
      "enclosed there. Use it inside, or copy it to memory from outside.",
  );
}

export function nestedStep(step: number, open: number): HoldfastError {
  return new HoldfastError("STEP_NESTED", `Step ${step} was opened inside step ${open}. End that one first.`);
}

export function resetInStep(open: number): HoldfastError {
  return new HoldfastError(
    "STEP_NESTED",
    `The arena was to be reset inside step ${open}; what the step still needs would be lost. The step's end resets it.`,
  );
}
