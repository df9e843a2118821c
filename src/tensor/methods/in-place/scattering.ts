/** The in-place forms of writes at indices, and of triangles. */

import { diagonalMethods } from "../diagonals.js";
import { scatteringMethods } from "../scattering.js";
import { inPlace } from "./elementwise.js";

/**
 * A method of the same name without the underscore describes each.
 *
 * @example
 * ```ts
 * import { device, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const x = tensor([1, 2, 3]);
 * x.indexFill_(0, tensor([1], { dtype: "i32" }), 9);
 * console.log(x.tolist()); // → [ 1, 9, 3 ]
 * cpu.close();
 * ```
 */
export const inPlaceScatteringMethods = {
  /** `scatter` in place. */
  scatter_: inPlace(scatteringMethods.scatter),
  /** `scatterReduce` in place. */
  scatterReduce_: inPlace(scatteringMethods.scatterReduce),
  /** `indexAdd` in place. */
  indexAdd_: inPlace(scatteringMethods.indexAdd),
  /** `indexCopy` in place. */
  indexCopy_: inPlace(scatteringMethods.indexCopy),
  /** `indexFill` in place. */
  indexFill_: inPlace(scatteringMethods.indexFill),
  /** `indexPut` in place. */
  indexPut_: inPlace(scatteringMethods.indexPut),
  /** `maskedScatter` in place. */
  maskedScatter_: inPlace(scatteringMethods.maskedScatter),
  /** `put` in place. */
  put_: inPlace(scatteringMethods.put),
  /** `tril` in place. */
  tril_: inPlace(diagonalMethods.tril),
  /** `triu` in place. */
  triu_: inPlace(diagonalMethods.triu),
};
