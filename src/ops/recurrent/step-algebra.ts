/** The ops of recorded gradients of recurrent layers, on arrays [steps, batch, hidden] and [steps, planes, batch, hidden]. */

import { add, mul, sub } from "../elementwise/arithmetic.js";
import { square } from "../elementwise/functions.js";
import { matmul } from "../matmul/matmul.js";
import { stack } from "../movement/cat.js";
import { permute, reshape } from "../movement/reshape.js";
import { select, slice } from "../movement/slice.js";
import type { GradientRule } from "../op.js";

export function stepAlgebra<V>({ apply, valueType }: Pick<GradientRule<V, unknown>, "apply" | "valueType">) {
  const minus = (a: V | number, b: V): V => apply(sub, [a, b]);
  const plane = (value: V, index: number): V => apply(select, [value], { axis: 1, index });
  const asRows = (value: V): V => {
    const [steps = 0, batch = 0, width = 0] = valueType(value).shape;
    return apply(reshape, [value], { shape: [steps * batch, width] });
  };
  return {
    minus,
    plus: (...addends: readonly [V, ...V[]]): V => addends.reduce((a, b) => apply(add, [a, b])),
    times: (...factors: readonly [V, ...V[]]): V => factors.reduce((a, b) => apply(mul, [a, b])),
    sigmoidSlope: (y: V): V => minus(y, apply(square, [y])),
    tanhSlope: (y: V): V => minus(1, apply(square, [y])),
    /** The row of one step. */
    stepOf: (value: V, step: number): V => apply(select, [value], { axis: 0, index: step }),
    rowsOf: (value: V, first: number, count: number): V =>
      apply(slice, [value], { ranges: [[first, first + count]] }),
    stackSteps: (values: readonly V[]): V => apply(stack, values, { axis: 0 }),
    /** The planes of [steps, 4, batch, hidden]. */
    planesOf: (value: V): [V, V, V, V] => [
      plane(value, 0),
      plane(value, 1),
      plane(value, 2),
      plane(value, 3),
    ],
    stackPlanes: (values: readonly V[]): V => apply(stack, values, { axis: 1 }),
    /** [steps, planes, batch, hidden] → [steps, batch, planes · hidden]. */
    joinPlanes(value: V): V {
      const [steps = 0, planes = 0, batch = 0, hidden = 0] = valueType(value).shape;
      const swapped = apply(permute, [value], { axes: [0, 2, 1, 3] });
      return apply(reshape, [swapped], { shape: [steps, batch, planes * hidden] });
    },
    /** The gradient of a weight [width, hidden] from that of the products [steps, batch, width] and the rows [steps, batch, hidden]. */
    weightGradient(ofProducts: V, rows: V): V {
      const columns = apply(permute, [asRows(ofProducts)], { axes: [1, 0] });
      return apply(matmul, [columns, asRows(rows)]);
    },
  };
}
