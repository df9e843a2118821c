/**
 * KvCache: the keys and values of earlier positions, in persistent memory at constant addresses, so that a compiled step can read and
 * overwrite them.
 *
 * Column c of a cache has the key and the value at position c. A call of a model with a cache
 *
 * 1. writes the keys and values of its rows to the columns of their positions, in place, and
 * 2. attends from a row at position p to columns 0 to p.
 *
 * So a cache needs no clearing: columns after a position are never read from it. A new text starts at position 0 and overwrites the old
 * one. A prompt that is padded on its right leaves columns that the next positions overwrite before they are read.
 */

import { isGradEnabled, noteWrite } from "../autograd/index.js";
import { HoldfastError } from "../errors/index.js";
import { backendOf } from "../kernels/index.js";
import { Buffer, init, Module } from "../nn/index.js";
import { cachedAttention } from "../ops/index.js";
import { arange, type Tensor, where } from "../tensor/index.js";
import type { Rotation } from "./rotary.js";

/** The sizes of a cache. */
export interface KvCacheSizes {
  readonly layers: number;
  /** B: the number of sequences. */
  readonly batch: number;
  /** L: the maximum number of positions of a sequence. */
  readonly maxLength: number;
  /** The heads of keys and values. */
  readonly keyHeads: number;
  readonly headWidth: number;
}

/** Where the rows of a call are written. All layers share it. */
export interface CacheRows {
  /** [B, L, 1, 1]: true for the columns that the call writes. */
  readonly isWritten: Tensor;
  /** [B, L, 1, 1]: the row of the call for each of them; null if the call has one row. */
  readonly row: Tensor | null;
}

/** How one new position attends to a cache. */
export interface CachedAttendOptions {
  /** i32 [B or 1, 1] */
  readonly positions: Tensor;
  readonly rotation: Rotation | undefined;
  /** An upper bound of all positions + 1. */
  readonly columns: number;
  readonly scale: number;
  readonly window: number | null;
}

/** Where texts of a call are written that begin at position 0. All layers share it. */
export interface CacheTexts {
  /** [sequences, 1, 1, 1]: true for the sequences that the call writes. */
  readonly isWritten: Tensor;
  /** [sequences]: the text of the call for each of them; null if the call has one text. */
  readonly text: Tensor | null;
}

/**
 * The keys and values of a language model's earlier positions. `LanguageModel.newCache` makes one; place it with `to`, and pass it to
 * `forward`.
 *
 * @example
 * ```ts
 * import { device, modelFromConfig, noGrad, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const sizes = { vocab_size: 20, n_positions: 8, n_embd: 8, n_layer: 1, n_head: 2 };
 * const model = modelFromConfig({ model_type: "gpt2", ...sizes }).to(cpu).eval();
 * const cache = model.newCache({ batch: 1, maxLength: 8 }).to(cpu);
 * const ids = (values: number[]) => tensor([values], { dtype: "i32" });
 * const logits = noGrad(() => {
 *   model.forward(ids([5, 6, 7]), { positions: ids([0, 1, 2]), cache });
 *   return model.forward(ids([8]), { positions: ids([3]), cache });
 * });
 * const whole = noGrad(() => model.forward(ids([5, 6, 7, 8])));
 * console.log(logits.sub(whole.narrow(1, 3, 1)).abs().amax().item() < 1e-5); // → true
 * cpu.close();
 * ```
 */
export class KvCache extends Module {
  readonly sizes: KvCacheSizes;
  /** One [B, L, keyHeads, headWidth] per layer. */
  readonly keys: readonly Buffer[];
  /** One [B, L, keyHeads, headWidth] per layer. */
  readonly values: readonly Buffer[];

  constructor(sizes: KvCacheSizes) {
    super();
    for (const [name, size] of Object.entries(sizes)) {
      if (Number.isSafeInteger(size) && size >= 1) continue;
      throw new HoldfastError(
        "BAD_ARGUMENT",
        `KvCache: ${name} is ${size}; pass a whole number, 1 or more.`,
        {
          numbers: { [name]: size },
        },
      );
    }
    const { layers, batch, maxLength, keyHeads, headWidth } = sizes;
    this.sizes = sizes;
    const tables = (): Buffer[] =>
      Array.from(
        { length: layers },
        () => new Buffer([batch, maxLength, keyHeads, headWidth], init.zeros(), { persistent: false }),
      );
    this.keys = tables();
    this.values = tables();
  }

  /**
   * Where rows with these positions, [B, T], are written. The positions of a sequence are consecutive. With fewer sequences than the cache
   * has, they are its first ones.
   *
   * @internal
   */
  rowsAt(positions: Tensor): CacheRows {
    const { batch, maxLength } = this.sizes;
    const [sequences = 1, rows = 1] = positions.shape;
    if (positions.ndim !== 2 || sequences > batch || rows > maxLength) {
      throw new HoldfastError(
        "BAD_SHAPE",
        `positions [${positions.shape.join(", ")}] with a cache of ${batch} sequences and ${maxLength} positions. Pass positions ` +
          `[${batch}, rows] or of fewer sequences, or make a cache of these sizes.`,
        { numbers: { batch, maxLength } },
      );
    }
    const row = arange(0, maxLength, 1, { device: positions.device }).sub(positions.narrow(1, 0, 1)); // [B, L]
    const shape = [sequences, maxLength, 1, 1];
    if (rows === 1) return { isWritten: row.eq(0).reshape(shape), row: null };
    return {
      isWritten: row.ge(0).logicalAnd(row.lt(rows)).reshape(shape),
      row: row.clamp(0, rows - 1).reshape(shape),
    };
  }

  /**
   * Where texts are written that begin at position 0. `sequences`: i32 [texts], the sequence of each; equal ones for equal texts.
   *
   * @internal
   */
  textsAt(sequences: Tensor): CacheTexts {
    const { batch } = this.sizes;
    const [texts = 1] = sequences.shape;
    if (sequences.ndim !== 1 || texts > batch) {
      throw new HoldfastError(
        "BAD_SHAPE",
        `sequences [${sequences.shape.join(", ")}] with a cache of ${batch} sequences. Pass one number for each text, at most ${batch}.`,
        { numbers: { batch } },
      );
    }
    const isOf = arange(0, batch, 1, { device: sequences.device }).unsqueeze(1).eq(sequences); // [sequences, texts]
    const shape = [batch, 1, 1, 1];
    if (texts === 1) return { isWritten: isOf.reshape(shape), text: null };
    return { isWritten: isOf.any(1).reshape(shape), text: isOf.to("i32").argmax(1) };
  }

  /**
   * Writes keys and values of texts from position 0, [texts, T, keyHeads, headWidth], of a layer in place.
   *
   * @internal
   */
  writeTexts(layer: number, keys: Tensor, values: Tensor, { isWritten, text }: CacheTexts): void {
    for (const [table, source] of [
      [this.#table(this.keys, layer), keys],
      [this.#table(this.values, layer), values],
    ] as const) {
      const columns = table.narrow(1, 0, source.shape[1] ?? 1);
      const texts = text ? source.indexSelect(0, text) : source.expand(columns.shape);
      columns.copy_(where(isWritten, texts.to(table.dtype), columns));
    }
  }

  /**
   * Writes keys and values, [B, T, keyHeads, headWidth], of a layer in place, and returns those of the first `columns` columns.
   *
   * @internal
   */
  update(
    layer: number,
    keys: Tensor,
    values: Tensor,
    at: CacheRows,
    columns: number,
  ): readonly [Tensor, Tensor] {
    const write = (table: Tensor, source: Tensor): Tensor => {
      const [sequences = 1] = source.shape;
      const written = table.narrow(0, 0, sequences);
      writeRows(written, source, at);
      return written.narrow(1, 0, columns);
    };
    return [write(this.#table(this.keys, layer), keys), write(this.#table(this.values, layer), values)];
  }

  /**
   * Rotates the query and the key of one new position of each sequence, [B, 1, heads, headWidth], writes key and value, and attends to the
   * positions up to it. Undefined if the device has no kernel for it.
   *
   * @internal
   */
  attend(
    layer: number,
    [query, key, value]: readonly [Tensor, Tensor, Tensor],
    { positions, rotation, ...attributes }: CachedAttendOptions,
  ): Tensor | undefined {
    const [keys, values] = [this.#table(this.keys, layer), this.#table(this.values, layer)];
    const { device, dtype } = query;
    const [width = 1] = query.shape.slice(-1);
    const isPossible =
      query.shape[1] === 1 &&
      !isGradEnabled() &&
      backendOf(device.runtime).attendsCached({ dtype, width }) &&
      [key, value, keys, values].every((tensor) => tensor.dtype === dtype);
    if (!isPossible) return undefined;
    const operands = [query, key, value, keys, values, positions];
    const rotations = rotation ? [rotation.cosines, rotation.sines] : [];
    const attended = device.apply(cachedAttention, [...operands, ...rotations], attributes);
    for (const table of [keys, values]) noteWrite(table.array.storage);
    return attended;
  }

  #table(tables: readonly Buffer[], layer: number): Buffer {
    const table = tables[layer];
    if (table) return table;
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `The cache has ${this.keys.length} layers, and no layer ${layer}.`,
      {
        numbers: { layer, layers: this.keys.length },
      },
    );
  }
}

/** Overwrites the columns of a call's rows. The columns of other rows are neither read nor written by a compiled step. */
function writeRows(table: Tensor, source: Tensor, { isWritten, row }: CacheRows): void {
  const { shape } = table;
  const rows = row ? source.gather(1, row.expand(shape)) : source.expand(shape);
  table.copy_(where(isWritten, rows.to(table.dtype), table));
}
