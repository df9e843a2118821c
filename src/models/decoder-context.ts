/** What all layers of a decoder share in one call: positions, masks, the cache and the attention of heads. */

import { HoldfastError } from "../errors/index.js";
import { functional } from "../nn/index.js";
import { arange, type Tensor } from "../tensor/index.js";
import type { CacheRows, CacheTexts, KvCache } from "./kv-cache.js";
import { type Rotation, rotate } from "./rotary.js";

/** Options of a call of a language model, besides the token ids [B, T]. */
export interface DecodeOptions {
  /** i32 [B, T] or [1, T]. Default: 0, 1, 2, … Required with a cache, as an input of a compiled step, unless there are `sequences`. */
  readonly positions?: Tensor;
  /** [B, T], of bools or integers: false or 0 for padding, which no other row attends to. Without a cache. */
  readonly attentionMask?: Tensor;
  /** i32 [B, T]: several texts packed in a row. A position attends only to earlier ones with the same number. Without a cache. */
  readonly segments?: Tensor;
  /** Keys and values of earlier positions, which the call extends in place. */
  readonly cache?: KvCache;
  /** Attends to the first columns of the cache only: at least the largest position + 1. Default: all columns. */
  readonly columns?: number;
  /**
   * i32 [B]: the call writes texts from position 0 on to these sequences of the cache, and leaves the others alone. A row attends to
   * earlier rows of the call. Default: rows at any positions, of the first B sequences.
   */
  readonly sequences?: Tensor;
  /** i32 [B]: the row of each sequence whose logits are computed. Default: all rows. */
  readonly logitRows?: Tensor;
}

/** A mask of scores [B or 1, 1, T, columns], and whether the kernel also masks later columns. */
interface Mask {
  readonly mask: Tensor | null;
  readonly isCausal: boolean;
}

export interface AttendOptions {
  readonly layer: number;
  /** The number of positions that a row attends to, itself included; null for all. */
  readonly window?: number | null;
  readonly scale?: number;
  readonly dropoutP?: number;
  /** Applied to queries and keys first. */
  readonly rotation?: Rotation;
}

/** One call of a decoder, as its layers see it. */
export interface DecoderCall {
  readonly rows: number;
  /** i32 [B or 1, T] */
  readonly positions: Tensor;
  /** The number of columns that rows attend to. */
  readonly columns: number;
  /** Causal attention of heads: query [B, T, H, width], key and value [B, T, keyHeads, width], to [B, T, H · width]. */
  attend(query: Tensor, key: Tensor, value: Tensor, options: AttendOptions): Tensor;
}

/** A call without a cache, or with one that it extends in place. */
export class DecoderContext implements DecoderCall {
  readonly batch: number;
  readonly rows: number;
  readonly positions: Tensor;
  readonly columns: number;
  readonly #cache: KvCache | undefined;
  readonly #cacheRows: CacheRows | undefined;
  readonly #cacheTexts: CacheTexts | undefined;
  readonly #masks: ReadonlyMap<number | null, Mask>;

  /** `windows`: those of the model's layers. Masks are made here, because a checkpointed block must not make what others use. */
  constructor(ids: Tensor, options: DecodeOptions, windows: readonly (number | null)[]) {
    requireOptions(ids, options);
    const { cache, columns, sequences } = options;
    const [batch = 1, rows = 1] = ids.shape;
    this.batch = batch;
    this.rows = rows;
    this.positions = options.positions ?? arange(0, rows, 1, { device: ids.device }).unsqueeze(0);
    this.columns = cache && !sequences ? (columns ?? cache.sizes.maxLength) : rows;
    this.#cache = cache;
    this.#cacheRows = sequences ? undefined : cache?.rowsAt(this.positions);
    this.#cacheTexts = sequences && cache?.textsAt(sequences);
    this.#masks = new Map(
      [...new Set(windows)].map((window) => [
        window,
        cache && !sequences ? this.#cachedMask(window) : this.#causalMask(window, options),
      ]),
    );
  }

  attend(
    plainQuery: Tensor,
    plainKey: Tensor,
    value: Tensor,
    { layer, window = null, rotation, ...options }: AttendOptions,
  ): Tensor {
    const { scale = 1 / Math.sqrt(plainQuery.shape.at(-1) ?? 1), dropoutP = 0 } = options;
    const cached =
      this.#cacheRows && dropoutP === 0
        ? this.#cache?.attend(layer, [plainQuery, plainKey, value], {
            ...{ positions: this.positions, rotation, columns: this.columns, scale, window },
          })
        : undefined;
    if (cached) return cached.flatten(-2);
    const [query, key] = rotation
      ? [rotate(plainQuery, rotation), rotate(plainKey, rotation)]
      : [plainQuery, plainKey];
    if (this.#cacheTexts) this.#cache?.writeTexts(layer, key, value, this.#cacheTexts);
    const [keys, values] =
      this.#cache && this.#cacheRows
        ? this.#cache.update(layer, key, value, this.#cacheRows, this.columns)
        : [key, value];
    const { mask, isCausal } = this.#masks.get(window) ?? { mask: null, isCausal: true };
    const enableGqa = query.shape.at(-2) !== key.shape.at(-2);
    const attended = functional.scaledDotProductAttention(
      query,
      keys.to(query.dtype),
      values.to(query.dtype),
      mask,
      {
        ...options,
        ...{ isCausal, enableGqa, rowsFirst: true },
      },
    );
    return attended.flatten(-2);
  }

  /** True from column 0, or from the start of the window, to the row's position. */
  #cachedMask(window: number | null): Mask {
    const row = this.positions.reshape([-1, 1, this.rows, 1]);
    const column = arange(0, this.columns, 1, { device: row.device });
    const isEarlier = column.le(row);
    const mask =
      window === null || window >= this.columns
        ? isEarlier
        : isEarlier.logicalAnd(column.gt(row.sub(window)));
    return { mask, isCausal: false };
  }

  #causalMask(window: number | null, { attentionMask, segments }: DecodeOptions): Mask {
    const { rows } = this;
    const { device } = this.positions;
    const column = arange(0, rows, 1, { device }); // [columns]
    const row = column.unsqueeze(1); // [T, 1]
    const parts: Tensor[] = [];
    if (window !== null && window < rows) parts.push(column.gt(row.sub(window)));
    if (segments) parts.push(segments.reshape([-1, 1, rows, 1]).eq(segments.reshape([-1, 1, 1, rows])));
    // Padding attends to itself: a row without any column would be NaN.
    if (attentionMask) parts.push(attentionMask.ne(0).reshape([-1, 1, 1, rows]).logicalOr(column.eq(row)));
    const [first, ...others] = parts;
    return { mask: first ? others.reduce((all, part) => all.logicalAnd(part), first) : null, isCausal: true };
  }
}

function requireOptions(
  ids: Tensor,
  { positions, attentionMask, segments, cache, columns, sequences }: DecodeOptions,
): void {
  const shape = `[${ids.shape.join(", ")}]`;
  if (ids.ndim !== 2) throw badCall("BAD_SHAPE", `token ids ${shape}; pass [batch, positions]`);
  const [batch = 1, rows = 1] = ids.shape;
  for (const [name, tensor] of Object.entries({ positions, attentionMask, segments })) {
    if (!tensor) continue;
    const [sequences = 0, length] = tensor.shape;
    if (tensor.ndim === 2 && length === rows && (sequences === batch || sequences === 1)) continue;
    throw badCall(
      "BAD_SHAPE",
      `${name} [${tensor.shape.join(", ")}] for token ids ${shape}; pass the same shape`,
    );
  }
  if (!cache) {
    if (sequences) throw badCall("BAD_ARGUMENT", "sequences without a cache; pass the cache too");
    return;
  }
  if (sequences && (positions || columns !== undefined || sequences.shape.join() !== `${batch}`)) {
    throw badCall(
      "BAD_ARGUMENT",
      `sequences [${sequences.shape.join(", ")}] for token ids ${shape}; pass one for each text, without positions and columns`,
    );
  }
  if (!positions && !sequences)
    throw badCall(
      "BAD_ARGUMENT",
      "a cache without positions; pass the positions of the token ids, [batch, positions]",
    );
  if (attentionMask || segments) {
    const name = attentionMask ? "attentionMask" : "segments";
    throw badCall(
      "BAD_ARGUMENT",
      `a cache and ${name}; with a cache, positions say what a row attends to: pad prompts on their right`,
    );
  }
  const { maxLength } = cache.sizes;
  if (columns === undefined || (Number.isSafeInteger(columns) && columns >= 1 && columns <= maxLength))
    return;
  throw badCall(
    "BAD_ARGUMENT",
    `columns is ${columns}; pass a whole number from 1 to ${maxLength}, the cache's positions`,
  );
}

function badCall(code: "BAD_SHAPE" | "BAD_ARGUMENT", problem: string): HoldfastError {
  return new HoldfastError(code, `A language model got ${problem}.`);
}
