/** The backward pass: from values back to the leaves, each recorded op once, in reverse order of recording. */

import { HoldfastError } from "../errors/index.js";
import type { DeviceArray, Gradients } from "../ops/index.js";
import type { Runtime } from "../runtime/index.js";
import { noGrad } from "./grad-mode.js";
import { runHooks } from "./gradient-hooks.js";
import { runGradientRule } from "./gradient-rules.js";
import { GradientSums } from "./gradient-sums.js";
import { LeafDelivery } from "./leaf-delivery.js";
import { LeafUses } from "./leaf-uses.js";
import { type Leaf, Node, type RecordedFunction, Slot } from "./node.js";
import { findPaths, type Key, keyOf, keyOfEdge, type Paths } from "./paths.js";
import { TemporaryGradients } from "./temporary-gradients.js";
import type { Value } from "./value.js";
import { type Region, ViewRegions } from "./view-regions.js";

/** A value to differentiate, and its gradient. */
export interface Root<V> {
  readonly value: Value;
  readonly seed: V;
}

export interface BackwardOptions {
  /** Keep the saved tensors, for another pass through the same graph. */
  readonly retainGraph?: boolean;
  /** Called for every array that a gradient rule creates. */
  readonly onResult?: (op: string, array: DeviceArray) => void;
  /** The gradients that are computed, and what takes each, as soon as it is complete. Default: leaves accumulate theirs. */
  readonly receivers?: ReadonlyMap<Key, (gradient: DeviceArray) => void>;
}

export function runBackward(
  runtime: Runtime,
  roots: readonly Root<DeviceArray>[],
  { retainGraph = false, onResult = () => undefined, receivers }: BackwardOptions = {},
): void {
  const paths = findPaths(
    roots.map(({ value }) => value),
    receivers,
  );
  const { nodes } = paths;
  // Checked before any gradient is delivered: an error halfway would leave only some of the gradients.
  for (const node of nodes) node.requireStep();
  const regions = new ViewRegions(
    roots.flatMap(({ value }) => value.source?.node ?? []),
    nodes,
    isObserved,
  );
  const temporaries = new TemporaryGradients(runtime, onResult);
  const sums = new GradientSums(runtime, temporaries, regions);
  const leaves = new LeafDelivery(runtime, temporaries, regions);
  const observedLeaves = new Set<Leaf>();
  const uses = new LeafUses(nodes);
  try {
    for (const { value, seed } of roots) {
      const key = keyOf(value);
      if (key) arrive(key, seed);
    }
    for (const node of nodes) {
      pass(node);
      for (const leaf of uses.endOf(node)) complete(leaf);
    }
    for (const leaf of observedLeaves) complete(leaf);
  } finally {
    leaves.finish();
  }

  function pass(node: Node): void {
    if (node.userFunction) {
      passThroughFunction(node, node.userFunction);
      return;
    }
    const sum = sums.take(node);
    const region = regions.of(node);
    if (!sum && !region) return;
    const upstream = sum && isObserved(node) ? observe(node, sum) : sum;
    if (upstream && paths.leadOn(node)) {
      // The gradients of a part went on when they arrived, except those of a chain of views that ended at it.
      if (region) arriveIn(region, upstream);
      else deliverGradients(node, upstream);
    }
    if (!retainGraph) node.release();
    if (sum) temporaries.release(sum);
    leaves.releaseCopied();
    temporaries.sweep();
  }

  /** Shows a leaf's whole gradient to those who observe it. */
  function complete(leaf: Leaf): void {
    if (!observedLeaves.delete(leaf)) return;
    const sum = sums.take(leaf);
    if (!sum) return;
    const gradient = observe(leaf, sum);
    if (!receivers) leaves.deliver(leaf, gradient);
    temporaries.release(sum);
  }

  /** True if its whole gradient must be in one array. */
  function isObserved(key: Key): boolean {
    if (receivers?.has(key) || (key.hooks?.list.length ?? 0) > 0) return true;
    return "retained" in key && key.retained !== undefined;
  }

  /** Calls the hooks with a complete gradient, and hands it to its receiver. */
  function observe(key: Key, gradient: DeviceArray): DeviceArray {
    const hooks = key.hooks?.list ?? [];
    let present = gradient;
    if (hooks.length > 0) {
      temporaries.letEscape(gradient);
      present = noGrad(() => runHooks(hooks, { array: gradient, source: undefined, leaf: undefined })).array;
    }
    if ("retained" in key) key.retained?.accumulate(present);
    receivers?.get(key)?.(temporaries.takeOut(present));
    return present;
  }

  function deliverGradients(node: Node, upstream: DeviceArray): void {
    const gradients = computeGradients(temporaries, node, upstream, paths);
    for (const [index, edge] of node.edges.entries()) {
      const gradient = gradients[index];
      if (!edge || !gradient || !paths.has(edge)) continue;
      arrive(keyOfEdge(edge), gradient);
    }
  }

  function passThroughFunction(node: Node, { gradient: differentiate }: RecordedFunction): void {
    const arrived = [node, ...node.slots].map((key) => ({ key, sum: sums.take(key) }));
    if (arrived.every(({ sum }) => !sum)) return;
    const upstreams = arrived.map(({ key, sum }) => sum && (isObserved(key) ? observe(key, sum) : sum));
    if (paths.leadOn(node)) {
      for (const upstream of upstreams) if (upstream) temporaries.letEscape(upstream);
      const operands = upstreams.map((array) => array && { array, source: undefined, leaf: undefined });
      const gradients = noGrad(() => differentiate(node, operands, false));
      for (const [index, edge] of node.edges.entries()) {
        const gradient = gradients[index];
        if (edge && gradient && paths.has(edge)) arrive(keyOfEdge(edge), gradient.array);
      }
    }
    if (!retainGraph) node.release();
    for (const { sum } of arrived) if (sum) temporaries.release(sum);
    leaves.releaseCopied();
    temporaries.sweep();
  }

  function arrive(key: Key, gradient: DeviceArray): void {
    if (!(key instanceof Node) && !(key instanceof Slot)) {
      deliver(key, gradient);
      return;
    }
    const region = key instanceof Slot || isObserved(key) ? undefined : regions.of(key);
    if (region) arriveIn(region, gradient);
    else sums.add(key, gradient);
  }

  function arriveIn(region: Region, gradient: DeviceArray): void {
    const { target } = region;
    if (target instanceof Node) sums.addPart(target, gradient, region);
    else if (isObserved(target)) {
      observedLeaves.add(target);
      sums.addPart(target, gradient, region);
    } else leaves.deliverPart(target, gradient, region);
  }

  function deliver(leaf: Leaf, gradient: DeviceArray): void {
    if (receivers && !receivers.has(leaf)) return;
    if (!isObserved(leaf)) {
      leaves.deliver(leaf, gradient);
      return;
    }
    observedLeaves.add(leaf);
    sums.add(leaf, gradient);
  }
}

function computeGradients(
  { apply, applyAll }: TemporaryGradients,
  node: Node,
  upstream: DeviceArray,
  paths: Paths,
): Gradients<DeviceArray> {
  return runGradientRule(node, paths, {
    ...{ apply, applyAll, upstream, isRecorded: false },
    operand: (index) => node.operand(index),
    output: (index) => node.output(index),
    constantOutput: (index) => node.output(index),
    link: (index) => {
      throw new HoldfastError(
        "BAD_ARGUMENT",
        `The gradient of ${node.op.name} is not recorded, so operand ${index} has no link.`,
      );
    },
    valueType: (value) => value,
  });
}
