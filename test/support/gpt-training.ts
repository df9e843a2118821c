/** A small GPT in training by a compiled step, on texts that it can learn: each letter follows from the one before. */

import { type CompiledStep, type Device, fromTyped, manualSeed, nn, optim, type Tensor } from "holdfast";
import { Gpt } from "./common-models/models.js";

export interface GptTrainingOptions {
  readonly batch: number;
  /** Default: a model that a CPU trains in milliseconds. */
  readonly width?: number;
  readonly context?: number;
  readonly layers?: number;
}

const vocabulary = 61;
/** Texts that take turns: a step gets another batch than the one before. */
const batches = 8;

export class GptTraining {
  readonly device: Device;
  readonly #texts: readonly (readonly [Tensor, Tensor])[];
  readonly #step: CompiledStep<[Tensor, Tensor], { loss: Tensor }>;
  #count = 0;

  constructor(device: Device, { batch, width = 32, context = 16, layers = 2 }: GptTrainingOptions) {
    this.device = device;
    manualSeed(42);
    const sizes = { vocabulary, context, width, layers, heads: 2, dropout: 0.1 };
    const model = new Gpt({ ...sizes, bias: true, gelu: "tanh" }).to(device);
    const parameters = model.parameters();
    const optimizer = new optim.AdamW(parameters, { lr: 3e-3 });
    this.#texts = Array.from({ length: batches }, (_, index) => {
      const letters = writeTexts(index, batch, context + 1);
      const place = (shift: number): Tensor =>
        device.keep(fromTyped(letters(shift), [batch, context], { device }));
      return [place(0), place(1)] as const;
    });
    this.#step = device.compile((text: Tensor, next: Tensor) => {
      const logits = model.forward(text).reshape([-1, vocabulary]);
      const loss = nn.functional.crossEntropy(logits, next.reshape([-1]));
      loss.backward();
      optim.clipGradNorm(parameters, 1, { errorIfNonfinite: false });
      optimizer.step();
      optimizer.zeroGrad();
      return { loss };
    });
  }

  /** Trains on the next batch; reads the loss only if it is wanted. */
  step(isLossWanted: boolean): number {
    const [text, next] = this.#texts[this.#count++ % batches] as readonly [Tensor, Tensor];
    const { loss } = this.#step(text, next);
    return isLossWanted ? loss.item() : Number.NaN;
  }

  close(): void {
    this.#step.close();
  }
}

/** Rows of letters, each from another start; the function returns the windows from a shift on. */
function writeTexts(seed: number, rows: number, length: number): (shift: number) => Int32Array {
  const letters = Array.from({ length: rows }, (_, row) => {
    let letter = (seed * 17 + row * 7) % vocabulary;
    return Array.from({ length }, () => {
      const written = letter;
      letter = (3 * letter + 1) % vocabulary;
      return written;
    });
  });
  return (shift) => Int32Array.from(letters.flatMap((row) => row.slice(shift, shift + length - 1)));
}
