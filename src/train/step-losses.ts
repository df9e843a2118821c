/**
 * Computes the losses of steps from those of their batches. The two compiled functions of a training deliver their losses
 * separately, and some calls late. A step's loss is computed after the losses of all its batches have arrived.
 */

export class StepLosses {
  /** Per sent step without a loss: the shares of its batches in its rows. */
  readonly #pending: (readonly number[])[] = [];
  /** Delivered losses that are not assigned yet: of accumulating batches, and of the last batches of steps. */
  readonly #added: number[] = [];
  readonly #updates: number[] = [];
  /** Losses of steps that `take` has not returned. */
  #losses: number[] = [];

  /** Notes a sent step, with the shares of its batches in its rows. */
  sent(shares: readonly number[]): void {
    this.#pending.push(shares);
    this.#assign();
  }

  /** Notes losses of batches that only accumulated gradients, in call order. */
  noteAdded(losses: readonly number[]): void {
    this.#added.push(...losses);
    this.#assign();
  }

  /** Notes losses of the last batches of steps, in call order. */
  noteUpdates(losses: readonly number[]): void {
    this.#updates.push(...losses);
    this.#assign();
  }

  /** The new losses of steps since the last call. A step's loss is the mean over the rows of its batches. */
  take(): readonly number[] {
    const losses = this.#losses;
    if (losses.length > 0) this.#losses = [];
    return losses;
  }

  #assign(): void {
    for (let shares = this.#pending[0]; shares; shares = this.#pending[0]) {
      const others = shares.length - 1;
      if (this.#updates.length === 0 || this.#added.length < others) return;
      const losses = [...this.#added.splice(0, others), ...this.#updates.splice(0, 1)];
      this.#losses.push(meanOf(losses, shares));
      this.#pending.shift();
    }
  }
}

/** A single loss is returned unchanged, without rounding by its share. */
function meanOf(losses: readonly number[], shares: readonly number[]): number {
  const [only] = losses;
  if (losses.length === 1 && only !== undefined) return only;
  return losses.reduce((sum, loss, index) => sum + loss * (shares[index] ?? 0), 0);
}
