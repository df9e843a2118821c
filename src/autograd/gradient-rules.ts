/** Runs the gradient rule of a recorded op, on arrays or on values of the graph. */

import { HoldfastError } from "../errors/index.js";
import type { Attributes, GradientRule, Gradients, ValueType } from "../ops/index.js";
import type { Node } from "./node.js";
import type { Paths } from "./paths.js";

/** What a backward pass knows of a rule; the node knows the rest. */
type PassParts<V> = Pick<
  GradientRule<V, Attributes>,
  | "apply"
  | "applyAll"
  | "upstream"
  | "isRecorded"
  | "operand"
  | "output"
  | "constantOutput"
  | "link"
  | "valueType"
>;

const numberType: ValueType = { shape: [], dtype: "f32" };

/** One gradient for each operand; undefined if it has none or needs none. */
export function runGradientRule<V>(node: Node, paths: Paths, parts: PassParts<V>): Gradients<V> {
  const { op, attributes, operandTypes, outputTypes, edges } = node;
  if (!op.gradient)
    throw new HoldfastError("NO_GRADIENT", `${op.name} has no gradient.`, { numbers: { op: op.name } });
  return op.gradient<V>({
    ...parts,
    attributes,
    operandCount: edges.length,
    typeOf: (index) => operandTypes[index] ?? numberType,
    outputTypes,
    needs: (index) => paths.has(edges[index]),
  });
}
