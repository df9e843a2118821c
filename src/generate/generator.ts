/**
 * Generator: texts of a language model, several at a time. It has a number of slots with a cache each. A text that ends frees its slot for the
 * next one at once, so texts of different lengths keep all slots busy.
 */

import { setImmediate as nextTurn } from "node:timers/promises";
import { checkOptions, HoldfastError } from "../errors/index.js";
import type { Dtype } from "../ir/index.js";
import { LanguageModel, type PretrainedModel } from "../models/index.js";
import type { Device } from "../tensor/index.js";
import type { Tokenizer } from "../text/index.js";
import { Generation } from "./generation.js";
import { type GenerateOptions, type ResolvedOptions, resolveOptions } from "./options.js";
import type { SamplingKind } from "./sampling.js";
import { GeneratorState } from "./state.js";
import { GeneratorSteps, maxPrompts, type Prefill } from "./steps.js";

/** A text, or its ids. */
export type Prompt = string | ArrayLike<number>;

/** Options of a `Generator`. */
export interface GeneratorOptions {
  /** Texts that are generated at the same time. More wait. Default: 1. */
  readonly slots?: number;
  /** Maximum number of tokens of a prompt and its text. Default: that of the model. */
  readonly maxLength?: number;
  /** For prompts and results that are text. */
  readonly tokenizer?: Tokenizer;
  /** Ids that end a text. Default: `eos_token_id` of the model's config, and the end token of the tokenizer. */
  readonly stopIds?: readonly number[];
  /** The dtype of the cache. Default: that of the model's first parameter. */
  readonly cacheDtype?: Dtype;
}

/** A generation with what its slot needs. */
interface Entry {
  readonly generation: Generation;
  readonly prompt: Int32Array;
  /** Of new tokens. */
  readonly maxTokens: number;
  readonly options: ResolvedOptions;
}

/** An entry that has just got a slot. */
interface StartedEntry extends Prefill {
  readonly entry: Entry;
}

/**
 * Generates texts of a language model on its device. The model may be trained in between: the next token uses the new weights.
 *
 * @example
 * ```ts
 * import { ByteTokenizer, device, Generator, modelFromConfig } from "holdfast";
 * const cpu = await device("cpu");
 * const sizes = { vocab_size: 256, n_positions: 64, n_embd: 16, n_layer: 2, n_head: 2 };
 * const model = modelFromConfig({ model_type: "gpt2", ...sizes }).to(cpu);
 * const generator = new Generator(model, { tokenizer: new ByteTokenizer(), slots: 2 });
 * const texts = ["One", "Another"].map((prompt) => generator.start(prompt, { maxNewTokens: 8, temperature: 0.8, seed: 1 }));
 * const results = await Promise.all(texts.map((text) => text.result()));
 * console.log(results.map(({ tokens }) => tokens.length)); // → [ 8, 8 ]
 * generator.close();
 * cpu.close();
 * ```
 */
export class Generator {
  /** The number of slots. */
  readonly slots: number;
  /** Maximum number of tokens of a prompt and its text. */
  readonly maxLength: number;
  readonly tokenizer: Tokenizer | undefined;
  readonly #device: Device;
  readonly #model: LanguageModel;
  readonly #state: GeneratorState;
  readonly #steps: GeneratorSteps;
  readonly #stopIds: readonly number[];
  readonly #active: (Entry | undefined)[];
  /** Slots whose text has ended, and whose position is still that of its end. */
  readonly #ended = new Set<number>();
  #queue: Entry[] = [];
  #isRunning = false;
  #isClosed = false;

  constructor(model: PretrainedModel, options: GeneratorOptions = {}) {
    const language = requireLanguageModel(model);
    const {
      slots = 1,
      tokenizer,
      stopIds,
      cacheDtype,
    } = checkOptions("Generator", options, {
      ...{ slots: true, maxLength: true, tokenizer: true, stopIds: true, cacheDtype: true },
    });
    const { maxLength = language.maxLength } = options;
    requireSize("slots", slots, 1, 1024);
    requireSize("maxLength", maxLength, 2, language.maxLength);
    const weight = language.parameters().find(({ isPlaced }) => isPlaced);
    if (!weight) {
      throw new HoldfastError(
        "NO_DEVICE",
        "The model of a Generator is on no device. Call model.to(await device()) first.",
      );
    }
    this.slots = slots;
    this.maxLength = maxLength;
    this.tokenizer = tokenizer;
    this.#device = weight.device;
    this.#model = language;
    this.#state = new GeneratorState(language, { slots, maxLength, vocabulary: language.vocabularySize });
    this.#state.to(this.#device, cacheDtype ?? weight.dtype);
    this.#steps = new GeneratorSteps(language, this.#state, this.#device);
    this.#stopIds = stopIds ?? endIdsOf(language, tokenizer);
    this.#active = Array.from({ length: slots }, () => undefined);
  }

  /**
   * The number of texts in slots.
   *
   * @example
   * ```ts
   * import { device, Generator, modelFromConfig } from "holdfast";
   * const cpu = await device("cpu");
   * const sizes = { vocab_size: 20, n_positions: 32, n_embd: 8, n_layer: 1, n_head: 2 };
   * const generator = new Generator(modelFromConfig({ model_type: "gpt2", ...sizes }).to(cpu));
   * const generation = generator.start([5], { maxNewTokens: 2 });
   * await generation.tokens().next();
   * console.log(generator.running); // → 1
   * await generation.result();
   * console.log(generator.running); // → 0
   * cpu.close();
   * ```
   */
  get running(): number {
    return this.#active.filter((entry) => entry !== undefined).length;
  }

  /**
   * The number of texts that wait for a slot.
   *
   * @example
   * ```ts
   * import { device, Generator, modelFromConfig } from "holdfast";
   * const cpu = await device("cpu");
   * const sizes = { vocab_size: 20, n_positions: 32, n_embd: 8, n_layer: 1, n_head: 2 };
   * const generator = new Generator(modelFromConfig({ model_type: "gpt2", ...sizes }).to(cpu));
   * const generations = [5, 6, 7].map((id) => generator.start([id], { maxNewTokens: 2 }));
   * console.log(generator.waiting); // → 3
   * await Promise.all(generations.map((generation) => generation.result()));
   * console.log(generator.waiting); // → 0
   * cpu.close();
   * ```
   */
  get waiting(): number {
    return this.#queue.length;
  }

  /**
   * Starts a text. It runs when a slot is free, in turns of the event loop.
   *
   * @example
   * ```ts
   * import { device, Generator, modelFromConfig } from "holdfast";
   * const cpu = await device("cpu");
   * const sizes = { vocab_size: 20, n_positions: 32, n_embd: 8, n_layer: 1, n_head: 2 };
   * const generator = new Generator(modelFromConfig({ model_type: "gpt2", ...sizes }).to(cpu));
   * const options = { temperature: 1, topK: 5, seed: 3, maxNewTokens: 6 };
   * const [first, second] = [generator.start([1, 2], options), generator.start([1, 2], options)];
   * console.log(String((await first.result()).tokens) === String((await second.result()).tokens)); // → true
   * cpu.close();
   * ```
   */
  start(prompt: Prompt, options: GenerateOptions = {}): Generation {
    this.#requireOpen();
    const resolved = resolveOptions(options, this.#stopIds);
    if (resolved.stop.length > 0 && !this.tokenizer) throw noTokenizer("Stop strings");
    const ids = this.idsOf(prompt);
    const room = this.maxLength - ids.length;
    if (room < 1) {
      throw new HoldfastError(
        "BAD_ARGUMENT",
        `The prompt has ${ids.length} tokens; the generator has room for ${this.maxLength} with the new ones. Pass a shorter prompt, or a larger maxLength.`,
        { numbers: { tokens: ids.length, maxLength: this.maxLength } },
      );
    }
    const max = Math.min(resolved.maxNewTokens, room);
    const generation = new Generation(resolved, max, this.tokenizer, (ended) => this.#remove(ended));
    if (generation.isFinished) return generation;
    this.#queue.push({ generation, prompt: ids, maxTokens: max, options: resolved });
    void this.#run();
    return generation;
  }

  /**
   * The ids of a prompt, checked.
   *
   * @example
   * ```ts
   * import { ByteTokenizer, device, Generator, modelFromConfig } from "holdfast";
   * const cpu = await device("cpu");
   * const sizes = { vocab_size: 256, n_positions: 32, n_embd: 8, n_layer: 1, n_head: 2 };
   * const model = modelFromConfig({ model_type: "gpt2", ...sizes }).to(cpu);
   * console.log(new Generator(model, { tokenizer: new ByteTokenizer() }).idsOf("Hi")); // → Int32Array(2) [ 72, 105 ]
   * cpu.close();
   * ```
   */
  idsOf(prompt: Prompt): Int32Array {
    if (typeof prompt === "string" && !this.tokenizer) throw noTokenizer("A prompt that is text");
    const ids = typeof prompt === "string" ? (this.tokenizer?.encode(prompt) ?? []) : Array.from(prompt);
    const { vocabularySize } = this.#model;
    const bad = ids.find((id) => !(Number.isSafeInteger(id) && id >= 0 && id < vocabularySize));
    if (ids.length > 0 && bad === undefined) return Int32Array.from(ids);
    throw new HoldfastError(
      "BAD_ARGUMENT",
      bad === undefined
        ? "The prompt has no tokens. Pass at least one, such as the id of the token that begins a text."
        : `The prompt has the id ${bad}; the model has the ids 0 to ${vocabularySize - 1}. Use the tokenizer of the model.`,
      { numbers: { vocabularySize } },
    );
  }

  /**
   * Explains the compiled steps of the generator, as `explain()` of a step does.
   *
   * @example
   * ```ts
   * import { device, Generator, modelFromConfig } from "holdfast";
   * const cpu = await device("cpu");
   * const sizes = { vocab_size: 20, n_positions: 32, n_embd: 8, n_layer: 1, n_head: 2 };
   * const generator = new Generator(modelFromConfig({ model_type: "gpt2", ...sizes }).to(cpu));
   * await generator.start([1, 2], { maxNewTokens: 2 }).result();
   * console.log(/decode/.test(generator.explain())); // → true
   * cpu.close();
   * ```
   */
  explain(): string {
    return this.#steps.explain();
  }

  /**
   * Cancels all texts and frees the memory.
   *
   * @example
   * ```ts
   * import { device, Generator, modelFromConfig } from "holdfast";
   * const cpu = await device("cpu");
   * const sizes = { vocab_size: 20, n_positions: 32, n_embd: 8, n_layer: 1, n_head: 2 };
   * const model = modelFromConfig({ model_type: "gpt2", ...sizes }).to(cpu);
   * const before = cpu.diagnostics().budget.usedByLabel.weights;
   * new Generator(model, { slots: 4 }).close();
   * console.log(cpu.diagnostics().budget.usedByLabel.weights === before); // → true
   * cpu.close();
   * ```
   */
  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    for (const { generation } of [...this.#entries(), ...this.#queue]) generation.cancel();
    this.#steps.close();
    if (this.#device.isOpen) this.#state.releaseBuffers();
  }

  #entries(): readonly Entry[] {
    return this.#active.flatMap((entry) => entry ?? []);
  }

  #remove(ended: Generation): void {
    const slot = this.#active.findIndex((entry) => entry?.generation === ended);
    if (slot >= 0) {
      this.#active[slot] = undefined;
      this.#ended.add(slot);
    } else this.#queue = this.#queue.filter(({ generation }) => generation !== ended);
  }

  /** Generates until no text is left. Each token is a turn of the event loop. */
  async #run(): Promise<void> {
    if (this.#isRunning) return;
    this.#isRunning = true;
    try {
      for (await nextTurn(); this.#hasWork(); await nextTurn()) {
        this.#fillSlots();
        this.#addTokens();
      }
    } catch (error) {
      for (const { generation } of [...this.#entries(), ...this.#queue]) generation.fail(error);
    } finally {
      this.#isRunning = false;
    }
  }

  #hasWork(): boolean {
    return !this.#isClosed && (this.#queue.length > 0 || this.running > 0);
  }

  /**
   * Gives free slots to waiting texts, and writes their prompts to the cache. Prompts of about the same length are one call. Others wait for
   * the next turn, so that texts in slots go on.
   */
  #fillSlots(): void {
    const started: StartedEntry[] = [];
    for (const [slot, active] of this.#active.entries()) {
      if (active) continue;
      const entry = started.length < maxPrompts ? this.#queue.shift() : undefined;
      if (!entry) break;
      this.#active[slot] = entry;
      started.push({ slot, entry, ids: entry.prompt.subarray(0, -1) });
    }
    // The last token of a prompt is the first one that is decoded.
    const groups = new Map<number, StartedEntry[]>();
    for (const start of started) {
      if (start.ids.length === 0) continue;
      const rows = this.#steps.promptRows(start.ids.length);
      groups.set(rows, [...(groups.get(rows) ?? []), start]);
    }
    for (const group of groups.values()) this.#prefill(group);
    for (const { slot, entry } of started) {
      if (this.#active[slot] !== entry) continue;
      this.#state.start(this.#device, slot, entry);
      this.#ended.delete(slot);
    }
  }

  /** A prompt that needs too much memory fails, and texts in other slots go on. */
  #prefill(group: readonly StartedEntry[]): void {
    try {
      this.#steps.prefill(group);
    } catch (error) {
      for (const { entry } of group) entry.generation.fail(error);
    }
  }

  #addTokens(): void {
    const entries = this.#entries();
    if (entries.length === 0) return;
    const positions = entries.map(({ prompt, generation }) => prompt.length + generation.length);
    const rows = this.#active.findLastIndex((entry) => entry !== undefined) + 1;
    // An idle slot before a busy one is decoded too. At the end of a long text that would take as long as the text.
    for (const slot of this.#ended) {
      if (slot >= rows) continue;
      this.#state.rewind(this.#device, slot);
      this.#ended.delete(slot);
    }
    const tokens = this.#steps.decode({
      rows,
      columns: Math.max(...positions),
      kind: kindOf(entries),
      hasPenalty: entries.some(({ options }) => options.repetitionPenalty !== 1),
    });
    // A text that ends leaves its slot, so the list of slots changes.
    for (const [slot, entry] of [...this.#active].entries()) entry?.generation.push(tokens[slot] ?? 0);
  }

  #requireOpen(): void {
    if (!this.#isClosed) return;
    throw new HoldfastError("CLOSED", "The Generator is closed. Make another one.");
  }
}

/** What the settings of texts need together. */
function kindOf(entries: readonly Entry[]): SamplingKind {
  const drawing = entries.filter(({ options }) => options.temperature > 0);
  if (drawing.length === 0) return "greedy";
  return drawing.some(({ options: { topK, topP } }) => topK > 0 || topP < 1) ? "filter" : "draw";
}

function endIdsOf(model: LanguageModel, tokenizer: Tokenizer | undefined): readonly number[] {
  const found = model.config["eos_token_id"];
  const ids = [...(Array.isArray(found) ? found : [found]), tokenizer?.eosId];
  return ids.filter((id): id is number => Number.isSafeInteger(id));
}

function requireLanguageModel(model: PretrainedModel): LanguageModel {
  if (model instanceof LanguageModel) return model;
  throw new HoldfastError(
    "BAD_ARGUMENT",
    "A Generator takes a language model, such as one of type gpt2 or llama.",
  );
}

function requireSize(name: string, value: number, min: number, max: number): void {
  if (Number.isSafeInteger(value) && value >= min && value <= max) return;
  throw new HoldfastError(
    "BAD_ARGUMENT",
    `Generator: ${name} is ${value}; pass a whole number from ${min} to ${max}.`,
    { numbers: { [name]: value } },
  );
}

function noTokenizer(what: string): HoldfastError {
  return new HoldfastError(
    "BAD_ARGUMENT",
    `${what} needs a tokenizer. Pass one: new Generator(model, { tokenizer }).`,
  );
}
