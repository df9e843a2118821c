/** The texts of all requests: starts them in the generator, and rejects those that would wait too long. */

import type { Generation, Generator } from "../generate/index.js";
import { RequestError } from "./request-error.js";
import type { TextRequest } from "./text-request.js";

/** The texts of a request. */
export interface TextJob {
  readonly generations: readonly Generation[];
  /** Resolves when all have ended. Never rejects. */
  readonly ended: Promise<void>;
  /** Ends those that run. A reader of a text gets the reason. */
  abort(reason: Error): void;
}

export class TextQueue {
  readonly #generator: Generator;
  readonly #maxWaiting: number;
  readonly #jobs = new Set<TextJob>();
  #texts = 0;
  /** A moving average of how long texts run, with their wait. */
  #textMs = 1000;

  constructor(generator: Generator, maxWaiting: number) {
    this.#generator = generator;
    this.#maxWaiting = maxWaiting;
  }

  /** Texts that run. */
  get running(): number {
    return Math.min(this.#texts, this.#generator.slots);
  }

  /** Texts that wait for a slot. */
  get waiting(): number {
    return this.#texts - this.running;
  }

  /** Starts the texts of a request. Each has a seed of its own. */
  start({ prompts, n, options }: TextRequest): TextJob {
    const count = prompts.length * n;
    const { slots } = this.#generator;
    if (this.#texts + count > slots + this.#maxWaiting) {
      throw new RequestError(
        429,
        `${this.running} texts run and ${this.waiting} wait; the maximum is ${slots} and ${this.#maxWaiting}. Try again.`,
        { code: "rate_limit_exceeded", retryAfterS: this.#retryAfterS() },
      );
    }
    const controller = new AbortController();
    const startedMs = performance.now();
    const generations: Generation[] = [];
    try {
      for (const prompt of prompts)
        for (let choice = 0; choice < n; choice++) {
          const { seed } = options;
          const index = generations.length;
          generations.push(
            this.#generator.start(prompt, {
              ...options,
              ...(seed !== undefined && { seed: BigInt.asUintN(64, BigInt(seed) + BigInt(index)) }),
              signal: controller.signal,
            }),
          );
        }
    } catch (error) {
      for (const generation of generations) generation.cancel();
      throw error;
    }
    this.#texts += count;
    const each = generations.map((generation) => this.#waitFor(generation, startedMs));
    const job: TextJob = {
      generations,
      ended: Promise.all(each).then(() => void this.#jobs.delete(job)),
      abort: (reason) => controller.abort(reason),
    };
    this.#jobs.add(job);
    return job;
  }

  /** Resolves when no text is left. */
  async idle(): Promise<void> {
    await Promise.all([...this.#jobs].map(({ ended }) => ended));
  }

  abortAll(reason: Error): void {
    for (const job of this.#jobs) job.abort(reason);
  }

  async #waitFor(generation: Generation, startedMs: number): Promise<void> {
    // Readers of the text handle its errors.
    await generation.result().catch(() => undefined);
    this.#texts -= 1;
    this.#textMs += 0.2 * (performance.now() - startedMs - this.#textMs);
  }

  /** About when a slot is free. */
  #retryAfterS(): number {
    const ms = (this.#textMs * (this.waiting + 1)) / (this.#generator.slots + this.waiting);
    return Math.min(60, Math.max(1, Math.ceil(ms / 1000)));
  }
}
