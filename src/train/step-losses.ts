/**
 * The losses of steps out of those of their batches. The two compiled functions of a training bring their losses to the host
 * apart, and some calls late; a step's loss is known once those of all its batches are.
 */

export class StepLosses {
  /** Of each step that was sent and is not known yet: the shares of its batches in its rows. */
  readonly #waiting: (readonly number[])[] = [];
  /** Losses that have come and belong to no known step yet: of batches that were only added, and of last batches. */
  readonly #added: number[] = [];
  readonly #updates: number[] = [];
  #known: number[] = [];

  /** Notes a step that was sent, with the shares of its batches in its rows. */
  sent(shares: readonly number[]): void {
    this.#waiting.push(shares);
    this.#join();
  }

  /** Takes losses of batches whose gradients were only added, in the order of their calls. */
  noteAdded(losses: readonly number[]): void {
    this.#added.push(...losses);
    this.#join();
  }

  /** Takes losses of the last batches of steps, in the order of their calls. */
  noteUpdates(losses: readonly number[]): void {
    this.#updates.push(...losses);
    this.#join();
  }

  /** The losses of steps that have become known since the last call: of each, the mean over the rows of its batches. */
  take(): readonly number[] {
    const known = this.#known;
    if (known.length > 0) this.#known = [];
    return known;
  }

  #join(): void {
    for (let shares = this.#waiting[0]; shares; shares = this.#waiting[0]) {
      const others = shares.length - 1;
      if (this.#updates.length === 0 || this.#added.length < others) return;
      const losses = [...this.#added.splice(0, others), ...this.#updates.splice(0, 1)];
      this.#known.push(meanOf(losses, shares));
      this.#waiting.shift();
    }
  }
}

/** A single loss as it is, whatever its share was rounded to. */
function meanOf(losses: readonly number[], shares: readonly number[]): number {
  const [only] = losses;
  if (losses.length === 1 && only !== undefined) return only;
  return losses.reduce((sum, loss, index) => sum + loss * (shares[index] ?? 0), 0);
}
