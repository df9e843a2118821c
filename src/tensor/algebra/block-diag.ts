/** A matrix with other matrices along its diagonal. */

import { HoldfastError } from "../../errors/index.js";
import { formatShape } from "../../ops/index.js";
import { cat } from "../functions.js";
import type { Tensor } from "../tensor.js";

/**
 * A matrix with these matrices along its diagonal, and zeros elsewhere. A vector is one row, a number one element.
 *
 * @example
 * ```ts
 * import { blockDiag, device, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(blockDiag(tensor([[1], [2]]), tensor([3, 4])).tolist());
 * // → [ [ 1, 0, 0 ], [ 2, 0, 0 ], [ 0, 3, 4 ] ]
 * cpu.close();
 * ```
 */
export function blockDiag(...blocks: readonly Tensor[]): Tensor {
  const matrices = blocks.map((block, index) => {
    if (block.ndim <= 2) return block.ndim === 2 ? block : block.reshape([1, block.numel]);
    throw new HoldfastError(
      "BAD_SHAPE",
      `blockDiag: operand ${index} is ${formatShape(block.shape)}; pass matrices, vectors and numbers.`,
      { numbers: { op: "blockDiag" } },
    );
  });
  const columns = matrices.reduce((sum, matrix) => sum + matrix.size(1), 0);
  let before = 0;
  const rows = matrices.map((matrix) => {
    const width = matrix.size(1);
    const padded = matrix.pad([before, columns - before - width]);
    before += width;
    return padded;
  });
  return cat(rows);
}
