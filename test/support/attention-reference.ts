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

/** The elements of one (batch, head), row by row: loops over them are several times faster than calls. */
function elementsOf(at: Lookup, b: number, h: number, rows: number, width: number): Float64Array {
  const values = new Float64Array(rows * width);
  for (let row = 0; row < rows; row++)
    for (let w = 0; w < width; w++) values[row * width + w] = at(b, h, row, w);
  return values;
}

/** The dot product of two rows. */
function dot(a: Float64Array, rowA: number, b: Float64Array, rowB: number, width: number): number {
  let sum = 0;
  for (let w = 0; w < width; w++) sum += a[rowA * width + w]! * b[rowB * width + w]!;
  return sum;
}

export function referenceAttention(
  shape: ReferenceShape,
  { query, key, value, mask, kept }: Record<"query" | "key" | "value" | "mask", Lookup> & Kept,
): { out: Dense; probabilities: Dense } {
  const { batch, heads, rows, columns, width, valueWidth, scale, isCausal } = shape;
  const out = new Dense(batch, heads, rows, valueWidth);
  const probabilities = new Dense(batch, heads, rows, columns);
  eachPair(shape, (b, h) => {
    const queries = elementsOf(query, b, h, rows, width);
    const keys = elementsOf(key, b, h, columns, width);
    const values = elementsOf(value, b, h, columns, valueWidth);
    for (let row = 0; row < rows; row++) {
      const seen = isCausal ? Math.min(row + 1, columns) : columns;
      const scores = new Float64Array(seen);
      for (let column = 0; column < seen; column++)
        scores[column] = scale * dot(queries, row, keys, column, width) + mask(b, h, row, column);
      const largest = Math.max(...scores);
      const powers = scores.map((score) => Math.exp(score - largest));
      const total = powers.reduce((sum, power) => sum + power, 0);
      const first = out.indexOf(b, h, row, 0);
      for (const [column, power] of powers.entries()) {
        probabilities.add(b, h, row, column, power / total);
        const weight = (power / total) * (kept?.(b, h, row, column) ?? 1);
        for (let w = 0; w < valueWidth; w++)
          out.values[first + w]! += weight * values[column * valueWidth + w]!;
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
    const queries = elementsOf(query, b, h, rows, width);
    const keys = elementsOf(key, b, h, columns, width);
    const values = elementsOf(value, b, h, columns, valueWidth);
    const gradients = elementsOf(outGradient, b, h, rows, valueWidth);
    for (let row = 0; row < rows; row++) {
      const arriving = new Float64Array(columns);
      for (let column = 0; column < columns; column++)
        arriving[column] = dot(gradients, row, values, column, valueWidth) * (kept?.(b, h, row, column) ?? 1);
      const mean = arriving.reduce((sum, value, column) => sum + value * probabilities(b, h, row, column), 0);
      const atQuery = queryGradient.indexOf(b, h, row, 0);
      for (const [column, value] of arriving.entries()) {
        const probability = probabilities(b, h, row, column);
        const weight = probability * (kept?.(b, h, row, column) ?? 1);
        const gradient = probability * (value - mean);
        scoreGradient.add(b, h, row, column, gradient);
        const atKey = keyGradient.indexOf(b, h, column, 0);
        for (let w = 0; w < width; w++) {
          queryGradient.values[atQuery + w]! += scale * gradient * keys[column * width + w]!;
          keyGradient.values[atKey + w]! += scale * gradient * queries[row * width + w]!;
        }
        const atValue = valueGradient.indexOf(b, h, column, 0);
        for (let w = 0; w < valueWidth; w++)
          valueGradient.values[atValue + w]! += weight * gradients[row * valueWidth + w]!;
      }
    }
  });
  return { queryGradient, keyGradient, valueGradient, scoreGradient };
}
