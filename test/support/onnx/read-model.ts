/** Reads an ONNX file strictly, by the fields of onnx.proto that exportOnnx writes. */

import assert from "node:assert/strict";
import { readFileSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import { type Dtype, dtypes } from "holdfast";
import { type Fields, readMessage, type Schema } from "./wire.js";

const pair: Schema = { 1: { name: "key", kind: "text" }, 2: { name: "value", kind: "text" } };
const tensor: Schema = {
  1: { name: "dims", kind: "integer", isRepeated: true },
  2: { name: "dataType", kind: "integer" },
  8: { name: "name", kind: "text" },
  9: { name: "rawData", kind: "bytes" },
  13: { name: "externalData", kind: pair, isRepeated: true },
  14: { name: "dataLocation", kind: "integer" },
};
const attribute: Schema = {
  1: { name: "name", kind: "text" },
  2: { name: "f", kind: "float" },
  3: { name: "i", kind: "integer" },
  4: { name: "s", kind: "text" },
  7: { name: "floats", kind: "float", isRepeated: true },
  8: { name: "ints", kind: "integer", isRepeated: true },
  9: { name: "strings", kind: "text", isRepeated: true },
  20: { name: "type", kind: "integer" },
};
const node: Schema = {
  1: { name: "inputs", kind: "text", isRepeated: true },
  2: { name: "outputs", kind: "text", isRepeated: true },
  3: { name: "name", kind: "text" },
  4: { name: "type", kind: "text" },
  5: { name: "attributes", kind: attribute, isRepeated: true },
};
const dimension: Schema = { 1: { name: "size", kind: "integer" }, 2: { name: "symbol", kind: "text" } };
const shape: Schema = { 1: { name: "dimensions", kind: dimension, isRepeated: true } };
const tensorType: Schema = { 1: { name: "elementType", kind: "integer" }, 2: { name: "shape", kind: shape } };
const value: Schema = {
  1: { name: "name", kind: "text" },
  2: { name: "type", kind: { 1: { name: "tensor", kind: tensorType } } },
};
const graph: Schema = {
  1: { name: "nodes", kind: node, isRepeated: true },
  2: { name: "name", kind: "text" },
  5: { name: "initializers", kind: tensor, isRepeated: true },
  11: { name: "inputs", kind: value, isRepeated: true },
  12: { name: "outputs", kind: value, isRepeated: true },
};
const model: Schema = {
  1: { name: "irVersion", kind: "integer" },
  2: { name: "producerName", kind: "text" },
  3: { name: "producerVersion", kind: "text" },
  7: { name: "graph", kind: graph },
  8: {
    name: "opsets",
    kind: { 1: { name: "domain", kind: "text" }, 2: { name: "version", kind: "integer" } },
    isRepeated: true,
  },
  14: { name: "metadata", kind: pair, isRepeated: true },
};

export type AttributeContent = number | string | readonly number[] | readonly string[];

export interface ReadNode {
  readonly name: string;
  readonly type: string;
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];
  readonly attributes: Readonly<Record<string, AttributeContent>>;
}

export interface ReadTensor {
  readonly name: string;
  readonly dtype: Dtype;
  readonly shape: readonly number[];
  readonly bytes: Uint8Array;
}

export interface ReadPort {
  readonly name: string;
  readonly dtype: Dtype;
  readonly shape: readonly (number | string)[];
}

export interface ReadModel {
  readonly opset: number;
  readonly irVersion: number;
  readonly producer: string;
  readonly metadata: Readonly<Record<string, string>>;
  readonly name: string;
  readonly nodes: readonly ReadNode[];
  readonly initializers: readonly ReadTensor[];
  readonly inputs: readonly ReadPort[];
  readonly outputs: readonly ReadPort[];
}

/** TensorProto.DataType, as its specification numbers them. */
export const dtypeOfNumber: Readonly<Record<number, Dtype>> = {
  ...{ 1: "f32", 2: "u8", 3: "i8", 6: "i32", 7: "i64", 9: "bool", 10: "f16", 11: "f64", 16: "bf16" },
};

const one = <T>(fields: Fields, name: string): T => {
  const list = fields[name] ?? [];
  assert.equal(list.length, 1, `${name} must occur once`);
  return list[0] as T;
};
const many = <T>(fields: Fields, name: string): readonly T[] => (fields[name] ?? []) as readonly T[];

export function readModel(path: string): ReadModel {
  const root = readMessage(readFileSync(path), model);
  const opset = one<Fields>(root, "opsets");
  assert.equal(one<string>(opset, "domain"), "");
  const body = one<Fields>(root, "graph");
  return {
    opset: one<number>(opset, "version"),
    irVersion: one<number>(root, "irVersion"),
    producer: `${one<string>(root, "producerName")} ${one<string>(root, "producerVersion")}`,
    metadata: pairsOf(many<Fields>(root, "metadata")),
    name: one<string>(body, "name"),
    nodes: many<Fields>(body, "nodes").map(readNode),
    initializers: many<Fields>(body, "initializers").map((fields) => readTensor(fields, dirname(path))),
    inputs: many<Fields>(body, "inputs").map(readPort),
    outputs: many<Fields>(body, "outputs").map(readPort),
  };
}

function pairsOf(fields: readonly Fields[]): Record<string, string> {
  return Object.fromEntries(fields.map((each) => [one<string>(each, "key"), one<string>(each, "value")]));
}

function readNode(fields: Fields): ReadNode {
  return {
    name: one<string>(fields, "name"),
    type: one<string>(fields, "type"),
    inputs: many<string>(fields, "inputs"),
    outputs: many<string>(fields, "outputs"),
    attributes: Object.fromEntries(many<Fields>(fields, "attributes").map(readAttribute)),
  };
}

const contentOfType: Readonly<Record<number, string>> = {
  ...{ 1: "f", 2: "i", 3: "s", 6: "floats", 7: "ints", 8: "strings" },
};

function readAttribute(fields: Fields): [string, AttributeContent] {
  const name = one<string>(fields, "name");
  const content = contentOfType[one<number>(fields, "type")];
  assert.ok(content, `the type of attribute ${name}`);
  const others = Object.keys(fields).filter((key) => !["name", "type", content].includes(key));
  assert.deepEqual(others, [], `attribute ${name} has a content of another type`);
  const isList = content.length > 1;
  return [name, isList ? many<number>(fields, content) : one<number | string>(fields, content)];
}

function readTensor(fields: Fields, folder: string): ReadTensor {
  const dtype = dtypeOfNumber[one<number>(fields, "dataType")]!;
  const name = one<string>(fields, "name");
  const shape = many<number>(fields, "dims");
  const bytes = fields["dataLocation"] ? externalBytes(fields, folder) : one<Uint8Array>(fields, "rawData");
  const expected = shape.reduce((product, size) => product * size, dtypes[dtype].bytes);
  assert.equal(bytes.byteLength, expected, `the bytes of ${name}`);
  return { name, dtype, shape, bytes };
}

function externalBytes(fields: Fields, folder: string): Uint8Array {
  assert.equal(one<number>(fields, "dataLocation"), 1);
  assert.equal(fields["rawData"], undefined);
  const { location = "", offset, length } = pairsOf(many<Fields>(fields, "externalData"));
  assert.ok(location !== "" && !location.includes("/"));
  assert.equal(Number(offset) % 4096, 0);
  const end = Number(offset) + Number(length);
  assert.ok(end <= statSync(join(folder, location)).size);
  return readFileSync(join(folder, location)).subarray(Number(offset), end);
}

function readPort(fields: Fields): ReadPort {
  const type = one<Fields>(one<Fields>(fields, "type"), "tensor");
  const dimensions = many<Fields>(one<Fields>(type, "shape"), "dimensions");
  return {
    name: one<string>(fields, "name"),
    dtype: dtypeOfNumber[one<number>(type, "elementType")]!,
    shape: dimensions.map((each) => {
      assert.equal(Object.keys(each).length, 1, "a dimension has a size or a symbol");
      return each["size"] ? one<number>(each, "size") : one<string>(each, "symbol");
    }),
  };
}
