/** Batching rules of norms, convolutions, pools and losses. */

import {
  add,
  functions,
  mul,
  nllLoss,
  normalizeChannels,
  type Op,
  permute,
  reshape,
  sum,
} from "../../../ops/index.js";
import type { Tensor } from "../../tensor.js";
import type { BatchCall, BatchingRule } from "../batch-call.js";

/** layerNorm and rmsNorm. A weight of each member multiplies the result afterwards. */
export const lastAxesNorm: BatchingRule = (call) => {
  const { device, op, operands } = call;
  const [x, weight, bias] = operands;
  const { normalizedShape = typeof weight === "object" ? weight.shape : call.shapeOf(0).slice(-1) } =
    call.attributes as { readonly normalizedShape?: readonly number[] };
  const attributes = { ...call.attributes, normalizedShape };
  if (!call.isBatched(1) && !call.isBatched(2))
    return call.run([call.whole(0), ...operands.slice(1)], attributes);
  if (typeof x !== "object" || typeof weight !== "object") return undefined;
  const scaled = device.apply(mul, [device.apply(op, [x], attributes), weight]);
  return [call.unwrap(bias === undefined ? scaled : device.apply(add, [scaled, bias]))];
};

/** Ops whose members have a batch of their own, and the same other operands: both batches become one. */
export const joinsBatches: BatchingRule = (call) => {
  if (call.operands.some((_, index) => index > 0 && call.isBatched(index))) return undefined;
  const x = call.whole(0);
  const [, batch = 1, ...rest] = x.shape;
  const outputs = call.run([call.reshape(x, [call.size * batch, ...rest]), ...call.operands.slice(1)]);
  return outputs.map((y, index) => call.reshape(y, [call.size, ...(call.types[index]?.shape ?? [])]));
};

/** A weight of each member multiplies the result afterwards. */
export const groupNormRule: BatchingRule = (call) => {
  const { device, op, operands, attributes } = call;
  const [x, weight, bias] = operands;
  if (!call.isBatched(1) && !call.isBatched(2)) return joinsBatches(call);
  if (typeof x !== "object" || typeof weight !== "object") return undefined;
  const perChannel = (values: Tensor): Tensor =>
    device.apply(reshape, [values], { shape: [-1, ...x.shape.slice(2).map(() => 1)] });
  const scaled = device.apply(mul, [device.apply(op, [x], attributes), perChannel(weight)]);
  return [call.unwrap(typeof bias === "object" ? device.apply(add, [scaled, perChannel(bias)]) : scaled)];
};

/** Batch norm: the channels of each member are channels of their own. */
export const batchNormRule: BatchingRule = (call) => {
  const { operands, size } = call;
  const channelsDiffer = operands.some((_, index) => index > 0 && call.isBatched(index));
  if (call.op === (normalizeChannels as Op) && !channelsDiffer) return joinsBatches(call);
  const x = call.whole(0);
  const [, batch = 0, channels = 0, ...sizes] = x.shape;
  const input = call.reshape(swapped(call, x), [batch, size * channels, ...sizes]);
  const perChannel = operands
    .slice(1)
    .map((_, index) => call.reshape(call.whole(index + 1), [size * channels]));
  const [y, ...statistics] = call.run([input, ...perChannel]);
  return (
    y && [
      swapped(call, call.reshape(y, [batch, size, channels, ...sizes])),
      ...statistics.map((statistic) => call.reshape(statistic, [size, channels])),
    ]
  );
};

/** Pools: [C, …] or [N, C, …]. */
export const pool =
  (rank: number): BatchingRule =>
  (call) =>
    call.rankOf(0) > rank + 1 ? joinsBatches(call) : call.run([call.whole(0)]);

/** Convolutions. A weight of each member is a group of channels of its own. */
export const convolution =
  (rank: number): BatchingRule =>
  (call) => {
    const hasBatch = call.rankOf(0) > rank + 1;
    const sharesWeights = !call.isBatched(1) && !call.isBatched(2);
    if (sharesWeights && !hasBatch) return call.run([call.whole(0), ...call.operands.slice(1)]);
    if (sharesWeights) return joinsBatches(call);
    const groups = call.size * ((call.attributes as { readonly groups?: number }).groups ?? 1);
    const merged = call.operands.slice(1).map((_, index) => {
      const [members = 0, channels = 0, ...rest] = call.whole(index + 1).shape;
      return call.reshape(call.whole(index + 1), [members * channels, ...rest]);
    });
    const x = call.whole(0);
    const [out = []] = [call.types[0]?.shape];
    if (!hasBatch) {
      const [, channels = 0, ...sizes] = x.shape;
      const input = call.reshape(x, [call.size * channels, ...sizes]);
      const [y] = call.run([input, ...merged], { ...call.attributes, groups });
      return y && [call.reshape(y, [call.size, ...out])];
    }
    const [, batch = 0, channels = 0, ...sizes] = x.shape;
    const input = call.reshape(swapped(call, x), [batch, call.size * channels, ...sizes]);
    const [y] = call.run([input, ...merged], { ...call.attributes, groups });
    return y && [swapped(call, call.reshape(y, [batch, call.size, ...out.slice(1)]))];
  };

/** The first two axes exchanged. */
function swapped(call: BatchCall, x: Tensor): Tensor {
  const axes = [1, 0, ...x.shape.slice(2).map((_, axis) => axis + 2)];
  return call.device.apply(permute, [x], { axes });
}

type ClassLoss = { readonly reduction?: "none" | "mean" | "sum"; readonly ignoreIndex?: number };

/** Losses of class labels: one loss for each row, which each member then reduces. */
export const classLoss: BatchingRule = (call) => {
  const { device, op, operands, size } = call;
  const [, labels, weights] = operands;
  if (call.isBatched(2) || typeof labels !== "object") return undefined;
  const { reduction = "mean", ignoreIndex } = call.attributes as ClassLoss;
  const kept = labels.shape;
  const rows = (x: Tensor): Tensor => {
    const [, first = 1, ...rest] = x.shape;
    return call.rankOf(0) === 1 ? x : call.reshape(x, [size * first, ...rest]);
  };
  const ofRows = (op_: typeof op, logits: Tensor, attributes: ClassLoss): Tensor => {
    const flat = [rows(logits), rows(call.whole(1)), ...(weights === undefined ? [] : [weights])];
    return call.reshape(device.apply(op_, flat, attributes), [size, ...kept]);
  };
  const axes = kept.map((_, axis) => axis + 1);
  const total = (x: Tensor): Tensor => device.apply(sum, [x], { axes });
  const losses = ofRows(op, call.whole(0), { ...call.attributes, reduction: "none" });
  if (reduction === "none") return [losses];
  if (reduction === "sum") return [total(losses)];
  // The loss of log probabilities of -1 is each row's weight.
  const minusOne = device.apply(functions.fill, [call.whole(0).detach()], { value: -1 });
  const options = { reduction: "none", ...(ignoreIndex !== undefined && { ignoreIndex }) } as const;
  const divisor = total(ofRows(nllLoss as typeof op, minusOne, options));
  return [total(losses).div(divisor)];
};
