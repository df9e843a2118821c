/** The backward pass: from one value back to the leaves, each recorded op once, in reverse order of recording. */

import { HoldfastError } from "../errors/index.js";
import type { DeviceArray, GradientRule, ValueType } from "../ops/index.js";
import type { Runtime } from "../runtime/index.js";
import { GradientSums } from "./gradient-sums.js";
import { LeafDelivery } from "./leaf-delivery.js";
import { Node } from "./node.js";
import { TemporaryGradients } from "./temporary-gradients.js";
import type { Value } from "./value.js";
import { ViewRegions } from "./view-regions.js";

export interface BackwardOptions {
  /** Keep the saved tensors, for another pass through the same graph. */
  readonly retainGraph?: boolean;
  /** Called for every array that a gradient rule creates. */
  readonly onResult?: (op: string, array: DeviceArray) => void;
}

export function runBackward(
  runtime: Runtime,
  root: Value,
  seed: DeviceArray,
  { retainGraph = false, onResult = () => undefined }: BackwardOptions = {},
): void {
  root.leaf?.accumulate(seed);
  if (!root.source) return;
  const nodes = listReachable(root.source.node);
  // Checked before any gradient is delivered: an error halfway would leave only some of the gradients.
  for (const node of nodes) node.requireStep();
  const regions = new ViewRegions(root.source.node, nodes);
  const temporaries = new TemporaryGradients(runtime, onResult);
  const sums = new GradientSums(runtime, temporaries, regions);
  const leaves = new LeafDelivery(runtime, temporaries, regions);
  try {
    arrive(root.source.node, seed);
    for (const node of nodes) {
      const upstream = sums.take(node);
      const isPart = regions.of(node) !== undefined;
      if (!upstream && !isPart) continue;
      // The gradients of a part went on when they arrived, except those of a chain of views that ended at it.
      if (upstream && isPart) arrive(node, upstream);
      else if (upstream) deliverGradients(node, upstream);
      if (!retainGraph) node.release();
      if (upstream) temporaries.release(upstream);
      leaves.releaseCopied();
      temporaries.sweep();
    }
  } finally {
    leaves.finish();
  }

  function deliverGradients(node: Node, upstream: DeviceArray): void {
    const gradients = computeGradients(temporaries, node, upstream);
    for (const [index, edge] of node.edges.entries()) {
      const gradient = gradients[index];
      if (!edge || !gradient) continue;
      if ("leaf" in edge) leaves.deliver(edge.leaf, gradient);
      else arrive(edge.source.node, gradient);
    }
  }

  function arrive(node: Node, gradient: DeviceArray): void {
    const region = regions.of(node);
    if (!region) sums.add(node, gradient);
    else if (region.target instanceof Node) sums.addPart(region.target, gradient, region);
    else leaves.deliverPart(region.target, gradient, region);
  }
}

const numberType: ValueType = { shape: [], dtype: "f32" };

function computeGradients(
  temporaries: TemporaryGradients,
  node: Node,
  upstream: DeviceArray,
): readonly (DeviceArray | undefined)[] {
  const { op, attributes, operandTypes, outputTypes, needs } = node;
  const rule: GradientRule<DeviceArray, typeof attributes> = {
    apply: temporaries.apply,
    applyAll: temporaries.applyAll,
    attributes,
    upstream,
    operand: (index) => node.operand(index),
    output: (index) => node.output(index),
    operandCount: needs.length,
    typeOf: (index) => operandTypes[index] ?? numberType,
    outputTypes,
    needs: (index) => needs[index] ?? false,
    valueType: (value) => value,
  };
  if (op.gradient) return op.gradient(rule);
  throw new HoldfastError("NO_GRADIENT", `${op.name} has no gradient.`, { numbers: { op: op.name } });
}

/** All ops between a node and the leaves, latest first. */
function listReachable(root: Node): readonly Node[] {
  const reached = new Set<Node>([root]);
  for (const node of reached) {
    for (const edge of node.edges) if (edge && "source" in edge) reached.add(edge.source.node);
  }
  return [...reached].sort((a, b) => b.id - a.id);
}
