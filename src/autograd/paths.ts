/** The recorded ops that a backward pass goes through: all, or those on a path to the values whose gradients are requested. */

import type { Edge, Leaf, Node } from "./node.js";
import type { Value } from "./value.js";

export interface Paths {
  /** Latest first. */
  readonly nodes: readonly Node[];
  /** True if a gradient is needed there. */
  has(edge: Edge): boolean;
  /** True if the gradient of a node's operands is needed. */
  leadOn(node: Node): boolean;
}

/** What identifies a value in a backward pass: the op that computed it, or the leaf. */
export function keyOf({ source, leaf }: Pick<Value, "source" | "leaf">): Node | Leaf | undefined {
  return source?.node ?? leaf;
}

/** `targets`: default: all leaves. */
export function findPaths(
  roots: readonly Value[],
  targets: { has(key: Node | Leaf): boolean } | undefined,
): Paths {
  const reached = new Set<Node>(roots.flatMap(({ source }) => source?.node ?? []));
  for (const node of reached) {
    for (const edge of node.edges) if (edge && "source" in edge) reached.add(edge.source.node);
  }
  const nodes = [...reached].sort((a, b) => b.id - a.id);
  if (!targets) return { nodes, has: (edge) => edge !== undefined, leadOn: () => true };
  const leading = new Set<Node>();
  const has = (edge: Edge): boolean => {
    if (!edge) return false;
    if ("leaf" in edge) return targets.has(edge.leaf);
    const { node } = edge.source;
    return targets.has(node) || leading.has(node);
  };
  // Operands are recorded before their op.
  for (const node of nodes.toReversed()) if (node.edges.some(has)) leading.add(node);
  return {
    nodes: nodes.filter((node) => targets.has(node) || leading.has(node)),
    has,
    leadOn: (node) => leading.has(node),
  };
}
