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

import { HoldfastError } from "../errors/index.js";
import { Buffer, init, Module } from "../nn/index.js";
import { arange, type Tensor, where } from "../tensor/index.js";

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

/**
 * The keys and values of a language model's earlier positions. `LanguageModel.newCache` makes one; place it with `to`, and pass it to
 * `forward`.
 *
 * @example
 * ```ts
 * import { device, modelFromConfig, models, noGrad, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const sizes = { vocab_size: 20, n_positions: 8, n_embd: 8, n_layer: 1, n_head: 2 };
 * const model = modelFromConfig({ model_type: "gpt2", ...sizes }).to(cpu).eval();
 * if (!(model instanceof models.LanguageModel)) throw new Error("no language model");
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
   * Where rows with these positions, [B, T], are written. The positions of a sequence are consecutive.
   *
   * @internal
   */
  rowsAt(positions: Tensor): CacheRows {
    const { batch, maxLength } = this.sizes;
    const [sequences, rows = 1] = positions.shape;
    if (positions.ndim !== 2 || sequences !== batch || rows > maxLength) {
      throw new HoldfastError(
        "BAD_SHAPE",
        `positions [${positions.shape.join(", ")}] with a cache of ${batch} sequences and ${maxLength} positions. Pass positions ` +
          `[${batch}, rows], or make a cache of these sizes.`,
        { numbers: { batch, maxLength } },
      );
    }
    const row = arange(0, maxLength, 1, { device: positions.device }).sub(positions.narrow(1, 0, 1)); // [B, L]
    const shape = [batch, maxLength, 1, 1];
    if (rows === 1) return { isWritten: row.eq(0).reshape(shape), row: null };
    return {
      isWritten: row.ge(0).logicalAnd(row.lt(rows)).reshape(shape),
      row: row.clamp(0, rows - 1).reshape(shape),
    };
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
    const [keyTable, valueTable] = [this.keys[layer], this.values[layer]];
    if (!keyTable || !valueTable) {
      throw new HoldfastError(
        "BAD_ARGUMENT",
        `The cache has ${this.keys.length} layers, and no layer ${layer}.`,
        {
          numbers: { layer, layers: this.keys.length },
        },
      );
    }
    return [write(keyTable, keys, at), write(valueTable, values, at)].map((table) =>
      table.narrow(1, 0, columns),
    ) as [Tensor, Tensor];
  }
}

/** Overwrites the columns of a call's rows. The columns of other rows are neither read nor written by a compiled step. */
function write(table: Buffer, source: Tensor, { isWritten, row }: CacheRows): Tensor {
  const { shape } = table;
  const rows = row ? source.gather(1, row.expand(shape)) : source.expand(shape);
  return table.copy_(where(isWritten, rows.to(table.dtype), table));
}
