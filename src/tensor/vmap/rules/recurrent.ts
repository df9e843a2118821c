/** The batching rule of recurrent layers. */

import { permute, positionsOf, type RecurrentAttributes, recurrent, stack } from "../../../ops/index.js";
import type { Tensor } from "../../tensor.js";
import type { BatchCall, BatchingRule, Operand } from "../batch-call.js";

/** The batches of all members become one. If weights differ between members, each member runs by itself. */
export const recurrentRule: BatchingRule = (call) => {
  const attributes = call.attributes as RecurrentAttributes;
  const { weight, bias, gates, mask } = positionsOf(attributes.cell, call.operands.length);
  const shared = [weight, bias].filter((position) => position !== undefined);
  if (shared.some((position) => call.isBatched(position))) return [runEach(call, attributes)];
  const operands = call.operands.map((operand, index): Operand => {
    if (shared.includes(index)) return operand;
    return joined(call, index, index === gates || index === mask ? 1 : 0);
  });
  const states = call.device.apply(recurrent, operands, attributes);
  const [rows = 0, batch = 0, hidden = 0] = call.types[0]?.shape ?? [];
  const apart = call.reshape(states, [rows, call.size, batch, hidden]);
  return [call.device.apply(permute, [apart], { axes: [1, 0, 2, 3] })];
};

/** An operand whose axis of the batch has the batches of all members. */
function joined(call: BatchCall, index: number, axis: 0 | 1): Tensor {
  const whole = call.whole(index);
  if (axis === 0) return call.reshape(whole, [-1, ...whole.shape.slice(2)]);
  const [, steps = 0, , ...rest] = whole.shape;
  const axes = whole.shape.map((_, at) => (at === 0 ? 1 : at === 1 ? 0 : at));
  return call.reshape(call.device.apply(permute, [whole], { axes }), [steps, -1, ...rest]);
}

function runEach(call: BatchCall, attributes: RecurrentAttributes): Tensor {
  const states = Array.from({ length: call.size }, (_, member) => {
    const operands = call.operands.map((operand, index) =>
      call.isBatched(index) ? call.whole(index).select(0, member) : operand,
    );
    return call.device.apply(recurrent, operands, attributes);
  });
  return call.device.apply(stack, states, { axis: 0 });
}
