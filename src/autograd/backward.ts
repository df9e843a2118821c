/** The backward pass: from one value back to the leaves, each recorded op once, in the reverse order of recording. */

import { HoldfastError } from "../errors/index.js";
import { capabilitiesOf } from "../kernels/index.js";
import {
  type ArrayCopy,
  add,
  copyArrays,
  type DeviceArray,
  type GradientRule,
  runInto,
  type ValueType,
} from "../ops/index.js";
import type { Runtime } from "../runtime/index.js";
import type { Node } from "./node.js";
import { TemporaryGradients } from "./temporary-gradients.js";
import type { Leaf, Value } from "./value.js";

export interface BackwardOptions {
  /** Keep what was saved, for another pass through the same graph. */
  readonly retainGraph?: boolean;
  /** Hears of every array that a gradient rule makes. */
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
  const nodes = reachedFrom(root.source.node);
  // Before anything is delivered: half a pass would leave half of the gradients.
  for (const node of nodes) node.requireStep();
  const lent = new TemporaryGradients(runtime, onResult);
  /** Gradients under way: what has arrived so far at each recorded op. */
  const arrived = new Map<Node, DeviceArray>();
  arrived.set(root.source.node, seed);
  /** First gradients of leaves, on their way to their places: copied together at the end. */
  let owed: ArrayCopy[] = [];
  const paid: DeviceArray[] = [];
  try {
    for (const node of nodes) {
      const upstream = arrived.get(node);
      if (!upstream) continue;
      arrived.delete(node);
      const gradients = gradientsOf(lent, node, upstream);
      for (const [index, edge] of node.edges.entries()) {
        const gradient = gradients[index];
        if (!edge || !gradient) continue;
        if ("leaf" in edge) deliver(edge.leaf, gradient);
        else arrive(edge.source.node, gradient);
      }
      if (!retainGraph) node.release();
      lent.letGo(upstream);
      letGoOfPaid();
      lent.sweep();
    }
  } finally {
    payOwed();
    letGoOfPaid();
  }

  function deliver(leaf: Leaf, gradient: DeviceArray): void {
    // Where a copy costs no launch nothing is gained by waiting, and memory is.
    const place = capabilitiesOf(runtime).combinesKernels ? leaf.takePlace() : undefined;
    if (place) {
      owed.push({ source: gradient, target: place });
      lent.hold(gradient);
      return;
    }
    // What is added to must be there.
    payOwed();
    leaf.accumulate(gradient);
  }

  function payOwed(): void {
    const copies = owed;
    owed = [];
    copyArrays(runtime, copies);
    paid.push(...copies.map(({ source }) => source));
  }

  /** Not as soon as they are paid: other gradients of the same op may lie in the same memory. */
  function letGoOfPaid(): void {
    for (const gradient of paid.splice(0)) lent.letGo(gradient);
  }

  function arrive(node: Node, gradient: DeviceArray): void {
    const before = arrived.get(node);
    if (!before) {
      arrived.set(node, gradient);
      lent.hold(gradient);
      return;
    }
    if (lent.isSole(before)) {
      runInto(runtime, add, before, [before, gradient], {});
      return;
    }
    const total = lent.apply(add, [before, gradient]);
    arrived.set(node, total);
    lent.hold(total);
    lent.letGo(before);
  }
}

const numberType: ValueType = { shape: [], dtype: "f32" };

function gradientsOf(
  lent: TemporaryGradients,
  node: Node,
  upstream: DeviceArray,
): readonly (DeviceArray | undefined)[] {
  const { op, attributes, operandTypes, outputTypes, needs } = node;
  const rule: GradientRule<DeviceArray, typeof attributes> = {
    apply: lent.apply,
    applyAll: lent.applyAll,
    attributes,
    upstream,
    operand: (index) => node.operand(index),
    output: (index) => node.output(index),
    typeOf: (index) => operandTypes[index] ?? numberType,
    outputTypes,
    needs: (index) => needs[index] ?? false,
    valueType: (value) => value,
  };
  if (op.gradient) return op.gradient(rule);
  throw new HoldfastError("NO_GRADIENT", `${op.name} has no gradient.`, { numbers: { op: op.name } });
}

/** Every op between a node and the leaves, latest first. */
function reachedFrom(root: Node): readonly Node[] {
  const reached = new Set<Node>([root]);
  for (const node of reached) {
    for (const edge of node.edges) if (edge && "source" in edge) reached.add(edge.source.node);
  }
  return [...reached].sort((a, b) => b.id - a.id);
}
