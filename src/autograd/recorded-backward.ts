/**
 * The backward pass that is recorded itself, so that gradients can be differentiated. It runs gradient rules on values of the graph, and
 * sums gradients in new memory: nothing that the graph refers to is overwritten or freed.
 */

import { HoldfastError } from "../errors/index.js";
import { type Apply, type ApplyAll, add, type Gradients, isFloat } from "../ops/index.js";
import type { Root } from "./backward.js";
import { runHooks } from "./gradient-hooks.js";
import { runGradientRule } from "./gradient-rules.js";
import { Node, type RecordedOperand, Slot } from "./node.js";
import { findPaths, type Key, keyOf, keyOfEdge, type Paths } from "./paths.js";
import { Value } from "./value.js";

/** Runs ops and records them. */
export interface Recorder {
  readonly apply: Apply<Value>;
  readonly applyAll: ApplyAll<Value>;
}

export interface RecordedBackwardOptions {
  readonly retainGraph: boolean;
  /** The gradients that are computed, and what takes each. Default: leaves accumulate theirs. */
  readonly receivers?: ReadonlyMap<Key, (gradient: Value) => void> | undefined;
}

export function runRecordedBackward(
  recorder: Recorder,
  roots: readonly Root<Value>[],
  { retainGraph, receivers }: RecordedBackwardOptions,
): void {
  const paths = findPaths(
    roots.map(({ value }) => value),
    receivers,
  );
  for (const node of paths.nodes) node.requireStep();
  const sums = new Map<Key, Value>();
  const plus = (a: Value, b: Value): Value => recorder.apply(add, [a, b]);
  const arrive = (key: Key | undefined, gradient: Value): void => {
    if (!key) return;
    const earlier = sums.get(key);
    sums.set(key, earlier ? plus(earlier, gradient) : gradient);
  };
  for (const { value, seed } of roots) arrive(keyOf(value), seed);
  for (const node of paths.nodes) {
    const upstreams = [node, ...node.slots].map(takeSum);
    if (upstreams.every((upstream) => !upstream) || !paths.leadOn(node)) continue;
    const [upstream] = upstreams;
    const gradients = node.userFunction
      ? node.userFunction.gradient(node, upstreams, true).map((gradient) => gradient && asValue(gradient))
      : upstream
        ? recordedGradients(recorder, node, upstream, paths)
        : [];
    for (const [index, edge] of node.edges.entries()) {
      const gradient = gradients[index];
      if (!edge || !gradient || !paths.has(edge)) continue;
      arrive(keyOfEdge(edge), gradient);
    }
    if (!retainGraph) node.release();
  }
  for (const [key, sum] of sums) {
    if (key instanceof Node || key instanceof Slot || (receivers && !receivers.has(key))) continue;
    const gradient = observe(key, sum);
    if (receivers) receivers.get(key)?.(gradient);
    else key.accumulateRecorded(gradient, (a, b) => plus(asValue(a), asValue(b)));
  }

  /** The complete gradient of an output, after its hooks. */
  function takeSum(key: Node | Slot): Value | undefined {
    const sum = sums.get(key);
    sums.delete(key);
    if (!sum) return undefined;
    const gradient = observe(key, sum);
    key.retained?.accumulateRecorded(gradient, (a, b) => plus(asValue(a), asValue(b)));
    receivers?.get(key)?.(gradient);
    return gradient;
  }
}

function observe(key: Key, gradient: Value): Value {
  const hooks = key.hooks?.list ?? [];
  return hooks.length > 0 ? asValue(runHooks(hooks, gradient)) : gradient;
}

/** A gradient as a value of the graph. */
export function asValue(operand: RecordedOperand): Value {
  if (operand instanceof Value) return operand;
  const { array, source, leaf } = operand;
  return new Value(array, { ...(source && { source }), ...(leaf && { leaf }) });
}

function recordedGradients(
  { apply, applyAll }: Recorder,
  node: Node,
  upstream: Value,
  paths: Paths,
): Gradients<Value> {
  return runGradientRule(node, paths, {
    ...{ apply, applyAll, upstream, isRecorded: true },
    operand: (index) => savedOperand(node, index),
    output: (index) => savedOutput(node, index),
    constantOutput: (index) => new Value(node.output(index)),
    link: (index) => linkTo(node, index),
    valueType: ({ array }) => array,
  });
}

function savedOperand(node: Node, index: number): Value | number {
  const saved = node.operand(index);
  return typeof saved === "number" ? saved : new Value(saved, node.edges[index] ?? {});
}

/** An operand that may not be in memory any more: its type, and where its gradient goes. */
function linkTo(node: Node, index: number): Value {
  const { shape = [], dtype = "f32" } = node.operandTypes[index] ?? {};
  const array = { shape, dtype, strides: shape.map(() => 0), storage: undefined };
  return new Value(array, node.edges[index] ?? {});
}

/** The first output has the gradient that its op has. The others have none. */
function savedOutput(node: Node, index: number): Value {
  const array = node.output(index);
  if (index === 0) return new Value(array, { source: { node, output: 0 } });
  if (!isFloat(array.dtype)) return new Value(array);
  const { name } = node.op;
  throw new HoldfastError(
    "NO_GRADIENT",
    `The gradient of ${name} can't be differentiated again. Leave out createGraph, or compute ${name} from other ops.`,
    { numbers: { op: name } },
  );
}
