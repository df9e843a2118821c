/** How long the chains of calls are that wait for each other. Calls of any cost count alike. */

import { type Node, rootOf } from "./dependency-graph.js";

export class CriticalPath {
  /** Of the longest chain that ends with a node, and of the longest that begins with it: the node is one of both. */
  readonly #ending: Map<Node, number>;
  readonly #beginning: Map<Node, number>;
  readonly #longest: number;

  /** Of all nodes that are no part of another, in order. */
  constructor(nodes: readonly Node[]) {
    this.#ending = lengthsOf(nodes, ({ predecessors: before }) => before);
    this.#beginning = lengthsOf(nodes.toReversed(), ({ successors: behind }) => behind);
    this.#longest = [...this.#ending.values()].reduce((most, length) => Math.max(most, length), 0);
  }

  /** Would a chain be longer than the longest of all, with two nodes as one? */
  wouldExtend(a: Node, b: Node): boolean {
    const most = (lengths: ReadonlyMap<Node, number>): number =>
      Math.max(lengths.get(a) ?? 1, lengths.get(b) ?? 1);
    return most(this.#ending) + most(this.#beginning) - 1 > this.#longest;
  }

  /**
   * Notes that `b` has become a part of `a`; neither waited for the other, and no chain is longer than the longest. Only what
   * follows on them is looked at.
   */
  fuse(a: Node, b: Node): void {
    raise(this.#ending, a, this.#ending.get(b) ?? 1, ({ successors: behind }) => behind);
    raise(this.#beginning, a, this.#beginning.get(b) ?? 1, ({ predecessors: before }) => before);
  }
}

/** Makes chains through a node at least so long, and with it those through its neighbours that are too short by that. */
function raise(
  lengths: Map<Node, number>,
  start: Node,
  length: number,
  neighboursOf: (node: Node) => ReadonlySet<Node>,
): void {
  const own = Math.max(length, lengths.get(start) ?? 1);
  lengths.set(start, own);
  const open: { readonly node: Node; readonly length: number }[] = [{ node: start, length: own }];
  for (let next = open.pop(); next; next = open.pop()) {
    for (const one of neighboursOf(next.node)) {
      const node = rootOf(one);
      if ((lengths.get(node) ?? 1) > next.length) continue;
      lengths.set(node, next.length + 1);
      open.push({ node, length: next.length + 1 });
    }
  }
}

/** Each node's chain is one longer than those of its neighbours, which stand before it here. */
function lengthsOf(
  nodes: readonly Node[],
  neighboursOf: (node: Node) => ReadonlySet<Node>,
): Map<Node, number> {
  const lengths = new Map<Node, number>();
  for (const node of nodes) {
    let longest = 0;
    for (const one of neighboursOf(node)) longest = Math.max(longest, lengths.get(rootOf(one)) ?? 0);
    lengths.set(node, longest + 1);
  }
  return lengths;
}
