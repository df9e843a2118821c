/** Finds the first op whose result has a NaN, by checking every result. */

import { HoldfastError } from "../errors/index.js";
import { applyTo, cast, comparisons, type DeviceArray, formatShape, isFloat, sum } from "../ops/index.js";
import type { Runtime } from "../runtime/index.js";

export function rejectNaN(runtime: Runtime): (op: string, array: DeviceArray) => void {
  return (op, array) => {
    if (!isFloat(array.dtype) || !array.storage) return;
    const nans = countNaN(runtime, array);
    if (nans === 0) return;
    throw new HoldfastError(
      "NOT_FINITE",
      `${op} is the first op with a NaN in its result: ${nans} of the elements of ${array.dtype} ${formatShape(array.shape)}. ` +
        "Its operands had none: print them, and look for zeros, infinities and numbers outside the domain of the op.",
      { numbers: { op, nans } },
    );
  };
}

/** Frees its arrays: the check must not change a step's memory use. */
function countNaN(runtime: Runtime, array: DeviceArray): number {
  const apply = applyTo(runtime);
  const mask = apply(comparisons.isnan, [array]);
  const numbers = apply(cast, [mask], { dtype: "i32" });
  const count = apply(sum, [numbers], {});
  const [nans = 0] = count.storage ? new Int32Array(runtime.read(count.storage).buffer) : [];
  for (const { storage } of [mask, numbers, count]) if (storage) runtime.arena.free(storage);
  return nans;
}
