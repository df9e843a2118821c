/** Rejects a planned step that can't have its memory, before any is asked for: who needs it, and what would fit. */

import { HoldfastError } from "../../errors/index.js";
import type { Runtime } from "../../runtime/index.js";
import { formatBytes } from "../../units/index.js";
import type { MemoryReport } from "./memory-report.js";

/** Who is to get the memory, for the rejection. */
export interface AvailableBytes {
  readonly name: string;
  /** The dtypes and shapes that the plan is for, as one text. */
  readonly inputs: string;
  readonly shapes: readonly (readonly number[])[];
  /** What other plans of the same step hold of step memory. */
  readonly otherPlans: number;
}

const maxHolders = 5;

/** Can a plan have its memory? */
export function fitsMemory(runtime: Runtime, { peak }: MemoryReport): boolean {
  return peak <= availableMemory(runtime).room;
}

/** Returns if the budget and what lies free in the arena can give a plan its memory, and throws OUT_OF_BUDGET otherwise. */
export function requireAvailable(
  { budget, arena }: Runtime,
  memory: MemoryReport,
  wanted: AvailableBytes,
): void {
  const { peak } = memory;
  const { free, room, isArenaFull } = availableMemory({ budget, arena });
  if (peak <= room) return;
  const { name, inputs, otherPlans } = wanted;
  const batch = batchOf(wanted.shapes);
  const fitting = batch === undefined ? 0 : Math.floor((batch * room) / peak);
  throw new HoldfastError(
    "OUT_OF_BUDGET",
    [
      `Compiled ${name} needs ${formatBytes(peak)} of step memory at once for inputs ${inputs}, and ${formatBytes(room)} can be had. ` +
        "Nothing was taken for it.",
      budget.table(),
      `  ${"free in the arena".padEnd(18)}${formatBytes(free).padStart(12)}`,
      `The most is live at call ${memory.at}, ${memory.op}:`,
      ...holdersOf(memory),
      `What to change: ${adviceFor(batch, fitting, otherPlans, isArenaFull)}`,
    ].join("\n"),
    {
      numbers: {
        ...{ peak, room, free, limit: budget.limit, used: budget.used, op: memory.op },
        ...(batch !== undefined && { batch, fitting }),
      },
    },
  );
}

/** What can be had for step memory: what lies free in the arena and what the budget has left, up to the arena's own limit. */
export function availableMemory({ budget, arena }: Pick<Runtime, "budget" | "arena">): {
  readonly free: number;
  readonly room: number;
  /** Is it the arena's limit that stands in the way of more? */
  readonly isArenaFull: boolean;
} {
  const { capacity, committed, live } = arena.figures;
  const free = Math.max(0, committed - live);
  const [byBudget, byArena] = [budget.left + free, capacity - live];
  return { free, room: Math.min(byBudget, byArena), isArenaFull: byArena < byBudget };
}

function holdersOf({ holders }: MemoryReport): string[] {
  const rest = holders.slice(maxHolders);
  const restBytes = rest.reduce((sum, { bytes }) => sum + bytes, 0);
  return [
    ...holders
      .slice(0, maxHolders)
      .map(({ label, bytes, count }) => `  · ${label} ${formatBytes(bytes)} in ${count}`),
    ...(rest.length > 0 ? [`  · ${rest.length} others ${formatBytes(restBytes)}`] : []),
  ];
}

function adviceFor(
  batch: number | undefined,
  fitting: number,
  otherPlans: number,
  isArenaFull: boolean,
): string {
  const ways = [
    ...(batch !== undefined && fitting > 0
      ? [`a batch of about ${fitting} instead of ${batch} should fit`]
      : ["use a smaller batch"]),
    "values in bf16 take half of what those in f32 do",
    ...(otherPlans > 0
      ? [`the step's other plans hold ${formatBytes(otherPlans)}, which its close() gives back`]
      : []),
    isArenaFull
      ? "raise HOLDFAST_ARENA, which holds the arena below the budget"
      : "raise HOLDFAST_MEMORY if the machine has more",
  ];
  return `${ways.join("; ")}.`;
}

/** The size of the first axis, where all inputs that have axes have the same; step memory then grows with it. */
function batchOf(shapes: readonly (readonly number[])[]): number | undefined {
  const firsts = new Set(shapes.flatMap(([first]) => first ?? []));
  const [batch] = firsts;
  return firsts.size === 1 ? batch : undefined;
}
