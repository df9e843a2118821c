/**
 * The losses of steps out of those of their batches. The two compiled functions of a training bring their losses to the host
 * apart, and some calls late; a step's loss is known once those of all its batches are.
 */

export class StepLosses {
  /** Of each step, in order: the mean over the rows of its batches. */
  readonly known: number[] = [];
  /** Of each step that was sent and is not known yet: the shares of its batches in its rows. */
  readonly #waiting: (readonly number[])[] = [];
  /** How many losses of each history were used. */
  #usedOfAdded = 0;
  #usedOfUpdates = 0;

  /** Notes a step that was sent, with the shares of its batches in its rows. */
  sent(shares: readonly number[]): void {
    this.#waiting.push(shares);
  }

  /**
   * Takes over what has come: the losses of batches whose gradients were only added, and those of the last batches of
   * steps. Both are histories from the start on, or with `areNew` what has come since the last call.
   */
  collect(added: readonly number[], updates: readonly number[], areNew = false): void {
    const [addedFrom, updatesFrom] = areNew ? [0, 0] : [this.#usedOfAdded, this.#usedOfUpdates];
    let [addedAt, updatesAt] = [addedFrom, updatesFrom];
    for (let shares = this.#waiting[0]; shares; shares = this.#waiting[0]) {
      const others = shares.length - 1;
      const last = updates[updatesAt];
      if (last === undefined || addedAt + others > added.length) break;
      const losses = [...added.slice(addedAt, addedAt + others), last];
      this.known.push(meanOf(losses, shares));
      addedAt += others;
      updatesAt += 1;
      this.#waiting.shift();
    }
    this.#usedOfAdded += addedAt - addedFrom;
    this.#usedOfUpdates += updatesAt - updatesFrom;
  }
}

/** A single loss as it is, whatever its share was rounded to. */
function meanOf(losses: readonly number[], shares: readonly number[]): number {
  const [only] = losses;
  if (losses.length === 1 && only !== undefined) return only;
  return losses.reduce((sum, loss, index) => sum + loss * (shares[index] ?? 0), 0);
}
