/** Random cases of attention for its tests: shapes, layouts, masks, and their operands. */

import fc from "fast-check";
import type { Lookup, ReferenceShape } from "./attention-reference.js";

type FloatDtype = "f32" | "f64";

/** The position of the heads: before the rows, [B, H, S, D], or after them, [B, S, H, D]. */
type Order = "heads first" | "rows first";
type Dimension = "batch" | "head" | "row" | "column";

export interface Case extends ReferenceShape {
  readonly dtype: FloatDtype;
  readonly order: Order;
  /** Padding of a row, in elements, and elements before the first one. */
  readonly padding: number;
  readonly offset: number;
  /** The dimensions along which keys and values are broadcast; none for the queries. */
  readonly shared: readonly Dimension[];
  /** The heads of keys and values; default: `heads`. */
  readonly keyHeads?: number;
  /**
   * The dimensions along which the mask is broadcast, whether it hides some columns, and how many columns of each batch it does not hide
   * altogether; default: no mask.
   */
  readonly mask?: {
    readonly shared: readonly Dimension[];
    readonly hides: boolean;
    readonly lengths?: readonly number[];
  };
}

export const plainCase: Case = {
  dtype: "f32",
  batch: 1,
  heads: 1,
  rows: 1,
  columns: 1,
  width: 1,
  valueWidth: 1,
  scale: 1,
  isCausal: false,
  order: "heads first",
  padding: 0,
  offset: 0,
  shared: [],
};

export function cases(dtype: FloatDtype): fc.Arbitrary<Case> {
  const size = fc.integer({ min: 1, max: 17 });
  const few = fc.integer({ min: 1, max: 3 });
  const mask = fc.record({
    shared: fc.subarray<Dimension>(["batch", "head", "row", "column"]),
    hides: fc.boolean(),
  });
  return fc.record(
    {
      dtype: fc.constant(dtype),
      batch: few,
      heads: few,
      rows: fc.oneof({ arbitrary: size, weight: 6 }, { arbitrary: fc.constantFrom(32, 33, 35), weight: 1 }),
      columns: size,
      width: size,
      valueWidth: size,
      scale: fc.constantFrom(1, -0.5, 0.125, 3),
      isCausal: fc.boolean(),
      order: fc.constantFrom<Order>("heads first", "rows first"),
      padding: fc.nat(5),
      offset: fc.nat(5),
      shared: fc.subarray<Dimension>(["batch", "head", "row"]),
      mask,
    },
    {
      requiredKeys: [
        ...(["dtype", "batch", "heads", "rows", "columns", "width", "valueWidth", "scale"] as const),
        ...(["isCausal", "order", "padding", "offset", "shared"] as const),
      ],
    },
  );
}

export const arrayOf = { f32: Float32Array, f64: Float64Array } as const;
export type Values = Float32Array<ArrayBuffer> | Float64Array<ArrayBuffer>;

export function randomValues(dtype: FloatDtype, count: number, seed: number): Values {
  let state = seed;
  const values = new arrayOf[dtype](count);
  for (const index of values.keys()) {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) | 0;
    values[index] = state / 2 ** 31;
  }
  return values;
}

export interface MatrixLayout {
  readonly batchStride: number;
  readonly headStride: number;
  readonly rowStride: number;
  /** The elements from the first to the last, and of the buffer around them. */
  readonly extent: number;
  readonly size: number;
  readonly offset: number;
  readonly indexOf: (...indices: Parameters<Lookup>) => number;
}

function layoutOf(
  attentionCase: Case,
  rows: number,
  width: number,
  shared: readonly Dimension[] = [],
): MatrixLayout {
  const { batch, heads, order, padding, offset } = attentionCase;
  const long = width + padding;
  const dense =
    order === "heads first"
      ? { batch: heads * rows * long, head: rows * long, row: long }
      : { batch: heads * rows * long, head: long, row: heads * long };
  const of = (dimension: "batch" | "head" | "row") => (shared.includes(dimension) ? 0 : dense[dimension]);
  const strides = { batchStride: of("batch"), headStride: of("head"), rowStride: of("row") };
  const indexOf = (b: number, h: number, row: number, column: number): number =>
    offset + b * strides.batchStride + h * strides.headStride + row * strides.rowStride + column;
  const extent = indexOf(batch - 1, heads - 1, rows - 1, width - 1) + 1 - offset;
  return { ...strides, offset, extent, size: offset + extent + 3, indexOf };
}

/** The operands of a case with their values, on the host. */
export function prepare(attentionCase: Case) {
  const { dtype, heads, keyHeads = heads, rows, columns, width, valueWidth, shared } = attentionCase;
  const ofKeys = { ...attentionCase, heads: keyHeads };
  const layouts = {
    query: layoutOf(attentionCase, rows, width),
    key: layoutOf(ofKeys, columns, width, shared),
    value: layoutOf(ofKeys, columns, valueWidth, shared),
    out: layoutOf(attentionCase, rows, valueWidth),
    outGradient: layoutOf(attentionCase, rows, valueWidth),
    queryGradient: layoutOf(attentionCase, rows, width),
    keyGradient: layoutOf(ofKeys, columns, width),
    valueGradient: layoutOf(ofKeys, columns, valueWidth),
  };
  const operands = Object.entries(layouts).map(([name, layout], index) => {
    const values = randomValues(dtype, layout.size, index + 1);
    return [name, { layout, values, at: (...indices) => values[layout.indexOf(...indices)]! }] as [
      string,
      { layout: MatrixLayout; values: Values; at: Lookup },
    ];
  });
  return Object.fromEntries(operands) as Record<
    keyof typeof layouts,
    { readonly layout: MatrixLayout; readonly values: Values; readonly at: Lookup }
  >;
}

/** A mask's values and strides: a tensor of size 1 along the broadcast dimensions. */
export function prepareMask({ dtype, batch, heads, rows, columns, mask }: Case) {
  if (!mask) return undefined;
  const sizes = { batch, head: heads, row: rows, column: columns };
  const size = (dimension: Dimension) => (mask.shared.includes(dimension) ? 1 : sizes[dimension]);
  const stride = (dimension: Dimension, dense: number) => (mask.shared.includes(dimension) ? 0 : dense);
  const strides = {
    columnStride: stride("column", 1),
    rowStride: stride("row", size("column")),
    headStride: stride("head", size("column") * size("row")),
    batchStride: stride("batch", size("column") * size("row") * size("head")),
  };
  const values = randomValues(dtype, size("batch") * size("head") * size("row") * size("column"), 77);
  // The first column stays visible, so that no row is fully hidden; a mask that all columns share hides
  // nothing.
  if (mask.hides && strides.columnStride > 0) {
    for (const [index, value] of values.entries()) {
      if (index % size("column") > 0 && value > 0.3) values[index] = Number.NEGATIVE_INFINITY;
    }
  }
  for (const [index] of mask.lengths ? values.entries() : []) {
    const length = mask.lengths?.[Math.floor(index / strides.batchStride)] ?? columns;
    if (index % columns >= length) values[index] = Number.NEGATIVE_INFINITY;
  }
  const at: Lookup = (b, h, row, column) =>
    values[
      b * strides.batchStride +
        h * strides.headStride +
        row * strides.rowStride +
        column * strides.columnStride
    ]!;
  return { strides, values, at };
}
