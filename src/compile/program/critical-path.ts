/** The critical path of a program: the longest chain of dependent calls. Every call counts as one. */

import type { Node, Program } from "./program.js";

type NeighboursOf = (node: Node) => ReadonlySet<Node>;

export class CriticalPath {
  readonly #producersOf: NeighboursOf;
  readonly #consumersOf: NeighboursOf;
  /** The lengths of the longest chains that end and that start with a node, the node included. */
  readonly #ending: Map<Node, number>;
  readonly #starting: Map<Node, number>;
  readonly #longest: number;

  constructor(program: Program) {
    this.#producersOf = (node) => program.producersOf(node);
    this.#consumersOf = (node) => program.consumersOf(node);
    const { nodes } = program;
    this.#ending = lengthsOf(nodes, this.#producersOf);
    this.#starting = lengthsOf(nodes.toReversed(), this.#consumersOf);
    this.#longest = [...this.#ending.values()].reduce((max, length) => Math.max(max, length), 0);
  }

  /** True if fusing two nodes would make a chain longer than the critical path. */
  wouldExtend(a: Node, b: Node): boolean {
    const longer = (lengths: ReadonlyMap<Node, number>): number =>
      Math.max(lengths.get(a) ?? 1, lengths.get(b) ?? 1);
    return longer(this.#ending) + longer(this.#starting) - 1 > this.#longest;
  }

  /** Follows `program.fuse(a, b)`. The two must have been independent. Only nodes whose chains grow are visited. */
  fuse(a: Node, b: Node): void {
    raise(this.#ending, a, this.#ending.get(b) ?? 1, this.#consumersOf);
    raise(this.#starting, a, this.#starting.get(b) ?? 1, this.#producersOf);
  }
}

/** Raises the length of a node to at least `length`, and then that of neighbours that became too short. */
function raise(lengths: Map<Node, number>, start: Node, length: number, neighboursOf: NeighboursOf): void {
  const raised = Math.max(length, lengths.get(start) ?? 1);
  lengths.set(start, raised);
  const open: { readonly node: Node; readonly length: number }[] = [{ node: start, length: raised }];
  for (let next = open.pop(); next; next = open.pop()) {
    for (const node of neighboursOf(next.node)) {
      if ((lengths.get(node) ?? 1) > next.length) continue;
      lengths.set(node, next.length + 1);
      open.push({ node, length: next.length + 1 });
    }
  }
}

/** The length of each node is one more than the maximum of its neighbours, which come before it in `nodes`. */
function lengthsOf(nodes: readonly Node[], neighboursOf: NeighboursOf): Map<Node, number> {
  const lengths = new Map<Node, number>();
  for (const node of nodes) {
    let longest = 0;
    for (const neighbour of neighboursOf(node)) longest = Math.max(longest, lengths.get(neighbour) ?? 0);
    lengths.set(node, longest + 1);
  }
  return lengths;
}
