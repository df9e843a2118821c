/** The messages of an ONNX file, from plain records. The field numbers are those of onnx.proto. */

import { HoldfastError } from "../errors/index.js";
import { type Dtype, type Float8Dtype, isFloat8 } from "../ir/index.js";
import { type LazyBytes, Message } from "./protobuf.js";

export type AttributeValue =
  | { readonly int: number }
  | { readonly float: number }
  | { readonly ints: readonly number[] }
  | { readonly floats: readonly number[] }
  | { readonly text: string }
  | { readonly texts: readonly string[] };

export type NodeAttributes = Readonly<Record<string, AttributeValue>>;

export interface OnnxNode {
  readonly name: string;
  readonly type: string;
  /** An optional input that is absent is an empty text. */
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];
  readonly attributes: NodeAttributes;
}

/** An input or output of the graph. A dimension is a size, or the name of a symbolic size. */
export interface OnnxValue {
  readonly name: string;
  readonly dtype: Dtype;
  readonly shape: readonly (number | string)[];
}

/** A constant tensor: with its bytes, or with their place in the file of external data. */
export interface OnnxTensor {
  readonly name: string;
  readonly dtype: Dtype;
  readonly shape: readonly number[];
  readonly content: LazyBytes | ExternalBytes;
}

export interface ExternalBytes {
  /** The file's name, without a folder. */
  readonly location: string;
  readonly offset: number;
  readonly length: number;
}

export interface OnnxGraph {
  readonly name: string;
  readonly nodes: readonly OnnxNode[];
  readonly initializers: readonly OnnxTensor[];
  readonly inputs: readonly OnnxValue[];
  readonly outputs: readonly OnnxValue[];
}

export interface OnnxModel {
  readonly irVersion: number;
  readonly opset: number;
  readonly producer: { readonly name: string; readonly version: string };
  readonly metadata: Readonly<Record<string, string>>;
  readonly graph: OnnxGraph;
}

/** TensorProto.DataType. ONNX's conversions to 8-bit floats saturate, unlike ours. */
const elementTypes: Readonly<Record<Exclude<Dtype, Float8Dtype>, number>> = {
  f32: 1,
  u8: 2,
  i8: 3,
  i32: 6,
  i64: 7,
  bool: 9,
  f16: 10,
  f64: 11,
  bf16: 16,
};

export function elementTypeOf(dtype: Dtype): number {
  if (!isFloat8(dtype)) return elementTypes[dtype];
  throw new HoldfastError(
    "UNSUPPORTED",
    `ONNX export has no ${dtype}, because ONNX converts to it in another way. Convert to f16 or f32 instead.`,
    { numbers: { dtype } },
  );
}

export function encodeModel({ irVersion, opset, producer, metadata, graph }: OnnxModel): Message {
  const model = new Message()
    .integer(1, irVersion)
    .text(2, producer.name)
    .text(3, producer.version)
    .message(7, encodeGraph(graph))
    .message(8, new Message().text(1, "").integer(2, opset));
  for (const [key, value] of Object.entries(metadata)) model.message(14, encodePair(key, value));
  return model;
}

function encodeGraph({ name, nodes, initializers, inputs, outputs }: OnnxGraph): Message {
  const graph = new Message();
  for (const node of nodes) graph.message(1, encodeNode(node));
  graph.text(2, name);
  for (const tensor of initializers) graph.message(5, encodeTensor(tensor));
  for (const input of inputs) graph.message(11, encodeValue(input));
  for (const output of outputs) graph.message(12, encodeValue(output));
  return graph;
}

function encodeNode({ name, type, inputs, outputs, attributes }: OnnxNode): Message {
  const node = new Message();
  for (const input of inputs) node.text(1, input);
  for (const output of outputs) node.text(2, output);
  node.text(3, name).text(4, type);
  for (const [attribute, value] of Object.entries(attributes))
    node.message(5, encodeAttribute(attribute, value));
  return node;
}

const attributeTypes = { float: 1, int: 2, text: 3, floats: 6, ints: 7, texts: 8 } as const;

function encodeAttribute(name: string, value: AttributeValue): Message {
  const attribute = new Message().text(1, name);
  const typed = (kind: keyof typeof attributeTypes): Message => attribute.integer(20, attributeTypes[kind]);
  if ("int" in value) return typed("int").integer(3, value.int);
  if ("float" in value) return typed("float").float(2, value.float);
  if ("text" in value) return typed("text").text(4, value.text);
  if ("ints" in value) {
    for (const int of value.ints) attribute.integer(8, int);
    return typed("ints");
  }
  if ("floats" in value) {
    for (const float of value.floats) attribute.float(7, float);
    return typed("floats");
  }
  for (const text of value.texts) attribute.text(9, text);
  return typed("texts");
}

function encodeTensor({ name, dtype, shape, content }: OnnxTensor): Message {
  const tensor = new Message();
  for (const size of shape) tensor.integer(1, size);
  tensor.integer(2, elementTypeOf(dtype)).text(8, name);
  if (!("location" in content)) return tensor.bytes(9, content);
  const { location, offset, length } = content;
  for (const [key, value] of Object.entries({ location, offset, length }))
    tensor.message(13, encodePair(key, String(value)));
  return tensor.integer(14, 1);
}

function encodeValue({ name, dtype, shape }: OnnxValue): Message {
  const dimensions = new Message();
  for (const size of shape) {
    const dimension = new Message();
    dimensions.message(1, typeof size === "number" ? dimension.integer(1, size) : dimension.text(2, size));
  }
  const tensor = new Message().integer(1, elementTypeOf(dtype)).message(2, dimensions);
  return new Message().text(1, name).message(2, new Message().message(1, tensor));
}

function encodePair(key: string, value: string): Message {
  return new Message().text(1, key).text(2, value);
}
