/**
 * The budget: every byte is charged here, under a label, before the driver is asked for it. A charge that does not fit
 * is rejected with the table of holders, so that "out of memory" names them.
 */

import { HoldfastError } from "../../errors/index.js";
import { type Bytes, bytes, formatBytes } from "../../units/index.js";
import type { Recorder } from "../observe/recorder.js";
import { type BudgetLabel, budgetLabels, type SharedStatus } from "../observe/shared-status.js";
import type { OutOfMemory } from "./diagnose-oom.js";

/** A charge of bytes to the budget; return it once. */
export interface Charge {
  readonly label: BudgetLabel;
  readonly size: Bytes;
  /** The holder: a region's name or an op. */
  readonly holder: string;
}

/** From this share on, the budget reports pressure. */
const pressureShare = 0.9;

export interface BudgetOptions {
  readonly limit: Bytes;
  /** Where the limit comes from, for errors: `HOLDFAST_MEMORY` or the reason of the default. */
  readonly reason: string;
  readonly sharedStatus: SharedStatus;
  readonly recorder: Recorder;
  /** The bytes available now, independent of the limit. Called at every charge. */
  readonly available: () => Bytes;
  /** Called when the budget comes under pressure, and when it rejects a charge, with the request. */
  readonly onMemoryPressure: (oom?: OutOfMemory) => void;
}

/** The budget's limit, and the holders of its bytes. */
export class Budget {
  readonly limit: Bytes;
  readonly reason: string;
  readonly #options: BudgetOptions;
  readonly #used: Float64Array;
  readonly #charges = new Set<Charge>();

  constructor(options: BudgetOptions) {
    this.limit = options.limit;
    this.reason = options.reason;
    this.#options = options;
    this.#used = options.sharedStatus.budgetUsed;
    options.sharedStatus.budgetLimit = options.limit;
  }

  get used(): Bytes {
    return this.#used.reduce((sum, bytes) => sum + bytes, 0) as Bytes;
  }

  get left(): Bytes {
    return (this.limit - this.used) as Bytes;
  }

  usedBy(label: BudgetLabel): Bytes {
    return (this.#used[budgetLabels.indexOf(label)] ?? 0) as Bytes;
  }

  /** Charges bytes to the budget, or throws and changes nothing. */
  charge(label: BudgetLabel, size: Bytes, holder: string): Charge {
    const charge: Charge = { label, size: bytes(size), holder };
    const available = this.#options.available();
    if (size > this.left || size > available) {
      this.#options.recorder.record("reject", holder, 0, size);
      const isGrowth = label === "step arena";
      this.#options.onMemoryPressure({ requested: size, obstacle: isGrowth ? "memory" : "budget" });
      throw this.#rejection(charge, available);
    }
    this.#charges.add(charge);
    this.#add(label, size);
    this.#options.recorder.record("charge", holder, 0, size);
    if (this.used > pressureShare * this.limit) this.#options.onMemoryPressure();
    return charge;
  }

  /** True if a charge fits and leaves the budget without pressure. */
  fitsWithoutPressure(size: Bytes): boolean {
    return this.used + size <= pressureShare * this.limit && size <= this.#options.available();
  }

  release(charge: Charge): void {
    if (!this.#charges.delete(charge)) {
      throw new HoldfastError(
        "DOUBLE_FREE",
        `Cannot return the charge of ${formatBytes(charge.size)} for ${charge.holder} (${charge.label}): it was already returned, or is not ` +
          "a charge of this budget. Return a charge once.",
      );
    }
    this.#add(charge.label, -charge.size);
  }

  /** Bytes in use under each label. */
  get usedByLabel(): Readonly<Record<BudgetLabel, number>> {
    return this.#options.sharedStatus.readBudget();
  }

  /** The largest holders, largest first. Charges of one holder under one label are summed. */
  holders(count = 10): Charge[] {
    const merged = new Map<string, Charge>();
    for (const { label, holder, size } of this.#charges) {
      const key = `${label}\n${holder}`;
      merged.set(key, { label, holder, size: (size + (merged.get(key)?.size ?? 0)) as Bytes });
    }
    return [...merged.values()].sort((a, b) => b.size - a.size).slice(0, count);
  }

  /** The table of bytes by label, for errors and diagnostics. */
  table(): string {
    const row = (name: string, size: number, note = ""): string =>
      `  ${name.padEnd(18)}${formatBytes(size).padStart(12)}${note && `   ${note}`}`;
    const rows = [row("limit", this.limit, this.reason), row("in use", this.used), row("left", this.left)];
    for (const label of budgetLabels) {
      const size = this.usedBy(label);
      if (size > 0) rows.push(row(`· ${label}`, size));
    }
    return rows.join("\n");
  }

  #rejection(request: Charge, available: Bytes): HoldfastError {
    const { label, size, holder } = request;
    const largest = this.holders(5)
      .map((charge) => `  · ${charge.holder} (${charge.label}) ${formatBytes(charge.size)}`)
      .join("\n");
    const isLimit = size > this.left;
    return new HoldfastError(
      "OUT_OF_BUDGET",
      `The budget cannot provide ${formatBytes(size)} (${label}: ${holder}); ` +
        (isLimit
          ? `${formatBytes(this.left)} is left of ${formatBytes(this.limit)}.\n`
          : `the limit would allow it, but only ${formatBytes(available)} is available on this machine.\n`) +
        `${this.table()}\n${largest ? `The largest holders:\n${largest}\n` : ""}` +
        (isLimit
          ? "What to change: raise HOLDFAST_MEMORY if the machine has more memory, use a smaller batch, or keep fewer tensors."
          : "What to change: end other programs that use this machine's memory, or use a smaller batch."),
      {
        numbers: {
          asked: size,
          left: this.left,
          limit: this.limit,
          used: this.used,
          available,
          label,
          holder,
        },
      },
    );
  }

  #add(label: BudgetLabel, size: number): void {
    const index = budgetLabels.indexOf(label);
    this.#used[index] = (this.#used[index] ?? 0) + size;
  }
}
