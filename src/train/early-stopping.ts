/** Ends a training when a figure has not become better for some epochs. */

import { HoldfastError } from "../errors/index.js";

/** Options of `EarlyStopping`. */
export interface EarlyStoppingOptions {
  /** The figure of an epoch that is looked at: `loss`, or one that the evaluation gives. */
  readonly figure: string;
  /** Epochs without anything better before it ends. */
  readonly patience: number;
  /** Which is better; default: "smaller". */
  readonly better?: "smaller" | "larger";
  /** By how much a figure has to be better to count; default: 0. */
  readonly least?: number;
}

/** What it goes on from; plain numbers, for JSON. */
export interface EarlyStoppingState {
  readonly best: number | undefined;
  readonly bestEpoch: number;
  readonly waited: number;
}

/**
 * Says when a figure has not become better for some epochs. `Trainer` has it as an option; a loop of your own asks it.
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
    const { patience, least = 0 } = options;
    if (!Number.isSafeInteger(patience) || patience < 1) {
      throw new HoldfastError(
        "BAD_ARGUMENT",
        `patience is ${patience}; give a whole number of epochs, 1 or more.`,
      );
    }
    if (!(least >= 0)) throw new HoldfastError("BAD_ARGUMENT", `least is ${least}; give a number from 0 on.`);
    this.#options = { better: "smaller", least: 0, ...options };
  }

  /**
   * All that it goes on from; plain numbers, for JSON.
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
   * Goes on from a state.
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
   * Notes an epoch's figures; true where training should end.
   *
   * @example
   * ```ts
   * import { EarlyStopping } from "holdfast";
   * const stopping = new EarlyStopping({ figure: "accuracy", patience: 1, better: "larger" });
   * console.log(stopping.note(0, { accuracy: 0.5 }), stopping.note(1, { accuracy: 0.4 })); // → false true
   * ```
   */
  note(epoch: number, figures: Readonly<Record<string, number>>): boolean {
    const { figure, patience, better, least } = this.#options;
    const value = figures[figure];
    if (value === undefined) {
      throw new HoldfastError(
        "BAD_ARGUMENT",
        `Early stopping looks at "${figure}", and an epoch has ${Object.keys(figures).join(", ")}. Name one of these.`,
      );
    }
    const { best, waited } = this.#state;
    const gain = best === undefined ? Infinity : better === "smaller" ? best - value : value - best;
    // A figure that is no number is never better.
    const isBetter = best === undefined ? !Number.isNaN(value) : gain > least;
    this.#state = isBetter
      ? { best: value, bestEpoch: epoch, waited: 0 }
      : { ...this.#state, waited: waited + 1 };
    return this.#state.waited >= patience;
  }
}
