/** The gradients of attention made of entries that have gradients too. They compute the probabilities again, in memory. */

import { expand, sum } from "../broadcast.js";
import { add, mul, sub } from "../elementwise/arithmetic.js";
import { matmul } from "../matmul/matmul.js";
import { permute, reshape } from "../movement/reshape.js";
import { softmax } from "../normalisation/softmax.js";
import type { GradientRule } from "../op.js";
import { causalMask } from "./causal-mask.js";

interface Attributes {
  readonly isCausal?: boolean;
  readonly scale?: number;
}

/** With rows first, [batch…, rows, heads, width]. Heads of keys and values may be fewer than those of queries. */
interface Operands<V> {
  readonly query: V | number;
  readonly key: V | number;
  readonly value: V | number;
  readonly mask: V | number | undefined;
}

/** The gradients of query, key, value and mask, with the broadcast batch. `drop`: the dropout of the probabilities, if there is one. */
export function recordedAttentionGradient<V>(
  { apply, upstream, valueType }: Pick<GradientRule<V, unknown>, "apply" | "upstream" | "valueType">,
  operands: Operands<V>,
  { isCausal = false, scale }: Attributes,
  drop: (value: V) => V = (value) => value,
): readonly V[] {
  const swap = (value: V | number, a: number, b: number): V => {
    const axes = typeof value === "number" ? [] : [...valueType(value).shape.keys()];
    const { length } = axes;
    return apply(permute, [value], { axes: axes.with(a, length + b).with(b, length + a) });
  };
  const query = swap(operands.query, -3, -2); // [batch…, heads, rows, width]
  const heads = valueType(query).shape.at(-3) ?? 1;
  const key = shareHeads(swap(operands.key, -3, -2));
  const value = shareHeads(swap(operands.value, -3, -2));
  const gradient = swap(upstream, -3, -2); // [batch…, heads, rows, valueWidth]
  const factor = scale ?? 1 / Math.sqrt(valueType(query).shape.at(-1) ?? 1);
  let scores = apply(mul, [apply(matmul, [query, swap(key, -2, -1)]), factor]);
  if (isCausal) {
    const { shape, dtype } = valueType(scores);
    const [rows = 1, columns = 1] = shape.slice(-2);
    scores = apply(add, [scores, apply(causalMask, [], { rows, columns, dtype })]);
  }
  if (operands.mask !== undefined) scores = apply(add, [scores, operands.mask]);
  const probabilities = apply(softmax, [scores], { axis: -1 });
  const probabilityGradient = drop(apply(matmul, [gradient, swap(value, -2, -1)]));
  const rowSum = apply(sum, [apply(mul, [probabilityGradient, probabilities])], {
    axes: -1,
    keepsAxes: true,
  });
  const scoreGradient = apply(mul, [probabilities, apply(sub, [probabilityGradient, rowSum])]);
  const scaled = apply(mul, [scoreGradient, factor]);
  return [
    swap(apply(matmul, [scaled, key]), -3, -2),
    swap(sumHeads(apply(matmul, [swap(scaled, -2, -1), query]), operands.key), -3, -2),
    swap(sumHeads(apply(matmul, [swap(drop(probabilities), -2, -1), gradient]), operands.value), -3, -2),
    scoreGradient,
  ];

  /** Each head of keys as often as heads of the queries share it; heads that broadcast stay. */
  function shareHeads(grouped: V): V {
    const { shape } = valueType(grouped);
    const [groups = 1] = shape.slice(-3);
    if (groups === heads || groups === 1 || heads === 1) return grouped;
    const apart = apply(reshape, [grouped], { shape: shape.toSpliced(-2, 0, 1) });
    const wide = apply(expand, [apart], { shape: shape.toSpliced(-2, 0, heads / groups) });
    return apply(reshape, [wide], { shape: shape.with(-3, heads) });
  }

  /** The gradient of an operand's heads: the sum over the heads of queries that share each. */
  function sumHeads(shared: V, operand: V | number): V {
    const groups = (typeof operand === "number" ? undefined : valueType(operand).shape.at(-2)) ?? 1;
    const { shape } = valueType(shared);
    if (groups === shape.at(-3) || groups === 1) return shared;
    const apart = apply(reshape, [shared], { shape: shape.toSpliced(-3, 1, groups, heads / groups) });
    return apply(sum, [apart], { axes: -3 });
  }
}
