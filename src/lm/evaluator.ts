/** Evaluates a language model on held-out texts: the mean loss of the tokens that count, and the perplexity. */

import { setImmediate as nextTurn } from "node:timers/promises";
import { noGrad } from "../autograd/index.js";
import { DataLoader } from "../data/index.js";
import type { LanguageModel } from "../models/index.js";
import type { CompiledStep, Device, Tensor } from "../tensor/index.js";
import type { Evaluation } from "./events.js";
import { countLabels, lossOf, type TextBatch, type TextRows } from "./text-rows.js";

export class Evaluator {
  readonly #device: Device;
  readonly #rows: TextRows;
  readonly #loader: DataLoader<TextBatch>;
  readonly #tokens: number;
  readonly #step: CompiledStep<Tensor[], Tensor>;

  constructor(device: Device, model: LanguageModel, rows: TextRows, batch: number) {
    this.#device = device;
    this.#rows = rows;
    this.#loader = new DataLoader(rows, { batchSize: batch, device }) as unknown as DataLoader<TextBatch>;
    this.#tokens = countLabels(rows).reduce((sum, count) => sum + count, 0);
    this.#step = device.compile(
      (...columns: Tensor[]) => noGrad(() => lossOf(model, columns as unknown as TextBatch, "sum")),
      { name: "evaluate" },
    );
  }

  /** The model must be in evaluation mode. Returns undefined if `isStopped` ends it. */
  async run(
    step: number,
    { onBatch, isStopped }: { readonly onBatch: () => void; readonly isStopped: () => boolean },
  ): Promise<Evaluation | undefined> {
    let sum = 0;
    for (const batch of this.#loader) {
      sum += this.#step(...batch).item();
      onBatch();
      await nextTurn();
      if (isStopped()) return undefined;
    }
    const loss = sum / this.#tokens;
    return { step, loss, perplexity: Math.exp(loss), tokens: this.#tokens };
  }

  close(): void {
    this.#step.close();
    this.#rows.release(this.#device);
  }
}
