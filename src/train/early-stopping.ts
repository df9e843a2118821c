/** Early stopping: ends a training if a figure has not improved for some epochs. */

import { HoldfastError } from "../errors/index.js";

/** Options of `EarlyStopping`. */
export interface EarlyStoppingOptions {
  /** The figure to watch: `loss`, or a figure of the evaluation. */
  readonly figure: string;
  /** Max. epochs without an improvement. */
  readonly patience: number;
  /** Which is better; default: "smaller". */
  readonly better?: "smaller" | "larger";
  /** Min. change that counts as an improvement; default: 0. */
  readonly minDelta?: number;
}

/** The state of early stopping; plain numbers, for JSON. */
export interface EarlyStoppingState {
  readonly best: number | undefined;
  readonly bestEpoch: number;
  readonly waited: number;
}

/**
 * Detects that a figure has not improved for some epochs. `Trainer` has it as an option; your own loop can call `note`.
 *
 * @example
 * ```ts
 * import { EarlyStopping } from "holdfast";
 * const stopping = new EarlyStopping({ figure: "loss", patience: 2 });
 * const losses = [3, 2, 2.5, 2.25];
 * console.log(losses.findIndex((loss, epoch) => stopping.note(epoch, { loss }))); // → 3
 * ```
 */
export class EarlyStopping {
  readonly #options: Required<EarlyStoppingOptions>;
  #state: EarlyStoppingState = { best: undefined, bestEpoch: -1, waited: 0 };

  constructor(options: EarlyStoppingOptions) {
    const { patience, minDelta = 0 } = options;
    if (!Number.isSafeInteger(patience) || patience < 1) {
      throw new HoldfastError(
        "BAD_ARGUMENT",
        `patience is ${patience}. It must be a whole number of epochs, 1 or more.`,
      );
    }
    if (!(minDelta >= 0))
      throw new HoldfastError("BAD_ARGUMENT", `minDelta is ${minDelta}. It must be at least 0.`);
    this.#options = { better: "smaller", minDelta: 0, ...options };
  }

  /**
   * The state; plain numbers, for JSON.
   *
   * @example
   * ```ts
   * import { EarlyStopping } from "holdfast";
   * const stopping = new EarlyStopping({ figure: "loss", patience: 2 });
   * stopping.note(0, { loss: 3 });
   * console.log(stopping.stateDict()); // → { best: 3, bestEpoch: 0, waited: 0 }
   * ```
   */
  stateDict(): EarlyStoppingState {
    return this.#state;
  }

  /**
   * Restores a state.
   *
   * @example
   * ```ts
   * import { EarlyStopping } from "holdfast";
   * const stopping = new EarlyStopping({ figure: "loss", patience: 2 });
   * stopping.loadStateDict({ best: 3, bestEpoch: 0, waited: 1 });
   * console.log(stopping.note(2, { loss: 4 })); // → true
   * ```
   */
  loadStateDict({ best, bestEpoch, waited }: EarlyStoppingState): void {
    this.#state = { best, bestEpoch, waited };
  }

  /**
   * Notes an epoch's figures. Returns true if training should end.
   *
   * @example
   * ```ts
   * import { EarlyStopping } from "holdfast";
   * const stopping = new EarlyStopping({ figure: "accuracy", patience: 1, better: "larger" });
   * console.log(stopping.note(0, { accuracy: 0.5 }), stopping.note(1, { accuracy: 0.4 })); // → false true
   * ```
   */
  note(epoch: number, figures: Readonly<Record<string, number>>): boolean {
    const { figure, patience, better, minDelta } = this.#options;
    const value = figures[figure];
    if (value === undefined) {
      throw new HoldfastError(
        "BAD_ARGUMENT",
        `Early stopping watches "${figure}", but an epoch has ${Object.keys(figures).join(", ")}. Choose one of these.`,
      );
    }
    const { best, waited } = this.#state;
    const gain = best === undefined ? Infinity : better === "smaller" ? best - value : value - best;
    // NaN is never better.
    const isBetter = best === undefined ? !Number.isNaN(value) : gain > minDelta;
    this.#state = isBetter
      ? { best: value, bestEpoch: epoch, waited: 0 }
      : { ...this.#state, waited: waited + 1 };
    return this.#state.waited >= patience;
  }
}
