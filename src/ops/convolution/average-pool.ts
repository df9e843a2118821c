/** avgPool1d, avgPool2d and avgPool3d: the mean of every window. Zeros of the padding are counted, as in PyTorch. */

import { pad } from "../movement/pad.js";
import { type CompositeOp, typeAt } from "../op.js";
import { mean } from "../reduction/mean.js";
import { padsOf } from "./geometry.js";
import { type PoolAttributes, poolWindows } from "./max-pool.js";
import { windows } from "./windows.js";

/** Average pools have no dilation. Pools that do not count all elements of a window are made of other ops. */
export type AveragePoolAttributes = Omit<PoolAttributes, "dilation" | "ceilMode">;

export const avgPool1d = averagePool("avgPool1d", 1);
export const avgPool2d = averagePool("avgPool2d", 2);
export const avgPool3d = averagePool("avgPool3d", 3);

function averagePool(name: string, rank: number): CompositeOp<AveragePoolAttributes> {
  return {
    kind: "composite",
    name,
    infer(operands, attributes) {
      const x = typeAt(name, operands, 0);
      const { count } = poolWindows(name, rank, x, attributes);
      return [{ shape: [...x.shape.slice(0, x.shape.length - rank), ...count], dtype: x.dtype }];
    },
    compose({ apply, typeOf }, [x = 0], attributes) {
      const geometry = poolWindows(name, rank, typeOf(x), attributes);
      const { kernel, stride, padding } = geometry;
      const pads = padsOf(typeOf(x).shape, geometry);
      const padded = padding.some((size) => size > 0) ? apply(pad, [x], { pads }) : x;
      const windowed = apply(windows, [padded], { kernel, stride });
      return [apply(mean, [windowed], { axes: kernel.map((_, axis) => axis - rank) })];
    },
  };
}
