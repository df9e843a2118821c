/** How long the chains of calls are that wait for each other. Calls of any cost count alike. */

import { type Node, rootOf } from "./order.js";

export class Chains {
  /** Of the longest chain that ends with a node, and of the longest that begins with it: the node is one of both. */
  readonly #ending: ReadonlyMap<Node, number>;
  readonly #beginning: ReadonlyMap<Node, number>;
  readonly #longest: number;

  /** Of all nodes that are no part of another, in order. */
  constructor(nodes: readonly Node[]) {
    this.#ending = lengthsOf(nodes, ({ before }) => before);
    this.#beginning = lengthsOf(nodes.toReversed(), ({ behind }) => behind);
    this.#longest = [...this.#ending.values()].reduce((most, length) => Math.max(most, length), 0);
  }

  /** Would a chain be longer than the longest of all, with two nodes as one? */
  wouldGrow(a: Node, b: Node): boolean {
    const most = (lengths: ReadonlyMap<Node, number>): number =>
      Math.max(lengths.get(a) ?? 1, lengths.get(b) ?? 1);
    return most(this.#ending) + most(this.#beginning) - 1 > this.#longest;
  }
}

/** Each node's chain is one longer than those of its neighbours, which stand before it here. */
function lengthsOf(
  nodes: readonly Node[],
  neighboursOf: (node: Node) => ReadonlySet<Node>,
): ReadonlyMap<Node, number> {
  const lengths = new Map<Node, number>();
  for (const node of nodes) {
    let longest = 0;
    for (const one of neighboursOf(node)) longest = Math.max(longest, lengths.get(rootOf(one)) ?? 0);
    lengths.set(node, longest + 1);
  }
  return lengths;
}
