/**
 * The state of a generator on the device, at constant addresses: for each sequence its last token, its position, its settings and its random
 * numbers, and the cache. So a decode step has no inputs, and its new tokens are all that the host reads.
 */

import { drawWords, uniform } from "../kernels/index.js";
import type { KvCache, LanguageModel } from "../models/index.js";
import { Buffer, init, Module } from "../nn/index.js";
import { type Device, fromTyped, type Tensor } from "../tensor/index.js";
import type { ResolvedOptions } from "./options.js";
import type { RowSettings } from "./sampling.js";

/** The sizes of a generator. */
export interface StateSizes {
  readonly slots: number;
  readonly maxLength: number;
  readonly vocabulary: number;
}

/** A text that gets a slot. */
export interface StartingText {
  readonly prompt: Int32Array;
  /** Of new tokens. */
  readonly maxTokens: number;
  readonly options: ResolvedOptions;
}

export class GeneratorState extends Module {
  readonly sizes: StateSizes;
  readonly cache: KvCache;
  /** i32 [slots, 3]: the last token, its position, top-k */
  readonly integers: Buffer;
  /** f32 [slots, 3]: temperature, top-p, repetition penalty */
  readonly reals: Buffer;
  /** f32 [slots, maxLength]: the random number of each position */
  readonly draws: Buffer;
  /** bool [slots, vocabulary]: the tokens that a text has */
  readonly occurred: Buffer;

  constructor(model: LanguageModel, sizes: StateSizes) {
    super();
    const { slots, maxLength, vocabulary } = sizes;
    this.sizes = sizes;
    this.cache = model.newCache({ batch: slots, maxLength });
    const options = { persistent: false, staysF32: true };
    this.integers = new Buffer([slots, 3], init.zeros(), { ...options, dtype: "i32" });
    this.reals = new Buffer([slots, 3], init.ones(), options);
    this.draws = new Buffer([slots, maxLength], init.zeros(), options);
    this.occurred = new Buffer([slots, vocabulary], init.zeros(), { ...options, dtype: "bool" });
  }

  /** The last tokens of the first rows, [rows, 1]. */
  tokens(rows: number): Tensor {
    return this.integers.narrow(0, 0, rows).narrow(1, 0, 1);
  }

  /** The positions of the first rows, [rows, 1]. */
  positions(rows: number): Tensor {
    return this.integers.narrow(0, 0, rows).narrow(1, 1, 1);
  }

  settings(rows: number): RowSettings & { readonly penalty: Tensor } {
    const reals = this.reals.narrow(0, 0, rows);
    return {
      topK: this.integers.narrow(0, 0, rows).narrow(1, 2, 1),
      temperature: reals.narrow(1, 0, 1),
      topP: reals.narrow(1, 1, 1),
      penalty: reals.narrow(1, 2, 1),
      draw: this.draws.narrow(0, 0, rows).gather(1, this.positions(rows)),
    };
  }

  /** Sets an idle slot to the first position. */
  rewind(device: Device, slot: number): void {
    device.step(() => writeRow(device, this.integers, slot, Int32Array.of(0, 0)));
  }

  /** Starts a text in a slot. Its cache has all tokens of the prompt but the last. */
  start(device: Device, slot: number, { prompt, maxTokens, options }: StartingText): void {
    const { vocabulary } = this.sizes;
    const { temperature, topK, topP, repetitionPenalty } = options;
    const isGreedy = temperature === 0;
    const k = isGreedy ? 1 : topK === 0 ? vocabulary : Math.min(topK, vocabulary);
    const row = (target: Buffer, values: Int32Array | Float32Array | Uint8Array, column = 0): void =>
      writeRow(device, target, slot, values, column);
    const position = prompt.length - 1;
    device.step(() => {
      row(this.integers, Int32Array.of(prompt[position] ?? 0, position, k));
      row(this.reals, Float32Array.of(isGreedy ? 1 : temperature, topP, repetitionPenalty));
      if (!isGreedy) row(this.draws, drawsOf(options, maxTokens), position);
      if (repetitionPenalty !== 1) {
        const occurred = new Uint8Array(vocabulary);
        for (const id of prompt) occurred[id] = 1;
        row(this.occurred, occurred);
      }
    });
  }
}

/** Writes values to a slot, from a column on. */
function writeRow(
  device: Device,
  target: Buffer,
  slot: number,
  values: Int32Array | Float32Array | Uint8Array,
  column = 0,
): void {
  const source = fromTyped(values, [1, values.length], { device });
  target.narrow(0, slot, 1).narrow(1, column, values.length).copy_(source.to(target.dtype));
}

/** The random numbers of new tokens, from the beginning of the seed's stream. */
function drawsOf({ seed }: ResolvedOptions, count: number): Float32Array {
  return Float32Array.from(drawWords({ seed, id: 0 }, count), uniform);
}
