/** The recorded ops that a backward pass goes through: all, or those on a path to the values whose gradients are requested. */

import type { Edge, Leaf, Node, Slot } from "./node.js";
import type { Value } from "./value.js";

export interface Paths {
  /** Latest first. */
  readonly nodes: readonly Node[];
  /** True if a gradient is needed there. */
  has(edge: Edge): boolean;
  /** True if the gradient of a node's operands is needed. */
  leadOn(node: Node): boolean;
}

/** What receives a gradient in a backward pass: an output of a recorded op, of which most have one, or a leaf. */
export type Key = Node | Slot | Leaf;

export function keyOf({ source, leaf }: Pick<Value, "source" | "leaf">): Key | undefined {
  return source ? source.node.outputKey(source.output) : leaf;
}

/** Of an operand. */
export function keyOfEdge(edge: NonNullable<Edge>): Key {
  return "leaf" in edge ? edge.leaf : edge.source.node.outputKey(edge.source.output);
}

/** `targets`: default: all leaves. */
export function findPaths(roots: readonly Value[], targets: { has(key: Key): boolean } | undefined): Paths {
  const reached = new Set<Node>(roots.flatMap(({ source }) => source?.node ?? []));
  for (const node of reached) {
    for (const edge of node.edges) if (edge && "source" in edge) reached.add(edge.source.node);
  }
  const nodes = [...reached].sort((a, b) => b.id - a.id);
  if (!targets) return { nodes, has: (edge) => edge !== undefined, leadOn: () => true };
  const leading = new Set<Node>();
  const has = (edge: Edge): boolean => {
    if (!edge) return false;
    return targets.has(keyOfEdge(edge)) || ("source" in edge && leading.has(edge.source.node));
  };
  const isTarget = (node: Node): boolean => targets.has(node) || node.slots.some((slot) => targets.has(slot));
  // Operands are recorded before their op.
  for (const node of nodes.toReversed()) if (node.edges.some(has)) leading.add(node);
  return {
    nodes: nodes.filter((node) => isTarget(node) || leading.has(node)),
    has,
    leadOn: (node) => leading.has(node),
  };
}
