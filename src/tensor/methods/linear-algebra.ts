/** Functions of square matrices as methods of tensors; `linalg` has them all. */

import { det, inv, logdet, matrixExp, matrixPower, type SignAndLogarithm, slogdet } from "../linalg/index.js";
import type { Tensor } from "../tensor.js";

export const linearAlgebraMethods = {
  /**
   * The determinants of square matrices: `linalg.det`.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([[2, 1], [1, 3]]).det().item()); // → 5
   * cpu.close();
   * ```
   */
  det(this: Tensor): Tensor {
    return det(this);
  },
  /**
   * The logarithms of the determinants: `linalg.logdet`.
   *
   * @example
   * ```ts
   * import { device, eye } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(eye(3).logdet().item()); // → 0
   * cpu.close();
   * ```
   */
  logdet(this: Tensor): Tensor {
    return logdet(this);
  },
  /**
   * The determinants as a sign and a logarithm: `linalg.slogdet`.
   *
   * @example
   * ```ts
   * import { device, eye } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(eye(3).slogdet().sign.item()); // → 1
   * cpu.close();
   * ```
   */
  slogdet(this: Tensor): SignAndLogarithm {
    return slogdet(this);
  },
  /**
   * The inverse of square matrices: `linalg.inv`.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([[2, 0], [0, 4]]).inverse().tolist()); // → [ [ 0.5, 0 ], [ 0, 0.25 ] ]
   * cpu.close();
   * ```
   */
  inverse(this: Tensor): Tensor {
    return inv(this);
  },
  /**
   * A whole power of square matrices: `linalg.matrixPower`.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([[1, 1], [0, 1]]).matrixPower(3).tolist()); // → [ [ 1, 3 ], [ 0, 1 ] ]
   * cpu.close();
   * ```
   */
  matrixPower(this: Tensor, n: number): Tensor {
    return matrixPower(this, n);
  },
  /**
   * e to the power of square matrices: `linalg.matrixExp`.
   *
   * @example
   * ```ts
   * import { device, zeros } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(zeros([2, 2]).matrixExp().tolist()); // → [ [ 1, 0 ], [ 0, 1 ] ]
   * cpu.close();
   * ```
   */
  matrixExp(this: Tensor): Tensor {
    return matrixExp(this);
  },
};
