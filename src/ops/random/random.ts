/** random: independent values of a distribution, drawn on the device. Every run of the op is another draw, also in a replayed step. */

import { type Dtype, dtypes } from "../../ir/index.js";
import { type Distribution, drawKernel, drawLaunch, type Integers, stateBytes } from "../../kernels/index.js";
import type { Storage } from "../../runtime/index.js";
import { copyArray } from "../copy.js";
import { type DeviceArray, isContiguous } from "../device-array.js";
import { arrayAt, type KernelOp, type Lowering, typeAt } from "../op.js";
import { badShape, requireShape, type Shape, sizeOf } from "../shape.js";
import { isDrawable, valuesPerLaunch } from "./draw.js";
import { requireRandomState, reserveDraw } from "./dropout.js";

export type RandomAttributes = {
  readonly shape: Shape;
  /** f32, f64, bf16 or f16; i32 for whole numbers. */
  readonly dtype: Dtype;
  readonly distribution: Distribution | Integers;
};

/** Operand: the device's random state, which advances by one draw. */
export const random: KernelOp<RandomAttributes> = {
  kind: "kernel",
  name: "random",
  noGradient: "its values do not depend on any tensor",
  inPlace: "none",
  infer(operands, { shape, dtype, distribution }) {
    requireRandomState("random", typeAt("random", operands, 0));
    requireShape("random", shape);
    const isInteger = distribution.kind === "integers";
    if (isInteger ? dtype === "i32" : isDrawable(dtype)) return [{ shape, dtype }];
    throw badShape(
      "random",
      `the dtype is ${dtype}; ${isInteger ? "whole numbers are i32" : "values are f32, f64, bf16 or f16"}.`,
    );
  },
  lower(lowering, operands, [output], { distribution }) {
    const state = arrayAt(operands, 0);
    if (!output?.storage) return;
    const draw = lowering.scratch(stateBytes);
    reserveDraw(lowering, state, { ...state, storage: draw }, true);
    if (isContiguous(output)) {
      drawInto(lowering, output, draw, distribution);
      return;
    }
    const values = lowering.scratchArray(output.shape, output.dtype);
    drawInto(lowering, values, draw, distribution);
    copyArray(lowering, values, output);
  },
};

/** Emits the launches that write the values of a draw to a contiguous array. */
function drawInto(
  lowering: Lowering,
  { storage, shape, dtype }: DeviceArray,
  draw: Storage,
  distribution: Distribution | Integers,
): void {
  if (!storage) return;
  const count = sizeOf(shape);
  const { bytes } = dtypes[dtype];
  const source = sourceOf(distribution, dtype);
  for (let first = 0; source && first < count; first += valuesPerLaunch) {
    const range = { first, count: Math.min(valuesPerLaunch, count - first) };
    const { blocks, scalars } = drawLaunch(distribution, range);
    const part = range.count === count ? storage : lowering.view(storage, first * bytes, range.count * bytes);
    lowering.launch({ op: distribution.kind, source, blocks, arguments: [part, draw, ...scalars] });
  }
}

function sourceOf({ kind }: Distribution | Integers, dtype: Dtype) {
  if (kind === "integers") return drawKernel({ kind, dtype: "i32" });
  return isDrawable(dtype) ? drawKernel({ kind, dtype }) : undefined;
}
