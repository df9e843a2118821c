/** Finds stop strings in text that arrives in pieces. */

/** What a piece of text completes. */
export interface CompletedText {
  /** Text that no stop string can begin in. */
  readonly text: string;
  /** True if a stop string was found. The text ends before it. */
  readonly isStopped: boolean;
}

/** Holds text back while it may be the beginning of a stop string. */
export class StopText {
  readonly #stops: readonly string[];
  #held = "";

  constructor(stops: readonly string[]) {
    this.#stops = stops;
  }

  push(text: string): CompletedText {
    this.#held += text;
    const found = this.#stops.map((stop) => this.#held.indexOf(stop)).filter((at) => at >= 0);
    if (found.length > 0) {
      const before = this.#held.slice(0, Math.min(...found));
      this.#held = "";
      return { text: before, isStopped: true };
    }
    return { text: this.#give(this.#held.length - this.#heldLength()), isStopped: false };
  }

  /** The text that was held back, when no more follows. */
  end(): string {
    return this.#give(this.#held.length);
  }

  /** The length of the longest end of the text that a stop string begins with. */
  #heldLength(): number {
    let longest = 0;
    for (const stop of this.#stops) {
      for (let length = Math.min(stop.length - 1, this.#held.length); length > longest; length--)
        if (this.#held.endsWith(stop.slice(0, length))) longest = length;
    }
    return longest;
  }

  #give(length: number): string {
    const text = this.#held.slice(0, length);
    this.#held = this.#held.slice(length);
    return text;
  }
}
