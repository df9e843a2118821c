/** The backward pass: from one value back to the leaves, each recorded op once, in reverse order of recording. */

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
import type { Leaf, Node } from "./node.js";
import { TemporaryGradients } from "./temporary-gradients.js";
import type { Value } from "./value.js";

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
  const temporaries = new TemporaryGradients(runtime, onResult);
  /** Gradients in flight: the sum of those that have arrived at each recorded op. */
  const gradientsInFlight = new Map<Node, DeviceArray>();
  gradientsInFlight.set(root.source.node, seed);
  /** First gradients of leaves that still have to be copied to their storage: copied together at the end. */
  let pendingCopies: ArrayCopy[] = [];
  const copiedGradients: DeviceArray[] = [];
  try {
    for (const node of nodes) {
      const upstream = gradientsInFlight.get(node);
      if (!upstream) continue;
      gradientsInFlight.delete(node);
      const gradients = computeGradients(temporaries, node, upstream);
      for (const [index, edge] of node.edges.entries()) {
        const gradient = gradients[index];
        if (!edge || !gradient) continue;
        if ("leaf" in edge) deliver(edge.leaf, gradient);
        else arrive(edge.source.node, gradient);
      }
      if (!retainGraph) node.release();
      temporaries.release(upstream);
      releaseCopied();
      temporaries.sweep();
    }
  } finally {
    flushCopies();
    releaseCopied();
  }

  function deliver(leaf: Leaf, gradient: DeviceArray): void {
    // On a device where a copy costs no launch, deferring it only costs memory.
    const destination = capabilitiesOf(runtime).combinesKernels ? leaf.takeDestination() : undefined;
    if (destination) {
      pendingCopies.push({ source: gradient, target: destination });
      temporaries.retain(gradient);
      return;
    }
    // A gradient must be in place before it is added to.
    flushCopies();
    leaf.accumulate(gradient);
  }

  function flushCopies(): void {
    const copies = pendingCopies;
    pendingCopies = [];
    copyArrays(runtime, copies);
    copiedGradients.push(...copies.map(({ source }) => source));
  }

  /** Deferred until now: other gradients of the same op may share the memory. */
  function releaseCopied(): void {
    for (const gradient of copiedGradients.splice(0)) temporaries.release(gradient);
  }

  function arrive(node: Node, gradient: DeviceArray): void {
    const earlier = gradientsInFlight.get(node);
    if (!earlier) {
      gradientsInFlight.set(node, gradient);
      temporaries.retain(gradient);
      return;
    }
    if (temporaries.isSole(earlier)) {
      runInto(runtime, add, earlier, [earlier, gradient], {});
      return;
    }
    const total = temporaries.apply(add, [earlier, gradient]);
    gradientsInFlight.set(node, total);
    temporaries.retain(total);
    temporaries.release(earlier);
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
