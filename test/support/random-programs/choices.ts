/** Choices that an instruction is made by: numbers drawn beforehand, taken one after another. A smaller one is simpler. */

export class Choices {
  readonly #numbers: readonly number[];
  #next = 0;

  constructor(numbers: readonly number[]) {
    this.#numbers = numbers;
  }

  /** A whole number below a limit; 0 where no more were drawn. */
  below(limit: number): number {
    const drawn = this.#numbers[this.#next] ?? 0;
    this.#next += 1;
    return drawn % limit;
  }

  /** The first is the simplest. */
  of<T>(list: readonly T[]): T {
    return list[this.below(list.length)]!;
  }

  /** One time in so many. */
  isOneIn(times: number): boolean {
    return this.below(times) === times - 1;
  }
}
