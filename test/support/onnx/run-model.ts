/** Checks an ONNX file's structure, and computes its results with a plain interpreter. */

import assert from "node:assert/strict";
import type { AttributeKind, Operator, PlainArray } from "./arrays.js";
import { plainArray } from "./arrays.js";
import { elementwiseOperators } from "./elementwise.js";
import { movementOperators } from "./movement.js";
import { productOperators } from "./products.js";
import type { AttributeContent, ReadModel, ReadNode, ReadPort } from "./read-model.js";
import { recurrentOperators } from "./recurrent.js";
import { reductionOperators } from "./reductions.js";

export const operators: Readonly<Record<string, Operator>> = {
  ...elementwiseOperators,
  ...movementOperators,
  ...reductionOperators,
  ...productOperators,
  ...recurrentOperators,
};

/** Every name is defined once, before it is read, and read by something; nodes have known operators, attributes and counts. */
export function checkModel({ nodes, initializers, inputs, outputs, opset, irVersion }: ReadModel): void {
  assert.deepEqual([opset, irVersion], [20, 9]);
  const defined = new Set<string>();
  const define = (name: string): void => {
    assert.ok(name !== "" && !defined.has(name), `"${name}" is defined twice`);
    defined.add(name);
  };
  for (const { name } of [...inputs, ...initializers]) define(name);
  const read = new Set(outputs.map(({ name }) => name));
  const names = new Set<string>();
  for (const node of nodes) {
    assert.ok(node.name !== "" && !names.has(node.name), `two nodes "${node.name}"`);
    names.add(node.name);
    for (const input of node.inputs) {
      assert.ok(input === "" || defined.has(input), `${node.name} reads "${input}" before it is defined`);
      read.add(input);
    }
    for (const output of node.outputs) define(output);
    checkNode(node);
  }
  for (const { name } of outputs) assert.ok(defined.has(name), `the output "${name}" is not defined`);
  for (const { outputs: made, name } of nodes)
    assert.ok(
      made.some((output) => read.has(output)),
      `nothing reads ${name}`,
    );
  for (const { name } of initializers) assert.ok(read.has(name), `nothing reads "${name}"`);
}

function checkNode({ name, type, inputs, outputs, attributes }: ReadNode): void {
  const operator = operators[type];
  assert.ok(operator, `${name}: no operator ${type}`);
  const [min, max] = operator.inputs;
  assert.ok(inputs.length >= min && inputs.length <= max, `${name} has ${inputs.length} inputs`);
  const [fewest, most] = operator.outputs ?? [1, 1];
  assert.ok(outputs.length >= fewest && outputs.length <= most, `${name} has ${outputs.length} outputs`);
  for (const [attribute, content] of Object.entries(attributes)) {
    const kind = operator.attributes?.[attribute];
    assert.ok(kind && isOfKind(content, kind), `${name}: the attribute ${attribute}`);
  }
}

function isOfKind(content: AttributeContent, kind: AttributeKind): boolean {
  const isList = kind.endsWith("s");
  if (isList !== Array.isArray(content)) return false;
  const items = Array.isArray(content) ? content : [content];
  return items.every((item) =>
    kind.startsWith("text")
      ? typeof item === "string"
      : typeof item === "number" && (kind.startsWith("float") || Number.isInteger(item)),
  );
}

/** The results by name. The shapes of inputs and results must fit their declarations. */
export function runModel(
  model: ReadModel,
  feeds: Readonly<Record<string, PlainArray>>,
): Record<string, PlainArray> {
  const symbols = new Map<string, number>();
  const values = new Map<string, PlainArray>();
  for (const port of model.inputs) {
    const feed = feeds[port.name]!;
    for (const [axis, size] of port.shape.entries())
      if (typeof size === "string" && !symbols.has(size)) symbols.set(size, feed.shape[axis]!);
    requirePort(port, feed, symbols);
    values.set(port.name, feed);
  }
  for (const initializer of model.initializers) values.set(initializer.name, plainArray(initializer));
  for (const { name, type, inputs, outputs, attributes } of model.nodes) {
    try {
      const operands = inputs.map((input) => (input === "" ? undefined : values.get(input)!));
      const result = operators[type]!.run({ inputs: operands, attributes, outputCount: outputs.length });
      const results = "data" in result ? [result] : result;
      for (const [index, output] of outputs.entries()) values.set(output, results[index]!);
    } catch (error) {
      throw new Error(`${name} (${type})`, { cause: error });
    }
  }
  return Object.fromEntries(
    model.outputs.map((port) => {
      const value = values.get(port.name)!;
      requirePort(port, value, symbols);
      return [port.name, value];
    }),
  );
}

function requirePort(
  { name, dtype, shape }: ReadPort,
  array: PlainArray,
  symbols: ReadonlyMap<string, number>,
): void {
  assert.equal(array.dtype, dtype, name);
  const expected = shape.map((size) => (typeof size === "number" ? size : evaluate(size, symbols)));
  assert.deepEqual(
    array.shape,
    expected.map((size, axis) => size ?? array.shape[axis]!),
    `the shape of ${name}`,
  );
}

/** A symbolic size such as "2*batch + 1"; undefined if it is a name of its own. */
function evaluate(size: string, symbols: ReadonlyMap<string, number>): number | undefined {
  const terms = size.split(" + ").map((term) =>
    term.split("*").reduce<number | undefined>((product, factor) => {
      const value = symbols.get(factor) ?? Number(factor);
      return product === undefined || Number.isNaN(value) ? undefined : product * value;
    }, 1),
  );
  return terms.reduce((sum, term) => (sum === undefined || term === undefined ? undefined : sum + term));
}
