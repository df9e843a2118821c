/**
 * The budget: every byte is charged here, under a label, before the driver is asked for it. What does not fit is
 * rejected with the table of holders, so that "out of memory" always says whose.
 */

import { HoldfastError } from "../../errors/index.js";
import { type Bytes, bytes, formatBytes } from "../../units/index.js";
import type { Recorder } from "../observe/recorder.js";
import { type BudgetLabel, budgetLabels, type SharedStatus } from "../observe/shared-status.js";
import type { OutOfMemory } from "./diagnose-oom.js";

/** A rejectable, returnable hold on bytes. */
export interface Charge {
  readonly label: BudgetLabel;
  readonly size: Bytes;
  /** What the bytes are for: a region's name, an op. */
  readonly holder: string;
}

/** From here on the budget is said to be under pressure. */
const pressureShare = 0.9;

export interface BudgetOptions {
  readonly limit: Bytes;
  /** Where the limit comes from, for the rejection: `HOLDFAST_MEMORY` or a default's reason. */
  readonly reason: string;
  readonly sharedStatus: SharedStatus;
  readonly recorder: Recorder;
  /** The bytes that may be taken right now, whatever the limit says; asked at every charge. */
  readonly available: () => Bytes;
  /** Called when the budget comes under pressure, and when it rejects: then with what was asked. */
  readonly onPressure: (shortage?: OutOfMemory) => void;
}

/** The bytes that may be held, and who holds them. */
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
    return this.#used.reduce((sum, one) => sum + one, 0) as Bytes;
  }

  get left(): Bytes {
    return (this.limit - this.used) as Bytes;
  }

  usedBy(label: BudgetLabel): Bytes {
    return (this.#used[budgetLabels.indexOf(label)] ?? 0) as Bytes;
  }

  /** Takes bytes out of the budget, or rejects and changes nothing. */
  charge(label: BudgetLabel, size: Bytes, holder: string): Charge {
    const charge: Charge = { label, size: bytes(size), holder };
    const available = this.#options.available();
    if (size > this.left || size > available) {
      this.#options.recorder.record("reject", holder, 0, size);
      const isGrowth = label === "step arena";
      this.#options.onPressure({ asked: size, obstacle: isGrowth ? "memory" : "budget" });
      throw this.#rejection(charge, available);
    }
    this.#charges.add(charge);
    this.#add(label, size);
    this.#options.recorder.record("charge", holder, 0, size);
    if (this.used > pressureShare * this.limit) this.#options.onPressure();
    return charge;
  }

  release(charge: Charge): void {
    if (!this.#charges.delete(charge)) {
      throw new HoldfastError(
        "DOUBLE_FREE",
        `The charge of ${formatBytes(charge.size)} for ${charge.holder} (${charge.label}) was returned before, or is not ` +
          "of this budget. Return a charge once.",
      );
    }
    this.#add(charge.label, -charge.size);
  }

  /** The largest holders, largest first, charges of one holder under one label added up. */
  holders(count = 10): Charge[] {
    const merged = new Map<string, Charge>();
    for (const { label, holder, size } of this.#charges) {
      const key = `${label}\n${holder}`;
      merged.set(key, { label, holder, size: (size + (merged.get(key)?.size ?? 0)) as Bytes });
    }
    return [...merged.values()].sort((a, b) => b.size - a.size).slice(0, count);
  }

  /** The table that rejections and diagnostics print. */
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

  #rejection(asked: Charge, available: Bytes): HoldfastError {
    const { label, size, holder } = asked;
    const largest = this.holders(5)
      .map((one) => `  · ${one.holder} (${one.label}) ${formatBytes(one.size)}`)
      .join("\n");
    const isLimit = size > this.left;
    return new HoldfastError(
      "OUT_OF_BUDGET",
      `The budget has no room for ${formatBytes(size)} (${label}: ${holder}); ` +
        (isLimit
          ? `${formatBytes(this.left)} is left of ${formatBytes(this.limit)}.\n`
          : `the limit would allow it, but the machine has only ${formatBytes(available)} to give.\n`) +
        `${this.table()}\n${largest ? `The largest holders:\n${largest}\n` : ""}` +
        (isLimit
          ? "What to change: raise HOLDFAST_MEMORY if the machine has more, use a smaller batch, or hold less."
          : "What to change: end what else uses this machine's memory, or use a smaller batch."),
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
