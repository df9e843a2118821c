/** Generation: a text that is being generated. Its tokens and its text can be read as they arrive. */

import type { DecodeStream, Tokenizer } from "../text/index.js";
import type { ResolvedOptions } from "./options.js";
import { StopText } from "./stop-text.js";

/**
 * Why a text ended: a stop id or a stop string, the maximum number of tokens, or `cancel`.
 */
export type FinishReason = "stop" | "length" | "cancelled";

/** A generated text. */
export interface GenerationResult {
  /** The new text, without stop strings and special tokens; "" without a tokenizer. */
  readonly text: string;
  /** The new ids, without the stop id. */
  readonly tokens: readonly number[];
  readonly finishReason: FinishReason;
}

/**
 * A text that a `Generator` writes. It may be read in several ways at once; each reader gets all of it.
 *
 * @example
 * ```ts
 * import { ByteTokenizer, device, Generator, modelFromConfig } from "holdfast";
 * const cpu = await device("cpu");
 * const sizes = { vocab_size: 256, n_positions: 32, n_embd: 8, n_layer: 1, n_head: 2 };
 * const model = modelFromConfig({ model_type: "gpt2", ...sizes }).to(cpu);
 * const generator = new Generator(model, { tokenizer: new ByteTokenizer() });
 * const generation = generator.start("Hi", { maxNewTokens: 4 });
 * const tokens: number[] = [];
 * for await (const token of generation.tokens()) tokens.push(token);
 * const { finishReason } = await generation.result();
 * console.log(tokens.length, finishReason); // → 4 length
 * cpu.close();
 * ```
 */
export class Generation {
  readonly #options: ResolvedOptions;
  readonly #maxNewTokens: number;
  readonly #decoder: DecodeStream | undefined;
  readonly #stop: StopText;
  readonly #onEnd: (generation: Generation) => void;
  readonly #tokens: number[] = [];
  readonly #pieces: string[] = [];
  #finishReason: FinishReason | undefined;
  #error: unknown;
  #waiting: (() => void)[] = [];
  readonly #abort = (): void => {
    this.#error = this.#options.signal?.reason;
    this.cancel();
  };

  /** @internal */
  constructor(
    options: ResolvedOptions,
    maxNewTokens: number,
    tokenizer: Tokenizer | undefined,
    onEnd: (generation: Generation) => void,
  ) {
    this.#options = options;
    this.#maxNewTokens = maxNewTokens;
    this.#decoder = tokenizer?.decodeStream();
    this.#stop = new StopText(options.stop);
    this.#onEnd = onEnd;
    options.signal?.addEventListener("abort", this.#abort, { once: true });
    if (options.signal?.aborted) this.#abort();
  }

  /**
   * True when no more tokens follow.
   *
   * @example
   * ```ts
   * import { device, Generator, modelFromConfig } from "holdfast";
   * const cpu = await device("cpu");
   * const sizes = { vocab_size: 20, n_positions: 32, n_embd: 8, n_layer: 1, n_head: 2 };
   * const generator = new Generator(modelFromConfig({ model_type: "gpt2", ...sizes }).to(cpu));
   * const generation = generator.start([5], { maxNewTokens: 2 });
   * const before = generation.isFinished;
   * await generation.result();
   * console.log(before, generation.isFinished); // → false true
   * cpu.close();
   * ```
   */
  get isFinished(): boolean {
    return this.#finishReason !== undefined;
  }

  /**
   * The number of new tokens so far.
   *
   * @example
   * ```ts
   * import { device, Generator, modelFromConfig } from "holdfast";
   * const cpu = await device("cpu");
   * const sizes = { vocab_size: 20, n_positions: 32, n_embd: 8, n_layer: 1, n_head: 2 };
   * const generator = new Generator(modelFromConfig({ model_type: "gpt2", ...sizes }).to(cpu));
   * const generation = generator.start([5], { maxNewTokens: 2 });
   * await generation.result();
   * console.log(generation.length); // → 2
   * cpu.close();
   * ```
   */
  get length(): number {
    return this.#tokens.length;
  }

  /**
   * The new ids, as they arrive. A reader that leaves the loop early cancels the generation.
   *
   * @example
   * ```ts
   * import { device, Generator, modelFromConfig } from "holdfast";
   * const cpu = await device("cpu");
   * const sizes = { vocab_size: 20, n_positions: 32, n_embd: 8, n_layer: 1, n_head: 2 };
   * const generator = new Generator(modelFromConfig({ model_type: "gpt2", ...sizes }).to(cpu));
   * const generation = generator.start([5, 6, 7]);
   * for await (const token of generation.tokens()) if (token >= 0) break;
   * console.log(generation.isFinished, generation.length); // → true 1
   * cpu.close();
   * ```
   */
  tokens(): AsyncGenerator<number, void, undefined> {
    return this.#read(this.#tokens);
  }

  /**
   * The new text in pieces, as it arrives. A piece never ends inside a character. Text that may be the beginning of a stop string is held
   * back until that is known. A reader that leaves the loop early cancels the generation.
   *
   * @example
   * ```ts
   * import { ByteTokenizer, device, Generator, modelFromConfig } from "holdfast";
   * const cpu = await device("cpu");
   * const sizes = { vocab_size: 256, n_positions: 32, n_embd: 8, n_layer: 1, n_head: 2 };
   * const model = modelFromConfig({ model_type: "gpt2", ...sizes }).to(cpu);
   * const generation = new Generator(model, { tokenizer: new ByteTokenizer() }).start("Hi", { maxNewTokens: 4 });
   * let text = "";
   * for await (const piece of generation.pieces()) text += piece;
   * console.log(text === (await generation.result()).text); // → true
   * cpu.close();
   * ```
   */
  pieces(): AsyncGenerator<string, void, undefined> {
    return this.#read(this.#pieces);
  }

  /**
   * The whole text, when it has ended. Rejects with the reason of an aborted signal, and with errors of the device.
   *
   * @example
   * ```ts
   * import { device, Generator, modelFromConfig } from "holdfast";
   * const cpu = await device("cpu");
   * const sizes = { vocab_size: 20, n_positions: 32, n_embd: 8, n_layer: 1, n_head: 2 };
   * const generator = new Generator(modelFromConfig({ model_type: "gpt2", ...sizes }).to(cpu));
   * const { tokens, finishReason } = await generator.start([5, 6, 7], { maxNewTokens: 3 }).result();
   * console.log(tokens.length, finishReason); // → 3 length
   * cpu.close();
   * ```
   */
  async result(): Promise<GenerationResult> {
    while (!this.#finishReason) await this.#change();
    if (this.#error !== undefined) throw this.#error;
    return { text: this.#pieces.join(""), tokens: [...this.#tokens], finishReason: this.#finishReason };
  }

  /**
   * Ends the generation now, and frees its slot.
   *
   * @example
   * ```ts
   * import { device, Generator, modelFromConfig } from "holdfast";
   * const cpu = await device("cpu");
   * const sizes = { vocab_size: 20, n_positions: 32, n_embd: 8, n_layer: 1, n_head: 2 };
   * const generation = new Generator(modelFromConfig({ model_type: "gpt2", ...sizes }).to(cpu)).start([5]);
   * generation.cancel();
   * console.log((await generation.result()).finishReason); // → cancelled
   * cpu.close();
   * ```
   */
  cancel(): void {
    this.#finish("cancelled");
  }

  /** @internal Adds the next token. */
  push(token: number): void {
    if (this.isFinished) return;
    if (this.#options.stopIds.has(token)) {
      this.#finish("stop");
      return;
    }
    this.#tokens.push(token);
    const isStopped = this.#decoder !== undefined && this.#add(this.#decoder.push(token));
    if (isStopped) this.#finish("stop", true);
    else if (this.#tokens.length >= this.#maxNewTokens) this.#finish("length");
    else this.#notify();
  }

  /** @internal Ends it with an error. */
  fail(error: unknown): void {
    if (this.isFinished) return;
    this.#error = error;
    this.#finish("cancelled");
  }

  /** Adds text. True if it has a stop string. */
  #add(piece: string): boolean {
    if (piece === "") return false;
    const { text, isStopped } = this.#stop.push(piece);
    if (text !== "") this.#pieces.push(text);
    return isStopped;
  }

  /** After a stop string, no text follows. */
  #finish(reason: FinishReason, hasAllText = false): void {
    if (this.isFinished) return;
    this.#finishReason = reason;
    if (this.#decoder && !hasAllText && !this.#add(this.#decoder.end())) {
      const rest = this.#stop.end();
      if (rest !== "") this.#pieces.push(rest);
    }
    this.#options.signal?.removeEventListener("abort", this.#abort);
    this.#onEnd(this);
    this.#notify();
  }

  async *#read<T>(items: readonly T[]): AsyncGenerator<T, void, undefined> {
    try {
      for (let at = 0; ; ) {
        while (at < items.length) yield items[at++] as T;
        if (this.isFinished) break;
        await this.#change();
      }
    } finally {
      this.cancel();
    }
    if (this.#error !== undefined) throw this.#error;
  }

  #change(): Promise<void> {
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  #notify(): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const resolve of waiting) resolve();
  }
}
