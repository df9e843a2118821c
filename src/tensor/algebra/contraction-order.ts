/** The order in which the operands of an `einsum` are contracted: the one with the fewest multiplications. */

import type { Label } from "./equation.js";

/** Indices of the list, which loses two operands and gets their contraction as its last. */
export type Pair = readonly [number, number];

interface Contraction {
  readonly labels: ReadonlySet<Label>;
  readonly cost: number;
  readonly pairs: readonly (readonly [number, number])[];
}

/** Beyond this number of operands, subsets are too many, and the cheapest pair is contracted first. */
const maxExhaustive = 8;

export function contractionOrder(
  operands: readonly (readonly Label[])[],
  output: readonly Label[],
  sizes: ReadonlyMap<Label, number>,
): readonly Pair[] {
  if (operands.length < 2) return [];
  return operands.length <= maxExhaustive
    ? bestOrder(operands, output, sizes)
    : greedyOrder(operands, output, sizes);
}

/** Dynamic programming over the subsets of the operands, as bit sets. */
function bestOrder(
  operands: readonly (readonly Label[])[],
  output: readonly Label[],
  sizes: ReadonlyMap<Label, number>,
): readonly Pair[] {
  const all = (1 << operands.length) - 1;
  const best = new Map<number, Contraction>();
  for (const [index, labels] of operands.entries())
    best.set(1 << index, { labels: new Set(labels), cost: 0, pairs: [] });
  for (let subset = 1; subset <= all; subset++) {
    if (best.has(subset)) continue;
    const outside = new Set([
      ...output,
      ...operands.flatMap((labels, at) => (subset & (1 << at) ? [] : labels)),
    ]);
    for (let left = (subset - 1) & subset; left > subset - left; left = (left - 1) & subset) {
      const [a, b] = [best.get(left), best.get(subset - left)];
      if (!a || !b) continue;
      const union = new Set([...a.labels, ...b.labels]);
      const cost = a.cost + b.cost + volume(union, sizes);
      if (cost >= (best.get(subset)?.cost ?? Number.POSITIVE_INFINITY)) continue;
      const labels = new Set([...union].filter((label) => outside.has(label)));
      best.set(subset, { labels, cost, pairs: [...a.pairs, ...b.pairs, [left, subset - left]] });
    }
  }
  const live = operands.map((_, index) => 1 << index);
  return (best.get(all)?.pairs ?? []).map(([left, right]) => {
    const pair: Pair = [live.indexOf(left), live.indexOf(right)];
    replacePair(live, pair, left | right);
    return pair;
  });
}

function greedyOrder(
  operands: readonly (readonly Label[])[],
  output: readonly Label[],
  sizes: ReadonlyMap<Label, number>,
): readonly Pair[] {
  const live = operands.map((labels): ReadonlySet<Label> => new Set(labels));
  const pairs: Pair[] = [];
  while (live.length > 1) {
    let best: { pair: Pair; cost: number; labels: ReadonlySet<Label> } | undefined;
    for (const [right, b] of live.entries()) {
      for (const [left, a] of live.slice(0, right).entries()) {
        const union = new Set([...a, ...b]);
        const cost = volume(union, sizes);
        if (best && cost >= best.cost) continue;
        const outside = new Set(
          live.flatMap((labels, at) => (at === left || at === right ? [] : [...labels])),
        );
        const labels = new Set([...union].filter((label) => outside.has(label) || output.includes(label)));
        best = { pair: [left, right], cost, labels };
      }
    }
    if (!best) break;
    pairs.push(best.pair);
    replacePair(live, best.pair, best.labels);
  }
  return pairs;
}

/** Removes two elements and appends the one that replaces them. */
export function replacePair<T>(list: T[], [left, right]: Pair, replacement: T): void {
  const rest = list.filter((_, index) => index !== left && index !== right);
  list.splice(0, list.length, ...rest, replacement);
}

function volume(labels: ReadonlySet<Label>, sizes: ReadonlyMap<Label, number>): number {
  let product = 1;
  for (const label of labels) product *= sizes.get(label) ?? 1;
  return product;
}
