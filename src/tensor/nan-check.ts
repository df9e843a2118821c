/** Finds the first op that makes a NaN: looks at every result, and names the op. */

import { HoldfastError } from "../errors/index.js";
import { applyTo, cast, comparisons, type DeviceArray, formatShape, isFloat, sum } from "../ops/index.js";
import type { Runtime } from "../runtime/index.js";

export function refuseNaN(runtime: Runtime): (op: string, array: DeviceArray) => void {
  const apply = applyTo(runtime);
  return (op, array) => {
    if (!isFloat(array.dtype) || !array.storage) return;
    const found = apply(comparisons.isnan, [array]);
    const count = apply(sum, [apply(cast, [found], { dtype: "i32" })], {});
    if (!count.storage) return;
    const [nans = 0] = new Int32Array(runtime.read(count.storage).buffer);
    if (nans === 0) return;
    throw new HoldfastError(
      "NOT_FINITE",
      `${op} is the first op with a NaN in its result: ${nans} of the elements of ${array.dtype} ${formatShape(array.shape)}.`,
      { numbers: { op, nans } },
    );
  };
}
