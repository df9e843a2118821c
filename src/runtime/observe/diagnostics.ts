/**
 * The memory diagnostics: one record with the figures that explain running out of memory, and its text. Printed when
 * memory first gets short, on demand, and at the start if phases are logged.
 */

import type { DeviceInfo } from "../../driver/index.js";
import { formatBytes } from "../../units/index.js";
import type { Arena } from "../memory/arena.js";
import type { Holder } from "../memory/arena-blocks.js";
import type { Budget } from "../memory/budget.js";
import type { OomDiagnosis, OutOfMemory } from "../memory/diagnose-oom.js";
import type { TransferCount } from "../transfer/transfer.js";
import type { ArenaFigure, BudgetLabel } from "./shared-status.js";

/** The state of a runtime's memory. */
export interface Diagnostics {
  readonly device: { readonly kind: string; readonly name: string; readonly memory: string };
  readonly step: number;
  readonly budget: {
    readonly limit: number;
    readonly reason: string;
    readonly used: number;
    readonly left: number;
    readonly usedByLabel: Readonly<Record<BudgetLabel, number>>;
    /** The largest holders, at most 8. */
    readonly holders: readonly { label: BudgetLabel; holder: string; size: number }[];
  };
  readonly arena: Readonly<Record<ArenaFigure, number>> & {
    readonly resetsDrivenBy: "a step scope" | "a call" | "nothing";
    readonly holders: readonly Holder[];
  };
  readonly transfers: { readonly up: TransferCount; readonly down: TransferCount };
  /** Why the rejected request does not fit, or why the next one would not. */
  readonly diagnosis: OomDiagnosis | "no pressure";
}

/** The share of the capacity or the limit from which memory is under pressure. */
const pressureShare = 0.9;

export function diagnose(inputs: {
  readonly device: DeviceInfo;
  readonly step: number;
  readonly budget: Budget;
  readonly arena: Arena;
  readonly up: TransferCount;
  readonly down: TransferCount;
  /** The request that caused the pressure. */
  readonly oom?: OutOfMemory | undefined;
}): Diagnostics {
  const { device, step, budget, arena, up, down } = inputs;
  const figures = arena.figures;
  const oom = inputs.oom ?? nextOutOfMemory(figures, budget);
  return {
    device: { kind: device.kind, name: device.name, memory: device.memory },
    step,
    budget: {
      limit: budget.limit,
      reason: budget.reason,
      used: budget.used,
      left: budget.left,
      usedByLabel: budget.usedByLabel,
      holders: budget.holders(8),
    },
    arena: {
      ...figures,
      resetsDrivenBy:
        figures.resetsByStep > 0 ? "a step scope" : figures.resetsByCall > 0 ? "a call" : "nothing",
      holders: arena.holders(8),
    },
    transfers: { up: { ...up }, down: { ...down } },
    diagnosis: oom ? arena.diagnoseOom(oom) : "no pressure",
  };
}

/** The smallest request that would not fit; undefined unless memory is under pressure. */
function nextOutOfMemory(figures: Record<ArenaFigure, number>, budget: Budget): OutOfMemory | undefined {
  const { live, capacity } = figures;
  if (live > pressureShare * capacity) return { requested: capacity - live + 1, obstacle: "arena" };
  if (budget.used > pressureShare * budget.limit) return { requested: budget.left + 1, obstacle: "budget" };
  return undefined;
}

/** The diagnostics as text. */
export function diagnosticsText(state: Diagnostics, occasion: string): string {
  const { device, budget, arena, transfers, diagnosis } = state;
  const size = formatBytes;
  const row = (name: string, text: string): string => `  ${name.padEnd(12)}${text}`;
  const list = (holders: readonly { name: string; size: number }[]): string =>
    holders.length === 0 ? "none" : holders.map((holder) => `${holder.name} ${size(holder.size)}`).join(", ");
  return [
    `holdfast: memory ${occasion}: ${device.name}`,
    row("budget", `${size(budget.used)} of ${size(budget.limit)} in use (${budget.reason})`),
    row(
      "holders",
      list(
        budget.holders.map((charge) => ({ name: `${charge.holder} [${charge.label}]`, size: charge.size })),
      ),
    ),
    row(
      "arena",
      `capacity ${size(arena.capacity)}, committed ${size(arena.committed)}, offset ${size(arena.offset)}, ` +
        `high-water ${size(arena.highWater)}, live ${size(arena.live)}, generation ${arena.generation}`,
    ),
    row("pins", `${arena.pins} on ${size(arena.pinned)}`),
    row(
      "step",
      `${state.step}: ${arena.allocationsThisStep} allocations, ${size(arena.bytesThisStep)}; ` +
        `in all ${arena.allocations} allocations, ${size(arena.bytes)}`,
    ),
    row("served", `${arena.hits} hits, ${arena.reuses} reuses, ${arena.misses} misses (the arena grew)`),
    row(
      "resets",
      `${arena.resetsByStep} by steps, ${arena.resetsByCall} by calls: driven by ${arena.resetsDrivenBy}`,
    ),
    row(
      "ops",
      list(arena.holders.map((holder) => ({ name: `${holder.label} ×${holder.count}`, size: holder.size }))),
    ),
    row("transfers", `${transferText(transfers.up)} up, ${transferText(transfers.down)} down`),
    row(
      "diagnosis",
      typeof diagnosis === "string" ? diagnosis : `${diagnosis.cause}: ${diagnosis.why}. ${diagnosis.help}`,
    ),
    "",
  ].join("\n");
}

function transferText({ copies, bytes, tensors }: TransferCount): string {
  return `${tensors} tensors, ${formatBytes(bytes)} in ${copies} copies`;
}
