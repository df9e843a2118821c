/** Batching rules of matrix products. */

import { add, matmul, permute } from "../../../ops/index.js";
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
  const isInOut = (attributes as { readonly layout?: string }).layout === "inOut";
  const matrix = isInOut ? weight : device.apply(permute, [weight], { axes: [1, 0] });
  const product = device.apply(matmul, [x, matrix]);
  return [call.unwrap(typeof bias === "object" ? device.apply(add, [product, bias]) : product)];
};
