/** einsum: sums of products over labelled axes, and tensordot, its form for two tensors. */

import { HoldfastError } from "../../errors/index.js";
import { axisOf, formatShape } from "../../ops/index.js";
import type { Tensor } from "../tensor.js";
import { arrange, contract, type Labelled, labelTensor, sumOut } from "./contraction.js";
import { contractionOrder, replacePair } from "./contraction-order.js";
import { type Label, parseEquation } from "./equation.js";

/**
 * Sums products of elements over labelled axes, as in PyTorch: "ij,jk->ik" is a matrix product. A letter that is missing after the arrow is
 * summed; a letter that is repeated in one term takes a diagonal; `...` stands for axes that broadcast. Without an arrow, the result
 * has the letters that occur once, in alphabetic order. Several operands are contracted in the order with the fewest
 * multiplications, each pair by one batched matrix product.
 *
 * @example
 * ```ts
 * import { device, einsum, ones, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const x = tensor([[1, 2], [3, 4]]);
 * console.log(einsum("ij,kj->ik", x, x).tolist(), einsum("ii", x).item()); // → [ [ 5, 11 ], [ 11, 25 ] ] 5
 * console.log(einsum("b...q,b...k->bqk", ones([2, 3, 4]), ones([2, 3, 5])).shape); // → [ 2, 4, 5 ]
 * cpu.close();
 * ```
 */
export function einsum(equation: string, ...operands: readonly Tensor[]): Tensor {
  const shapes = operands.map(({ shape }) => shape);
  const { operands: terms, output, sizes } = parseEquation(equation, shapes);
  const live = operands.map((operand, index) => labelTensor(operand, terms[index] ?? [], sizes));
  const order = contractionOrder(
    live.map(({ labels }) => labels),
    output,
    sizes,
  );
  for (const pair of order) {
    const [left, right] = [live[pair[0]], live[pair[1]]];
    if (!left || !right) continue;
    const others = live.filter((_, index) => !pair.includes(index));
    replacePair(live, pair, contract(left, right, new Set<Label>([...output, ...others.flatMap(labelsOf)])));
  }
  const [last] = live;
  if (!last) throw new HoldfastError("BAD_ARGUMENT", "einsum takes one operand or more, but got none.");
  const result = sumOut(last, new Set(output));
  return arrange(
    result,
    output.filter((label) => result.labels.includes(label)),
  ).reshape(output.map((label) => sizes.get(label) ?? 1));
}

function labelsOf({ labels }: Labelled): readonly Label[] {
  return labels;
}

/**
 * Sums products over pairs of axes: a number of axes, the last of `a` with the first of `b`, or a list of axes for each. Default: 2.
 *
 * @example
 * ```ts
 * import { device, ones, tensordot } from "holdfast";
 * const cpu = await device("cpu");
 * const y = tensordot(ones([3, 4, 5]), ones([4, 3, 2]), [[1, 0], [0, 1]]);
 * console.log(y.shape, y.amax().item()); // → [ 5, 2 ] 12
 * cpu.close();
 * ```
 */
export function tensordot(
  a: Tensor,
  b: Tensor,
  axes: number | readonly [readonly number[], readonly number[]] = 2,
): Tensor {
  const [ofA, ofB] =
    typeof axes === "number"
      ? [countUp(a.ndim - axes, axes), countUp(0, axes)]
      : [
          axes[0].map((axis) => axisOf("tensordot", axis, a.ndim)),
          axes[1].map((axis) => axisOf("tensordot", axis, b.ndim)),
        ];
  const fits =
    ofA.length === ofB.length &&
    ofA.every((axis, index) => axis >= 0 && a.shape[axis] === b.shape[ofB[index] ?? -1]);
  if (!fits) {
    throw new HoldfastError(
      "BAD_SHAPE",
      `tensordot: axes ${formatShape(ofA)} of ${formatShape(a.shape)} and ${formatShape(ofB)} of ${formatShape(b.shape)} differ in ` +
        "number or size. Pass as many axes of each, with equal sizes.",
      { numbers: { op: "tensordot" } },
    );
  }
  const left: Labelled = { tensor: a, labels: a.shape.map((_, axis) => axis) };
  const right: Labelled = {
    tensor: b,
    labels: b.shape.map((_, axis) => ofA[ofB.indexOf(axis)] ?? a.ndim + axis),
  };
  const kept = [...left.labels, ...right.labels].filter((label) => !ofA.includes(Number(label)));
  return arrange(contract(left, right, new Set(kept)), kept);
}

function countUp(from: number, count: number): number[] {
  return Array.from({ length: count }, (_, index) => from + index);
}
