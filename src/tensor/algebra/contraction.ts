/** Contracts tensors with labelled axes: a pair becomes one batched matrix product, or an elementwise one if no axis is summed. */

import { isFloat } from "../../ops/index.js";
import type { Tensor } from "../tensor.js";
import { diagonalView } from "./diagonal-view.js";
import type { Label } from "./equation.js";

export interface Labelled {
  readonly tensor: Tensor;
  /** Of each axis; all different. */
  readonly labels: readonly Label[];
}

/** Takes diagonals of repeated labels, and drops axes of size 1 that broadcast to a larger size. */
export function labelTensor(
  tensor: Tensor,
  labels: readonly Label[],
  sizes: ReadonlyMap<Label, number>,
): Labelled {
  let [view, left] = [tensor, [...labels]];
  for (const label of new Set(labels)) {
    for (let first = left.indexOf(label); first !== left.lastIndexOf(label); first = left.indexOf(label)) {
      const last = left.lastIndexOf(label);
      // A diagonal of sizes 1 and n is the row, as with other operands.
      if (view.shape[first] === view.shape[last]) {
        view = diagonalView(view, first, last);
        left = [...left.filter((_, axis) => axis !== first && axis !== last), label];
        continue;
      }
      const single = view.shape[first] === 1 ? first : last;
      view = view.squeeze(single);
      left = left.toSpliced(single, 1);
    }
  }
  const isBroadcast = left.map((label, axis) => view.shape[axis] === 1 && sizes.get(label) !== 1);
  return {
    tensor: view.reshape(view.shape.filter((_, axis) => !isBroadcast[axis])),
    labels: left.filter((_, axis) => !isBroadcast[axis]),
  };
}

/** Sums over the labels that are not kept. */
export function sumOut({ tensor, labels }: Labelled, kept: ReadonlySet<Label>): Labelled {
  const axes = labels.flatMap((label, axis) => (kept.has(label) ? [] : [axis]));
  if (axes.length === 0) return { tensor, labels };
  return { tensor: tensor.sum(axes), labels: labels.filter((label) => kept.has(label)) };
}

/** The product of two tensors, summed over all labels that are not kept. */
export function contract(a: Labelled, b: Labelled, kept: ReadonlySet<Label>): Labelled {
  const left = sumOut(a, new Set([...kept, ...b.labels]));
  const right = sumOut(b, new Set([...kept, ...a.labels]));
  const shared = left.labels.filter((label) => right.labels.includes(label));
  const batch = shared.filter((label) => kept.has(label));
  const summed = shared.filter((label) => !kept.has(label));
  const rows = left.labels.filter((label) => !shared.includes(label));
  const columns = right.labels.filter((label) => !shared.includes(label));
  const isMatrixProduct = summed.length > 0 && rows.length + columns.length > 0;
  if (!isMatrixProduct || !isFloat(left.tensor.dtype) || !isFloat(right.tensor.dtype)) {
    const order = [...batch, ...rows, ...columns, ...summed];
    const tensor = spread(left, order).mul(spread(right, order));
    return sumOut({ tensor, labels: order }, kept);
  }
  const sizeOf = ({ tensor, labels }: Labelled, label: Label): number => tensor.size(labels.indexOf(label));
  const count = (side: Labelled, labels: readonly Label[]): number =>
    labels.reduce<number>((product, label) => product * sizeOf(side, label), 1);
  const batches = count(left, batch);
  const depth = count(left, summed);
  const rowMatrix = arrange(left, [...batch, ...rows, ...summed]).reshape([
    batches,
    count(left, rows),
    depth,
  ]);
  const columnMatrix = arrange(right, [...batch, ...summed, ...columns]).reshape([
    batches,
    depth,
    count(right, columns),
  ]);
  const product =
    batch.length === 0
      ? rowMatrix.select(0, 0).matmul(columnMatrix.select(0, 0))
      : rowMatrix.matmul(columnMatrix);
  return {
    tensor: product.reshape([
      ...[...batch, ...rows].map((label) => sizeOf(left, label)),
      ...columns.map((label) => sizeOf(right, label)),
    ]),
    labels: [...batch, ...rows, ...columns],
  };
}

/** The axes in the order of these labels, which are all of its own. */
export function arrange({ tensor, labels }: Labelled, order: readonly Label[]): Tensor {
  return tensor.permute(order.map((label) => labels.indexOf(label)));
}

/** The axes in the order of these labels, with an axis of size 1 for each label that it lacks. */
function spread(side: Labelled, order: readonly Label[]): Tensor {
  const own = order.filter((label) => side.labels.includes(label));
  const arranged = arrange(side, own);
  return arranged.reshape(
    order.map((label) => (own.includes(label) ? arranged.size(own.indexOf(label)) : 1)),
  );
}
