/** The arena's errors: the subject, the figures, the diagnosis and what to change. */

import { HoldfastError } from "../../errors/index.js";
import { formatBytes } from "../../units/index.js";
import type { ArenaFigure } from "../observe/shared-status.js";
import type { Holder } from "./arena-blocks.js";
import type { OomDiagnosis } from "./diagnose-oom.js";
import { ownerOf, type Storage } from "./storage.js";

export function describe(storage: Storage): string {
  return `storage "${storage.label}"`;
}

/** The error of a request that does not fit, or whose growth failed (then with the cause). */
export function outOfMemory(request: {
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
    `${label} asked the arena for ${formatBytes(size)}, but ${cause ? "the arena cannot grow" : "the arena is full"}. ` +
      `Diagnosis: ${diagnosis.cause}: ${diagnosis.why}.`,
    `  capacity ${formatBytes(now.capacity)}, committed ${formatBytes(now.committed)}, offset ${formatBytes(now.offset)}, ` +
      `pinned ${formatBytes(now.pinned)}`,
    `  this step: ${now.allocationsThisStep} allocations, ${formatBytes(now.bytesThisStep)}; ` +
      `${resets} resets in total (${now.resetsByStep} by steps, ${now.resetsByCall} by calls)`,
    ...holders.map((holder) => `  · ${holder.label} ${formatBytes(holder.size)} in ${holder.count}`),
    diagnosis.help,
    ...(cause ? [cause.message] : []),
  ];
  return new HoldfastError(cause?.code ?? "ARENA_FULL", lines.join("\n"), {
    numbers: { ...cause?.numbers, ...now, asked: size, cause: diagnosis.cause },
    ...(cause && { cause }),
  });
}

export function badSize(size: number, label: string): HoldfastError {
  return new HoldfastError(
    "BAD_SIZE",
    `${label} asked the arena for ${size} bytes. Pass a whole number above 0; an empty tensor needs no memory.`,
    { numbers: { size, label } },
  );
}

export function badView(storage: Storage, offset: number, size: number): HoldfastError {
  return new HoldfastError(
    "BAD_ARGUMENT",
    `A view of ${size} bytes at offset ${offset} does not fit in ${describe(storage)}, which has ${storage.span.size} bytes. ` +
      "Pass a range inside the storage, of 1 byte or more.",
    { numbers: { offset, size, available: storage.span.size } },
  );
}

export function viewFreed(view: Storage): HoldfastError {
  return new HoldfastError(
    "VIEW_NOT_OWNER",
    `Storage "${view.label}" is a view of ${describe(ownerOf(view))} and owns no bytes. Drop the view, or free its owner.`,
  );
}

export function pinnedFreed(storage: Storage, pinnedBy: readonly string[]): HoldfastError {
  return new HoldfastError(
    "PINNED",
    `Storage "${storage.label}" is pinned by ${pinnedBy.join(", ")} and cannot be freed. Unpin it first.`,
    { numbers: { pins: pinnedBy.length } },
  );
}

export function viewedFreed(storage: Storage, views: number): HoldfastError {
  return new HoldfastError(
    "HAS_VIEWS",
    `Storage "${storage.label}" cannot be freed: it has ${views} live ${views === 1 ? "view" : "views"}. Drop ${views === 1 ? "it" : "them"} first.`,
    { numbers: { views } },
  );
}

export function notPinned(storage: Storage): HoldfastError {
  return new HoldfastError(
    "NOT_PINNED",
    `Storage "${storage.label}" is not pinned. Call unpin once per pin.`,
  );
}

export function notOwner(storage: Storage, use: string): HoldfastError {
  return new HoldfastError(
    "NOT_OWNER",
    `${use}: this arena did not allocate ${describe(storage)} in this form (its owner, address or size differs). ` +
      "Use the storage object that allocate() returned.",
  );
}

export function dead(storage: Storage, use: string, step: number, now: number): HoldfastError {
  return new HoldfastError(
    use === "free" ? "DOUBLE_FREE" : "DEAD_STORAGE",
    `${use}: ${describe(storage)} is dead. It was allocated in generation ${storage.generation}` +
      `${step > 0 ? ` (step ${step})` : ""}, and the arena is at generation ${now}. ` +
      "Pin a storage that must outlive its step, or use it inside the step.",
    { numbers: { generation: storage.generation, now, step } },
  );
}

export function deadInSubArena(storage: Storage, use: string): HoldfastError {
  return new HoldfastError(
    use === "free" ? "DOUBLE_FREE" : "DEAD_STORAGE",
    `${use}: ${describe(storage)} is dead. It was allocated in a sub-arena, and ended with the function that ran in it. ` +
      "Use it inside that function, or copy it to memory outside the sub-arena.",
  );
}

export function nestedStep(step: number, open: number): HoldfastError {
  return new HoldfastError(
    "STEP_NESTED",
    `Cannot open step ${step} inside step ${open}. End that one first.`,
  );
}

export function resetDuringStep(open: number): HoldfastError {
  return new HoldfastError(
    "STEP_NESTED",
    `Cannot reset the arena inside step ${open}: the step still needs its memory. The end of the step resets the arena.`,
  );
}
