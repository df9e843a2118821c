/**
 * LanguageModel: what the decoders share.
 *
 * **Training.** `loss(ids, labels)` is the mean cross entropy of the next tokens, with the head and the loss next to each other, so that a
 * compiled step computes them on chunks of rows. `forward(ids)` returns all logits.
 *
 * **Generation.** `newCache({ batch, maxLength })` makes a `KvCache`; `cache.to(device, dtype)` places it. Two compiled steps use it:
 *
 * - prefill: `forward(ids [B, T], { cache, sequences [B], logitRows [B] })`, with prompts padded on their right, the sequences of the cache that
 *   they are written to, and the row of each prompt's last token. Logits: [B, V].
 * - decode: `forward(ids [B, 1], { positions [B, 1], cache, columns })`, with the position of each new token. Logits: [B, 1, V].
 *
 * Ids, positions and rows are inputs of the step; the cache is state that it overwrites in place, like running statistics. `columns` bounds
 * the columns that attention reads. It is part of the plan: compile a step for each of a few sizes. Columns are positions, and a row attends
 * to columns up to its position, so sequences of different lengths need no mask.
 */

import { HoldfastError } from "../errors/index.js";
import { functional } from "../nn/index.js";
import { arange, cat, checkpoint, full, type Tensor } from "../tensor/index.js";
import { type DecodeOptions, type DecoderCall, DecoderContext } from "./decoder-context.js";
import { KvCache, type KvCacheSizes } from "./kv-cache.js";
import { type LayerPast, PastContext, type PastInputs } from "./past-context.js";
import { PretrainedModel } from "./pretrained-model.js";

/** Options of `LanguageModel.loss`. */
export interface LanguageLossOptions extends Pick<DecodeOptions, "positions" | "attentionMask" | "segments"> {
  /** Default: the mean over labels that count. */
  readonly reduction?: "mean" | "sum" | "none";
}

/** The label of tokens that do not count in a loss. */
export const ignoredLabel = -100;

/**
 * The base of decoders: models that predict the next token.
 *
 * @example
 * ```ts
 * import { device, modelFromConfig, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const sizes = { vocab_size: 20, hidden_size: 8, intermediate_size: 16, num_hidden_layers: 1, num_attention_heads: 2 };
 * const model = modelFromConfig({ model_type: "llama", ...sizes }).to(cpu);
 * const ids = tensor([[3, 1, 4, 1]], { dtype: "i32" });
 * const labels = tensor([[-100, 1, 4, 1]], { dtype: "i32" }); // −100: does not count
 * model.loss(ids, labels).backward();
 * console.log(model.forward(ids).shape, model.parameters().every(({ grad }) => grad !== null)); // → [ 1, 4, 20 ] true
 * cpu.close();
 * ```
 */
export abstract class LanguageModel extends PretrainedModel {
  /** V */
  abstract readonly vocabularySize: number;
  /** The maximum number of positions of a text. */
  abstract readonly maxLength: number;
  /** Computes blocks again in backward, for less memory: gradient checkpointing. Set it outside of steps. */
  gradientCheckpointing = false;

  /** The sizes of its cache, but those of the caller. */
  protected abstract cacheSizes(): Omit<KvCacheSizes, "batch" | "maxLength">;

  /** The windows of its layers. */
  protected abstract windows(): readonly (number | null)[];

  /** Token ids [B, T] to the states after the last norm, [B, T, width]. */
  protected abstract decode(ids: Tensor, context: DecoderCall): Tensor;

  /**
   * States […, width] to logits […, V].
   *
   * @internal
   */
  abstract head(hidden: Tensor): Tensor;

  /**
   * Token ids i32 [B, T] to the states that the head reads, [B, T, width].
   *
   * @example
   * ```ts
   * import { device, modelFromConfig, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const sizes = { vocab_size: 20, n_positions: 8, n_embd: 8, n_layer: 1, n_head: 2 };
   * const model = modelFromConfig({ model_type: "gpt2", ...sizes }).to(cpu);
   * console.log(model.hidden(tensor([[3, 1, 4]], { dtype: "i32" })).shape); // → [ 1, 3, 8 ]
   * cpu.close();
   * ```
   */
  hidden(ids: Tensor, options: DecodeOptions = {}): Tensor {
    return this.decode(ids, new DecoderContext(ids, options, this.windows()));
  }

  /** Token ids i32 [B, T] to logits [B, T, V], or [B, V] with `logitRows`. */
  forward(ids: Tensor, options: DecodeOptions = {}): Tensor {
    const hidden = this.hidden(ids, options);
    return this.head(options.logitRows ? rowsOf(hidden, options.logitRows) : hidden);
  }

  /**
   * Logits [B, T, V], with a cache that is a value: earlier keys and values come in, and go out with those of the call. Exported graphs
   * have it.
   *
   * @internal
   */
  forwardWithPast(
    ids: Tensor,
    inputs: PastInputs,
  ): { readonly logits: Tensor; readonly present: readonly LayerPast[] } {
    const context = new PastContext(inputs, this.windows());
    const hidden = this.decode(ids, context);
    return { logits: this.head(hidden), present: context.present };
  }

  /**
   * The cross entropy of each label i32 [B, T] with the logits at the position before it, as in Hugging Face's models: pass the ids
   * themselves as labels. −100 does not count, and neither does the first label of a row.
   *
   * @example
   * ```ts
   * import { device, modelFromConfig, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const sizes = { vocab_size: 20, n_positions: 8, n_embd: 8, n_layer: 1, n_head: 2 };
   * const model = modelFromConfig({ model_type: "gpt2", ...sizes }).to(cpu);
   * const ids = tensor([[3, 1, 4]], { dtype: "i32" });
   * console.log(model.loss(ids, ids, { reduction: "none" }).shape); // → [ 1, 3 ]
   * cpu.close();
   * ```
   */
  loss(ids: Tensor, labels: Tensor, { reduction = "mean", ...options }: LanguageLossOptions = {}): Tensor {
    const [batch = 1, rows = 1] = ids.shape;
    if (labels.shape.join() !== ids.shape.join()) {
      throw new HoldfastError(
        "BAD_SHAPE",
        `labels [${labels.shape.join(", ")}] for token ids [${ids.shape.join(", ")}]; pass the same shape. The model shifts them.`,
        { numbers: { batch, rows } },
      );
    }
    const logits = this.head(this.hidden(ids, options)).reshape([-1, this.vocabularySize]);
    const last = full([batch, 1], ignoredLabel, { dtype: labels.dtype, device: labels.device });
    const next = cat([labels.narrow(1, 1, rows - 1), last], 1);
    const loss = functional.crossEntropy(logits, next.reshape([-1]), {
      ignoreIndex: ignoredLabel,
      reduction,
      dtype: logits.dtype === "f64" ? "f64" : "f32",
    });
    return reduction === "none" ? loss.reshape([batch, rows]) : loss;
  }

  /**
   * A cache for sequences of up to `maxLength` positions. Place it: `cache.to(device, dtype)`.
   *
   * @example
   * ```ts
   * import { modelFromConfig } from "holdfast";
   * const sizes = { vocab_size: 20, n_positions: 8, n_embd: 8, n_layer: 3, n_head: 2 };
   * const model = modelFromConfig({ model_type: "gpt2", ...sizes });
   * console.log(model.newCache({ batch: 4, maxLength: 8 }).keys.map(({ shape }) => shape.join(" × "))[0]); // → 4 × 8 × 2 × 4
   * ```
   */
  newCache(sizes: Pick<KvCacheSizes, "batch" | "maxLength">): KvCache {
    return new KvCache({ ...this.cacheSizes(), ...sizes });
  }

  /** Runs a block, and with `gradientCheckpointing` again in backward. */
  protected runBlock(block: (hidden: Tensor) => Tensor, hidden: Tensor): Tensor {
    return this.gradientCheckpointing ? checkpoint(block, hidden) : block(hidden);
  }
}

/** The state of one row of each sequence: [B, T, width] to [B, width]. */
function rowsOf(hidden: Tensor, rows: Tensor): Tensor {
  const [batch = 1, length = 1] = hidden.shape;
  const first = arange(0, batch, 1, { device: hidden.device }).mul(length);
  return hidden.flatten(0, 1).indexSelect(0, first.add(rows));
}
