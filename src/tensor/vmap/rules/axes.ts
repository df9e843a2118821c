/** Batching rules of ops whose attributes name axes: the axes shift by one. */

import type { Range } from "../../../ops/index.js";
import { type BatchCall, type BatchingRule, shifted } from "../batch-call.js";

type Axes = { readonly axes?: number | readonly number[] };

/** Elementwise ops, and others whose leading axes broadcast. */
export const broadcasts: BatchingRule = (call) => {
  const rank = Math.max(...call.operands.map((_, index) => call.rankOf(index)));
  return call.run(call.operands.map((_, index) => call.aligned(index, rank)));
};

/** Projections [batch…, rows, 3, heads, width], and a mask that broadcasts to [batch…, heads, rows, columns]. */
export const packedAttentionRule: BatchingRule = (call) => {
  const rank = call.rankOf(0);
  const masks = call.operands.slice(1).map((_, index) => call.aligned(index + 1, rank - 1));
  return call.run([call.whole(0), ...masks]);
};

/** Ops that leave all leading axes alone. */
export const keepsLeadingAxes: BatchingRule = (call) => call.run(call.wholes());

/** Reductions: without axes, all axes of a member. */
export const overAxes: BatchingRule = (call) => {
  const rank = call.rankOf(0);
  const { axes = Array.from({ length: rank }, (_, axis) => axis) } = call.attributes as Axes;
  const list = typeof axes === "number" ? [axes] : axes;
  return call.run([call.whole(0)], { ...call.attributes, axes: list.map((axis) => shifted(axis, rank)) });
};

/** Ops along one axis; operands that are the same for all members are expanded. */
export const alongAxis: BatchingRule = (call) => {
  const { axis } = call.attributes as { readonly axis: number };
  if (call.rankOf(0) === 0) return undefined;
  return call.run(call.wholes(), { ...call.attributes, axis: shifted(axis, call.rankOf(0)) });
};

/** argmax and argmin: without an axis, over all elements of a member. */
export const argExtreme: BatchingRule = (call) => {
  const { axis } = call.attributes as { readonly axis?: number };
  if (axis !== undefined) return alongAxis(call);
  const flat = call.reshape(call.whole(0), [call.size, call.shapeOf(0).reduce((a, b) => a * b, 1)]);
  const [result] = call.run([flat], { axis: 1 });
  return result && [toMembers(call, result)];
};

export const permuteRule: BatchingRule = (call) => {
  const { axes } = call.attributes as { readonly axes: readonly number[] };
  const rank = call.rankOf(0);
  return call.run([call.whole(0)], { axes: [0, ...axes.map((axis) => shifted(axis, rank))] });
};

/** reshape and expand. */
export const toShape: BatchingRule = (call) => {
  const shape = call.types[0]?.shape ?? [];
  return call.run([call.aligned(0, shape.length)], { shape: [call.size, ...shape] });
};

export const reshapeRule: BatchingRule = (call) => [toMembers(call, call.whole(0))];

export const sliceRule: BatchingRule = (call) => {
  const { ranges } = call.attributes as { readonly ranges: readonly Range[] };
  return call.run([call.whole(0)], { ranges: [null, ...ranges] });
};

export const diagonalRule: BatchingRule = (call) => {
  const { axis1, axis2, ...rest } = call.attributes as { readonly axis1: number; readonly axis2: number };
  const rank = call.rankOf(0);
  return call.run([call.whole(0)], { ...rest, axis1: shifted(axis1, rank), axis2: shifted(axis2, rank) });
};

/** fold adds windows to an array of a shape. */
export const foldRule: BatchingRule = (call) => {
  const { shape } = call.attributes as { readonly shape: readonly number[] };
  return call.run([call.whole(0)], { ...call.attributes, shape: [call.size, ...shape] });
};

function toMembers(call: BatchCall, x: ReturnType<BatchCall["whole"]>) {
  return call.reshape(x, [call.size, ...(call.types[0]?.shape ?? [])]);
}
