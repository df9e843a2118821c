/** Writes to views of an array: the gradient of a view is the same view of its operand's gradient. */

import { copyArray } from "../copy.js";
import type { DeviceArray } from "../device-array.js";
import { add } from "../elementwise/arithmetic.js";
import { arrayAt, type KernelOp, type Lowering, typeAt } from "../op.js";
import { fillWith } from "../reduction/reduce.js";
import { type StridedView, viewStrided } from "./strided-view.js";

/** Zeros in all of `zeros`, then the second operand in `view`. The first operand's other elements stay. */
export const writeView: KernelOp<{ readonly view: StridedView; readonly zeros: readonly StridedView[] }> = {
  kind: "kernel",
  name: "viewGradient",
  noGradient: "a recorded gradient is composed of other ops",
  inPlace: 0,
  infer: (operands) => [typeAt("viewGradient", operands, 0)],
  lower(lowering, operands, [output], { view, zeros }) {
    if (!output?.storage) return;
    copyFirst(lowering, operands, output);
    for (const gap of zeros) zero(lowering, output, gap);
    copyArray(lowering, arrayAt(operands, 1), viewStrided(lowering, output, view));
  },
};

/** Adds the second operand to a view of the first. */
export const addToView: KernelOp<{ readonly view: StridedView }> = {
  kind: "kernel",
  name: "viewGradient",
  noGradient: "a recorded gradient is composed of other ops",
  inPlace: 0,
  infer: (operands) => [typeAt("viewGradient", operands, 0)],
  lower(lowering, operands, [output], { view }) {
    if (!output?.storage) return;
    copyFirst(lowering, operands, output);
    const target = viewStrided(lowering, output, view);
    if (target.storage) add.lower(lowering, [target, arrayAt(operands, 1)], [target], {});
  },
};

/** Sets views of the operand to zero. */
export const zeroViews: KernelOp<{ readonly zeros: readonly StridedView[] }> = {
  kind: "kernel",
  name: "viewGradient",
  noGradient: "a recorded gradient is composed of other ops",
  inPlace: 0,
  infer: (operands) => [typeAt("viewGradient", operands, 0)],
  lower(lowering, operands, [output], { zeros }) {
    if (!output?.storage) return;
    copyFirst(lowering, operands, output);
    for (const gap of zeros) zero(lowering, output, gap);
  },
};

/** Copies the first operand, unless the op runs in place on it. */
function copyFirst(
  lowering: Lowering,
  operands: readonly (DeviceArray | number)[],
  output: DeviceArray,
): void {
  const first = arrayAt(operands, 0);
  if (first.storage?.span.address !== output.storage?.span.address) copyArray(lowering, first, output);
}

function zero(lowering: Lowering, array: DeviceArray, gap: StridedView): void {
  const view = viewStrided(lowering, array, gap);
  const isWhole = view.storage?.span.size === array.storage?.span.size;
  if (isWhole && array.storage) lowering.fill(array.storage, 0);
  else fillWith(lowering, view, 0);
}
