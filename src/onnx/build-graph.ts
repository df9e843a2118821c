/** From merged traces to an ONNX graph: translates the calls that results need, and drops nodes without readers. */

import { HoldfastError } from "../errors/index.js";
import type { DeviceArray } from "../ops/index.js";
import { Graph, type Initializer, type SymbolPlace } from "./graph.js";
import type { Call, MergedTrace, Value } from "./merge-traces.js";
import type { OnnxNode, OnnxValue } from "./model-proto.js";
import type { DynamicAxes } from "./sizes.js";
import { CallContext, untranslatable } from "./translate/call-context.js";
import { rejections, translations } from "./translate/table.js";

export interface GraphToBuild {
  readonly merged: MergedTrace;
  readonly inputNames: readonly string[];
  readonly axes: DynamicAxes;
  /** The ids of the results by name. */
  readonly results: ReadonlyMap<string, number>;
  /** The names of stored tensors by address. */
  readonly names: ReadonlyMap<number, string>;
}

export interface BuiltGraph {
  readonly nodes: readonly OnnxNode[];
  readonly initializers: readonly Initializer[];
  readonly inputs: readonly OnnxValue[];
  readonly outputs: readonly OnnxValue[];
}

export function buildGraph({ merged, inputNames, axes, results, names }: GraphToBuild): BuiltGraph {
  const inputs = merged.values.filter(({ source }) => source.kind === "input");
  const graph = new Graph(symbolsOf(inputNames, axes), [...inputNames, ...results.keys()]);
  const known = new Map<number, string>();
  const nameOf = (value: Value): string => {
    const name = known.get(value.id) ?? nameSource(graph, value, inputNames, names);
    known.set(value.id, name);
    return name;
  };
  const { calls, read } = liveCalls(merged, results);
  for (const call of calls) {
    graph.layer = call.layer;
    const translation = translations.get(call.op);
    if (!translation) throw untranslatable(call, rejections.get(call.op) ?? "ONNX has no such operator");
    const translated = translation(new CallContext(graph, call, nameOf, read));
    const outputs = typeof translated === "string" ? [translated] : translated;
    for (const [index, output] of call.outputs.entries()) {
      const name = outputs[index];
      if (name !== undefined) known.set(output.id, name);
    }
  }
  const ends = [...results].map(([name, id]) => {
    const value = merged.values[id] as Value;
    return { name, value, from: nameOf(value) };
  });
  const finished = nameResults(graph.nodes, ends);
  const { nodes, initializers } = simplify(finished, graph.initializers, ends);
  return {
    ...{ nodes, initializers },
    inputs: inputNames.map((name, index) => {
      const value = inputs.find(({ source }) => source.kind === "input" && source.index === index) as Value;
      return typeOf(name, value);
    }),
    outputs: ends.map(({ name, value }) => typeOf(name, value)),
  };
}

function typeOf(name: string, { dtype, shape }: Value): OnnxValue {
  return {
    ...{ name, dtype },
    shape: shape.map((size, axis) =>
      typeof size === "number" ? size : size.terms ? String(size) : `${name}_axis_${axis}`,
    ),
  };
}

function symbolsOf(inputNames: readonly string[], axes: DynamicAxes): ReadonlyMap<string, SymbolPlace> {
  const symbols = new Map<string, SymbolPlace>();
  for (const input of inputNames)
    for (const [axis, symbol] of Object.entries(axes[input] ?? {}))
      if (!symbol.includes("+") && !symbols.has(symbol)) symbols.set(symbol, { input, axis: Number(axis) });
  return symbols;
}

/** The calls that results depend on, in order, and the ids of the values that they and the results read. */
function liveCalls(
  { calls, values }: MergedTrace,
  results: ReadonlyMap<string, number>,
): { readonly calls: readonly Call[]; readonly read: ReadonlySet<number> } {
  const live = new Set<Call>();
  const read = new Set<number>();
  const visit = (value: Value | undefined): void => {
    if (!value) return;
    read.add(value.id);
    if (value.source.kind === "call") live.add(value.source.call);
  };
  for (const id of results.values()) visit(values[id]);
  for (const call of calls.toReversed()) {
    if (!live.has(call)) continue;
    for (const operand of call.operands)
      if (typeof operand === "object" && "source" in operand) visit(operand);
  }
  return { calls: calls.filter((call) => live.has(call)), read };
}

/** The name of a value that no call computes. */
function nameSource(
  graph: Graph,
  { source, dtype, shape }: Value,
  inputNames: readonly string[],
  names: ReadonlyMap<number, string>,
): string {
  const fixed = shape.map((size) => (typeof size === "number" ? size : 0));
  switch (source.kind) {
    case "input":
      return inputNames[source.index] ?? "";
    case "stored": {
      const address = source.array.storage?.span.address;
      return graph.stored((address !== undefined && names.get(address)) || "tensor", source.array);
    }
    case "constant":
      return graph.constantOfBytes(dtype, fixed, source.bytes);
    case "uniform":
      return graph.node("Expand", [graph.scalar(dtype, source.value), graph.ints(shape)]);
    case "range": {
      const [count] = shape;
      const length = graph.node("Reshape", [graph.ints([count ?? 0]), graph.ints([])]);
      const positions = graph.node("Range", [graph.scalar("i64", 0), length, graph.scalar("i64", 1)]);
      return graph.progression(positions, dtype, source);
    }
    default:
      throw new HoldfastError(
        "UNSUPPORTED",
        "This model can't be exported to ONNX with these dynamic axes: it makes a tensor on the host whose elements depend on their sizes. " +
          "Compute it with arange() and ops, or make fewer axes dynamic with the option dynamicAxes.",
      );
  }
}

interface End {
  readonly name: string;
  /** The name in the graph. */
  readonly from: string;
}

/** Gives results their names: a node's output is renamed, and other values are passed on by a node. */
function nameResults(nodes: readonly OnnxNode[], ends: readonly End[]): readonly OnnxNode[] {
  const computed = new Set(nodes.flatMap(({ outputs }) => outputs));
  const names = new Map<string, string>();
  const passed: OnnxNode[] = [];
  for (const { name, from } of ends) {
    if (computed.has(from) && !names.has(from)) names.set(from, name);
    else
      passed.push({
        name: `${name}/Identity`,
        type: "Identity",
        inputs: [from],
        outputs: [name],
        attributes: {},
      });
  }
  const rename = (name: string): string => names.get(name) ?? name;
  return [...nodes, ...passed].map((node) => ({
    ...node,
    inputs: node.inputs.map(rename),
    outputs: node.outputs.map(rename),
  }));
}

/** Drops what nothing reads, and stores transposed weights as such. */
function simplify(
  nodes: readonly OnnxNode[],
  initializers: readonly Initializer[],
  ends: readonly End[],
): { readonly nodes: readonly OnnxNode[]; readonly initializers: readonly Initializer[] } {
  const read = new Set(ends.map(({ name }) => name));
  const live = nodes
    .toReversed()
    .filter(({ inputs, outputs }) => {
      if (!outputs.some((output) => read.has(output))) return false;
      for (const input of inputs) read.add(input);
      return true;
    })
    .toReversed();
  const readers = new Map<string, number>();
  for (const { inputs } of live)
    for (const input of inputs) readers.set(input, (readers.get(input) ?? 0) + 1);
  const kept = new Map(
    initializers.flatMap((each) => (read.has(each.name) ? [[each.name, each] as const] : [])),
  );
  const transposed = new Map<string, string>();
  for (const { type, inputs, outputs, attributes } of live) {
    const [name = ""] = inputs;
    const [output = ""] = outputs;
    const stored = kept.get(name);
    const isMatrix = type === "Transpose" && stored?.shape.length === 2 && readers.get(name) === 1;
    const isResult = ends.some((end) => end.name === output);
    const order = attributes["perm"];
    if (!isMatrix || isResult || !("strides" in stored.content) || !order || !("ints" in order)) continue;
    if (String(order.ints) !== "1,0") continue;
    transposed.set(output, name);
    kept.set(name, turned(stored, stored.content));
  }
  const rename = (name: string): string => transposed.get(name) ?? name;
  return {
    nodes: live.flatMap((node) =>
      node.outputs.some((output) => transposed.has(output))
        ? []
        : [{ ...node, inputs: node.inputs.map(rename) }],
    ),
    initializers: [...kept.values()],
  };
}

function turned(initializer: Initializer, content: DeviceArray): Initializer {
  const [shape, strides] = [content.shape.toReversed(), content.strides.toReversed()];
  return { ...initializer, shape, content: { ...content, shape, strides } };
}
