/** Where leaves are used: a leaf's gradient is complete after the backward pass has left all of the ops that use it. */

import type { Leaf, Node } from "./node.js";

export class LeafUses {
  readonly #ending = new Map<Node, Leaf[]>();

  /** `nodes`: in the order of the pass. */
  constructor(nodes: readonly Node[]) {
    const last = new Map<Leaf, Node>();
    for (const node of nodes)
      for (const edge of node.edges) if (edge && "leaf" in edge) last.set(edge.leaf, node);
    for (const [leaf, node] of last) {
      const leaves = this.#ending.get(node);
      if (leaves) leaves.push(leaf);
      else this.#ending.set(node, [leaf]);
    }
  }

  /** The leaves whose gradients are complete after the pass has left an op. */
  endOf(node: Node): readonly Leaf[] {
    return this.#ending.get(node) ?? [];
  }

  /** All leaves. */
  get leaves(): readonly Leaf[] {
    return [...this.#ending.values()].flat();
  }
}
