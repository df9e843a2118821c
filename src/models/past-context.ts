/**
 * PastContext: a call of a decoder whose cache is a value: the keys and values of earlier positions come in as tensors, and go out with
 * those of the call. It has no side effects, so that a traced call is a graph with a cache of any length.
 */

import { functional } from "../nn/index.js";
import { arange, cat, type Tensor } from "../tensor/index.js";
import type { AttendOptions, DecoderCall } from "./decoder-context.js";
import { rotate } from "./rotary.js";

/** The keys and values of a layer, [B, keyHeads, columns, headWidth]. */
export interface LayerPast {
  readonly key: Tensor;
  readonly value: Tensor;
}

/** Inputs of a call with P earlier positions, besides the token ids [B, T]. */
export interface PastInputs {
  /** Of the rows, [B, T]. */
  readonly positions: Tensor;
  /** 0 for padding, [B, P + T]. */
  readonly attentionMask: Tensor;
  /** P columns, of each layer. */
  readonly past: readonly LayerPast[];
}

export class PastContext implements DecoderCall {
  readonly rows: number;
  readonly positions: Tensor;
  readonly columns: number;
  /** P + T columns, of each layer that has attended. */
  readonly present: LayerPast[] = [];
  readonly #past: readonly LayerPast[];
  readonly #masks: ReadonlyMap<number | null, Tensor>;

  constructor({ positions, attentionMask, past }: PastInputs, windows: readonly (number | null)[]) {
    const [batch = 1, rows = 1] = positions.shape;
    const columns = attentionMask.shape[1] ?? rows;
    this.rows = rows;
    this.columns = columns;
    this.positions = positions;
    this.#past = past;
    const column = arange(0, columns, 1, { device: positions.device });
    const row = column.narrow(0, columns - rows, rows).unsqueeze(1); // [T, 1]
    const isToken = attentionMask.ne(0).reshape([batch, 1, 1, columns]);
    this.#masks = new Map(
      [...new Set(windows)].map((window) => {
        const earlier = column.le(row);
        const seen = window === null ? earlier : earlier.logicalAnd(column.gt(row.sub(window)));
        // Padding attends to itself: a row without any column would be NaN.
        return [window, isToken.logicalAnd(seen).logicalOr(column.eq(row))] as const;
      }),
    );
  }

  attend(plainQuery: Tensor, plainKey: Tensor, value: Tensor, options: AttendOptions): Tensor {
    const { layer, window = null, rotation, ...others } = options;
    const [query, key] = rotation
      ? [rotate(plainQuery, rotation), rotate(plainKey, rotation)]
      : [plainQuery, plainKey];
    const past = this.#past[layer];
    const extended = (earlier: Tensor | undefined, own: Tensor): Tensor => {
      const columns = own.transpose(1, 2);
      return earlier ? cat([earlier, columns.to(earlier.dtype)], 2) : columns;
    };
    const present = { key: extended(past?.key, key), value: extended(past?.value, value) };
    this.present[layer] = present;
    const attended = functional.scaledDotProductAttention(
      query.transpose(1, 2),
      present.key.to(query.dtype),
      present.value.to(query.dtype),
      this.#masks.get(window) ?? null,
      { ...others, enableGqa: query.shape.at(-2) !== key.shape.at(-2) },
    );
    return attended.transpose(1, 2).flatten(-2);
  }
}
