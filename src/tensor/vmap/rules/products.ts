/** Batching rules of matrix products. */

import {
  add,
  biasOfLora,
  type LinearAttributes,
  type LoraLinearAttributes,
  linear,
  matmul,
  mul,
  permute,
} from "../../../ops/index.js";
import type { Tensor } from "../../tensor.js";
import type { BatchCall, BatchingRule } from "../batch-call.js";

/** Vectors become matrices, and the batches of both sides get as many axes. */
export const matmulRule: BatchingRule = (call) => {
  const isOneMatrix = !call.isBatched(1) && call.rankOf(1) <= 2;
  if (isOneMatrix) return call.run([call.whole(0), call.raw(1)]);
  const [left, right] = [call.shapeOf(0), call.shapeOf(1)];
  const a = left.length === 1 ? [1, ...left] : left;
  const b = right.length === 1 ? [...right, 1] : right;
  const rank = Math.max(a.length, b.length);
  const [result] = call.run([matrices(call, 0, a, rank), matrices(call, 1, b, rank)]);
  return result && [call.reshape(result, [call.size, ...(call.types[0]?.shape ?? [])])];
};

function matrices(call: BatchCall, index: number, shape: readonly number[], rank: number): Tensor {
  const padded = [...new Array<number>(rank - shape.length).fill(1), ...shape];
  return call.reshape(call.whole(index), [call.size, ...padded]);
}

/** A weight of each member is a batched product. */
export const linearRule: BatchingRule = (call) => {
  const { device, operands, attributes } = call;
  const [x, weight, bias] = operands;
  if (!call.isBatched(1) && !call.isBatched(2))
    return call.run([call.whole(0), ...operands.slice(1).map((_, index) => call.raw(index + 1))]);
  if (typeof x !== "object" || typeof weight !== "object") return undefined;
  const { layout, scale = 1 } = attributes as LinearAttributes;
  const matrix = layout === "inOut" ? weight : device.apply(permute, [weight], { axes: [1, 0] });
  const plain = device.apply(matmul, [x, matrix]);
  const product = scale === 1 ? plain : device.apply(mul, [plain, scale]);
  return [call.unwrap(typeof bias === "object" ? device.apply(add, [product, bias]) : product)];
};

/** Members that share the weights are further rows. Otherwise both products are computed by themselves. */
export const loraLinearRule: BatchingRule = (call) => {
  const { device, operands } = call;
  const attributes = call.attributes as LoraLinearAttributes;
  const { scale, layout = "outIn", inputOfA = 0 } = attributes;
  const isInput = (index: number): boolean => index === 0 || index === inputOfA;
  if (!operands.some((_, index) => !isInput(index) && call.isBatched(index)))
    return call.run(operands.map((_, index) => (isInput(index) ? call.whole(index) : call.raw(index))));
  const [x, weight, a, b] = operands as readonly Tensor[];
  const input = operands[inputOfA];
  const bias = operands[biasOfLora(attributes)];
  if (!x || !weight || !a || !b || typeof input !== "object") return undefined;
  const narrow = device.apply(linear, [input, a], { layout, scale });
  const product = device.apply(linear, [narrow, b], { layout });
  const wide = device.apply(linear, typeof bias === "object" ? [x, weight, bias] : [x, weight], { layout });
  return [call.unwrap(device.apply(add, [wide, product]))];
};
