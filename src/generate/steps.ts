/**
 * The compiled steps of a generator: prefill writes prompts to the cache, decode adds a token to each text. A step is compiled for each of a few
 * sizes: prompts, rows and columns are rounded up to powers of two.
 */

import { noGrad } from "../autograd/index.js";
import type { LanguageModel } from "../models/index.js";
import type { Module } from "../nn/index.js";
import { arange, type CompiledStep, type Device, fromTyped, type Tensor, where } from "../tensor/index.js";
import { penalized, type SamplingKind, selectTokens } from "./sampling.js";
import type { GeneratorState } from "./state.js";

/** What a decode step must do. Rows and columns are lower bounds. */
export interface DecodeNeeds {
  readonly rows: number;
  readonly columns: number;
  readonly kind: SamplingKind;
  readonly hasPenalty: boolean;
}

/** A prompt, and the slot whose cache it is written to. */
export interface Prefill {
  readonly slot: number;
  readonly ids: Int32Array;
}

const minColumns = 128;
const minPromptRows = 16;
/** Prompts of a call. */
export const maxPrompts = 8;

export class GeneratorSteps {
  readonly #model: LanguageModel;
  readonly #state: GeneratorState;
  readonly #device: Device;
  readonly #modules: readonly Module[];
  readonly #decode = new Map<string, CompiledStep<[], Tensor>>();
  readonly #prefill: CompiledStep<[Tensor, Tensor], void>;

  constructor(model: LanguageModel, state: GeneratorState, device: Device) {
    this.#model = model;
    this.#modules = Array.from(model.namedModules(), ([, module]) => module);
    this.#state = state;
    this.#device = device;
    this.#prefill = device.compile(
      (ids: Tensor, sequences: Tensor) =>
        noGrad(() => void model.hidden(ids, { cache: state.cache, sequences })),
      { name: "prefill", maxPlans: 1000, audit: false },
    );
  }

  /** The rows of the prefill that a prompt belongs to. */
  promptRows(length: number): number {
    return roundUp(length, minPromptRows, this.#state.sizes.maxLength);
  }

  /** Writes prompts to the cache. All have the same `promptRows`, and there are at most `maxPrompts`. */
  prefill(prompts: readonly Prefill[]): void {
    const [first] = prompts;
    if (!first) return;
    const rows = this.promptRows(first.ids.length);
    const texts = roundUp(prompts.length, 1, Math.min(maxPrompts, this.#state.sizes.slots));
    const ids = new Int32Array(texts * rows);
    const sequences = new Int32Array(texts);
    for (let text = 0; text < texts; text++) {
      // The last text again fills the call up.
      const prompt = prompts[Math.min(text, prompts.length - 1)] ?? first;
      ids.set(prompt.ids, text * rows);
      sequences[text] = prompt.slot;
    }
    const device = this.#device;
    const inputs = [
      fromTyped(ids, [texts, rows], { device }),
      fromTyped(sequences, [texts], { device }),
    ] as const;
    try {
      this.#inEvaluation(() => this.#prefill(...inputs));
    } finally {
      for (const input of inputs) input.release();
    }
  }

  /** Adds a token to the texts of the first slots, and returns these tokens. */
  decode(needs: DecodeNeeds): ArrayLike<number> {
    const { slots, maxLength } = this.#state.sizes;
    const rows = roundUp(needs.rows, 1, slots);
    const columns = roundUp(needs.columns, minColumns, maxLength);
    const { kind, hasPenalty } = needs;
    const key = `${rows} ${columns} ${kind} ${hasPenalty}`;
    let step = this.#decode.get(key);
    if (!step) {
      const body = () => noGrad(() => this.#decodeBody({ rows, columns, kind, hasPenalty }));
      step = this.#device.compile(body, { name: "decode", audit: false });
      this.#decode.set(key, step);
    }
    const compiled = step;
    return this.#inEvaluation(() => compiled().dataSync());
  }

  #decodeBody({ rows, columns, kind, hasPenalty }: DecodeNeeds): Tensor {
    const state = this.#state;
    const { maxLength, vocabulary } = state.sizes;
    const [tokens, positions] = [state.tokens(rows), state.positions(rows)];
    const settings = state.settings(rows);
    const occurred = state.occurred.narrow(0, 0, rows);
    const output = this.#model.forward(tokens, { positions, cache: state.cache, columns });
    const logits = output.reshape([rows, vocabulary]).to("f32");
    const next = selectTokens(
      hasPenalty ? penalized(logits, occurred, settings.penalty) : logits,
      kind,
      settings,
    );
    const column = next.reshape([rows, 1]);
    if (hasPenalty) {
      const isNext = arange(0, vocabulary, 1, { device: next.device }).eq(column);
      occurred.copy_(where(isNext, isNext, occurred));
    }
    tokens.copy_(column);
    // Idle slots stay at the end of their cache, until a text starts there.
    positions.copy_(positions.add(1).clamp(0, maxLength - 1));
    return next;
  }

  /** The text of `explain()` of all steps. */
  explain(): string {
    return [this.#prefill, ...this.#decode.values()].map((step) => step.explain()).join("\n\n");
  }

  close(): void {
    this.#prefill.close();
    for (const step of this.#decode.values()) step.close();
    this.#decode.clear();
  }

  /** Runs a step in evaluation mode: a model may generate while it is trained. */
  #inEvaluation<T>(body: () => T): T {
    if (!this.#modules.some(({ isTraining }) => isTraining)) return body();
    // A module comes before those in it, so the modes can be set in this order.
    const modes = [...this.#model.namedModules()].map(([, module]) => [module, module.isTraining] as const);
    this.#model.eval();
    try {
      return body();
    } finally {
      for (const [module, isTraining] of modes)
        if (module.isTraining !== isTraining) module.train(isTraining);
    }
  }
}

/** The next power of two from a minimum on, up to a maximum. */
function roundUp(value: number, min: number, max: number): number {
  return Math.min(max, Math.max(min, 2 ** Math.ceil(Math.log2(value))));
}
