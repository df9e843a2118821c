/** The diagonal of two axes of one size, as a view where the memory layout allows it. */

import type { Tensor } from "../tensor.js";

/** The diagonal becomes the last axis. If the axes differ in size, it has the smaller one. */
export function diagonalView(x: Tensor, first: number, last: number): Tensor {
  const matrices = x.movedim([first, last], [-2, -1]);
  const [rows, columns] = [matrices.size(-2), matrices.size(-1)];
  const length = Math.min(rows, columns);
  const square = matrices.narrow(-2, 0, length);
  const flat = square.flatten(-2, -1);
  return flat.slice(...flat.shape.slice(1).map(() => null), [0, null, columns + 1]);
}
