/**
 * The choices that determine an instruction: random numbers, taken one after another. A smaller number is
 * simpler.
 */

export class Choices {
  readonly #numbers: readonly number[];
  #next = 0;

  constructor(numbers: readonly number[]) {
    this.#numbers = numbers;
  }

  /** An integer below a limit; 0 if no numbers are left. */
  below(limit: number): number {
    const number = this.#numbers[this.#next] ?? 0;
    this.#next += 1;
    return number % limit;
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
