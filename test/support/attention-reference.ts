/** Attention by its definition, in float64, over plain functions of the index: the reference of the kernels. */

export interface ReferenceShape {
  readonly batch: number;
  readonly heads: number;
  readonly rows: number;
  readonly columns: number;
  readonly width: number;
  readonly valueWidth: number;
  readonly scale: number;
  readonly isCausal: boolean;
}

/** An element of a [batch, heads, rows, width] operand. */
export type Lookup = (batch: number, head: number, row: number, column: number) => number;

/** Contiguous values of [batch, heads, rows, width]. */
export class Dense {
  readonly values: Float64Array;
  readonly #heads: number;
  readonly #rows: number;
  readonly #width: number;

  constructor(batch: number, heads: number, rows: number, width: number) {
    this.values = new Float64Array(batch * heads * rows * width);
    this.#heads = heads;
    this.#rows = rows;
    this.#width = width;
  }

  indexOf(batch: number, head: number, row: number, column: number): number {
    return ((batch * this.#heads + head) * this.#rows + row) * this.#width + column;
  }

  at: Lookup = (batch, head, row, column) => this.values[this.indexOf(batch, head, row, column)]!;

  add(batch: number, head: number, row: number, column: number, by: number): void {
    this.values[this.indexOf(batch, head, row, column)]! += by;
  }
}

/** The factor of each probability after dropout: 0, or the same for all that are kept. */
type Kept = { readonly kept?: Lookup };

function eachPair({ batch, heads }: ReferenceShape, body: (batch: number, head: number) => void): void {
  for (let b = 0; b < batch; b++) for (let h = 0; h < heads; h++) body(b, h);
}

export function referenceAttention(
  shape: ReferenceShape,
  { query, key, value, mask, kept }: Record<"query" | "key" | "value" | "mask", Lookup> & Kept,
): { out: Dense; probabilities: Dense } {
  const { batch, heads, rows, columns, width, valueWidth, scale, isCausal } = shape;
  const out = new Dense(batch, heads, rows, valueWidth);
  const probabilities = new Dense(batch, heads, rows, columns);
  eachPair(shape, (b, h) => {
    for (let row = 0; row < rows; row++) {
      const seen = isCausal ? Math.min(row + 1, columns) : columns;
      const scores = Array.from({ length: seen }, (_, column) => {
        let score = 0;
        for (let w = 0; w < width; w++) score += query(b, h, row, w) * key(b, h, column, w);
        return scale * score + mask(b, h, row, column);
      });
      const largest = Math.max(...scores);
      const powers = scores.map((score) => Math.exp(score - largest));
      const total = powers.reduce((sum, power) => sum + power, 0);
      for (const [column, power] of powers.entries()) {
        probabilities.add(b, h, row, column, power / total);
        const weight = (power / total) * (kept?.(b, h, row, column) ?? 1);
        for (let w = 0; w < valueWidth; w++) out.add(b, h, row, w, weight * value(b, h, column, w));
      }
    }
  });
  return { out, probabilities };
}

export function referenceGradients(
  shape: ReferenceShape,
  operands: Record<"query" | "key" | "value" | "probabilities" | "outGradient", Lookup> & Kept,
): Record<"queryGradient" | "keyGradient" | "valueGradient" | "scoreGradient", Dense> {
  const { batch, heads, rows, columns, width, valueWidth, scale } = shape;
  const { query, key, value, probabilities, outGradient, kept } = operands;
  const queryGradient = new Dense(batch, heads, rows, width);
  const keyGradient = new Dense(batch, heads, columns, width);
  const valueGradient = new Dense(batch, heads, columns, valueWidth);
  const scoreGradient = new Dense(batch, heads, rows, columns);
  eachPair(shape, (b, h) => {
    for (let row = 0; row < rows; row++) {
      const arriving = Array.from({ length: columns }, (_, column) => {
        let sum = 0;
        for (let w = 0; w < valueWidth; w++) sum += outGradient(b, h, row, w) * value(b, h, column, w);
        return sum * (kept?.(b, h, row, column) ?? 1);
      });
      const mean = arriving.reduce((sum, value, column) => sum + value * probabilities(b, h, row, column), 0);
      for (const [column, value] of arriving.entries()) {
        const probability = probabilities(b, h, row, column);
        const weight = probability * (kept?.(b, h, row, column) ?? 1);
        const gradient = probability * (value - mean);
        scoreGradient.add(b, h, row, column, gradient);
        for (let w = 0; w < width; w++) {
          queryGradient.add(b, h, row, w, scale * gradient * key(b, h, column, w));
          keyGradient.add(b, h, column, w, scale * gradient * query(b, h, row, w));
        }
        for (let w = 0; w < valueWidth; w++)
          valueGradient.add(b, h, column, w, weight * outGradient(b, h, row, w));
      }
    }
  });
  return { queryGradient, keyGradient, valueGradient, scoreGradient };
}
