/** Rejects a planned step whose memory is not available, before anything is allocated. The error lists the holders and a batch that fits. */

import { HoldfastError } from "../../errors/index.js";
import type { Runtime } from "../../runtime/index.js";
import { formatBytes } from "../../units/index.js";
import type { MemoryReport } from "./memory-report.js";

/** The step that needs the memory, for the error. */
export interface MemoryRequest {
  readonly name: string;
  /** The dtypes and shapes of the plan's inputs, as one text. */
  readonly inputs: string;
  readonly shapes: readonly (readonly number[])[];
  /** Step memory of other plans of the same step. */
  readonly otherPlans: number;
}

const maxHolders = 5;

/** True if a plan's memory is available. */
export function fitsMemory(runtime: Runtime, { peak }: MemoryReport): boolean {
  return peak <= availableMemory(runtime).available;
}

/** Throws OUT_OF_BUDGET if the budget and the free memory of the arena are too small for a plan. */
export function requireAvailable(
  { budget, arena }: Runtime,
  memory: MemoryReport,
  request: MemoryRequest,
): void {
  const { peak } = memory;
  const { free, available, isArenaFull } = availableMemory({ budget, arena });
  if (peak <= available) return;
  const { name, inputs, otherPlans } = request;
  const batch = batchOf(request.shapes);
  const fitting = batch === undefined ? 0 : Math.floor((batch * available) / peak);
  throw new HoldfastError(
    "OUT_OF_BUDGET",
    [
      `Compiled ${name} needs ${formatBytes(peak)} of step memory at once${inputs === "" ? "" : ` for inputs ${inputs}`}, but only ${formatBytes(available)} is available. ` +
        "Nothing was allocated.",
      budget.table(),
      `  ${"free in the arena".padEnd(18)}${formatBytes(free).padStart(12)}`,
      `Most memory is live at call ${memory.at}, ${memory.op}:`,
      ...holdersOf(memory),
      `What to change: ${adviceFor(batch, fitting, otherPlans, isArenaFull)}`,
    ].join("\n"),
    {
      numbers: {
        ...{ peak, available, free, limit: budget.limit, used: budget.used, op: memory.op },
        ...(batch !== undefined && { batch, fitting }),
      },
    },
  );
}

/** Memory available for a step: free memory of the arena and the rest of the budget, up to the arena's limit. */
export function availableMemory({ budget, arena }: Pick<Runtime, "budget" | "arena">): {
  readonly free: number;
  readonly available: number;
  /** True if the arena's limit, and not the budget, is the bound. */
  readonly isArenaFull: boolean;
} {
  const { capacity, committed, live } = arena.figures;
  const free = Math.max(0, committed - live);
  const [byBudget, byArena] = [budget.left + free, capacity - live];
  return { free, available: Math.min(byBudget, byArena), isArenaFull: byArena < byBudget };
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
  const suggestions = [
    ...(batch !== undefined && fitting > 0
      ? [`a batch of about ${fitting} instead of ${batch} should fit`]
      : ["use a smaller batch"]),
    "use bf16, which takes half the memory of f32",
    ...(otherPlans > 0
      ? [`the step's other plans hold ${formatBytes(otherPlans)}, which its close() frees`]
      : []),
    isArenaFull
      ? "raise HOLDFAST_ARENA, which limits the arena to less than the budget"
      : "raise HOLDFAST_MEMORY if the machine has more",
  ];
  return `${suggestions.join("; ")}.`;
}

/** The size of the first axis, if all inputs with axes share it; step memory then grows with it. */
function batchOf(shapes: readonly (readonly number[])[]): number | undefined {
  const sizes = new Set(shapes.flatMap(([first]) => first ?? []));
  const [batch] = sizes;
  return sizes.size === 1 ? batch : undefined;
}
