/** Builds an ONNX graph: nodes, constants and symbolic sizes. Equal nodes are made once. */

import type { Dtype } from "../ir/index.js";
import type { DeviceArray } from "../ops/index.js";
import { encodeElements } from "../tensor/index.js";
import { elementTypeOf, type NodeAttributes, type OnnxNode } from "./model-proto.js";
import type { Size, SymbolicSize } from "./sizes.js";

/** A constant of the graph: bytes, or a tensor in device memory that is read when the file is written. */
export interface Initializer {
  readonly name: string;
  readonly dtype: Dtype;
  readonly shape: readonly number[];
  readonly content: Uint8Array | DeviceArray;
}

/** Where the size of a dynamic axis is read. */
export interface SymbolPlace {
  readonly input: string;
  readonly axis: number;
}

export class Graph {
  readonly nodes: OnnxNode[] = [];
  readonly initializers: Initializer[] = [];
  /** The module whose call is being translated, for the names of nodes. */
  layer = "";
  readonly #symbols: ReadonlyMap<string, SymbolPlace>;
  readonly #outputs = new Map<string, readonly string[]>();
  readonly #constants = new Map<string, string>();
  readonly #counts = new Map<string, number>();
  readonly #taken = new Set<string>();

  constructor(symbols: ReadonlyMap<string, SymbolPlace>, taken: Iterable<string>) {
    this.#symbols = symbols;
    for (const name of taken) this.#taken.add(name);
  }

  /** Adds a node with one output, and returns the output's name. */
  node(type: string, inputs: readonly string[], attributes: NodeAttributes = {}): string {
    return this.nodeOf(type, inputs, attributes, 1)[0] as string;
  }

  /** Adds a node with several outputs. */
  nodeOf(
    type: string,
    inputs: readonly string[],
    attributes: NodeAttributes,
    outputCount: number,
  ): readonly string[] {
    const key = JSON.stringify([type, inputs, attributes, outputCount], infinities);
    const known = this.#outputs.get(key);
    if (known) return known;
    const name = this.#nameOf(`${this.layer.replaceAll(".", "/")}/${type}`);
    const outputs =
      outputCount === 1
        ? [`${name}_output`]
        : Array.from({ length: outputCount }, (_, index) => `${name}_output_${index}`);
    this.nodes.push({ name, type, inputs, outputs, attributes });
    this.#outputs.set(key, outputs);
    return outputs;
  }

  /** A name that no other node, constant or value has. */
  #nameOf(base: string): string {
    for (;;) {
      const count = this.#counts.get(base) ?? 0;
      this.#counts.set(base, count + 1);
      const name = count === 0 ? base : `${base}_${count}`;
      if (this.#taken.has(name)) continue;
      this.#taken.add(name);
      return name;
    }
  }

  constant(dtype: Dtype, shape: readonly number[], values: readonly number[]): string {
    const view = encodeElements(values, dtype);
    return this.#constantOf(dtype, shape, new Uint8Array(view.buffer, view.byteOffset, view.byteLength));
  }

  constantOfBytes(dtype: Dtype, shape: readonly number[], bytes: Uint8Array): string {
    return this.#constantOf(dtype, shape, bytes);
  }

  #constantOf(dtype: Dtype, shape: readonly number[], bytes: Uint8Array): string {
    const key = `${dtype} ${shape} ${Buffer.from(bytes).toString("base64")}`;
    const known = this.#constants.get(key);
    if (known) return known;
    const name = this.#nameOf("constant");
    this.initializers.push({ name, dtype, shape, content: bytes });
    this.#constants.set(key, name);
    return name;
  }

  /** A tensor in device memory, under its own name. */
  stored(name: string, array: DeviceArray): string {
    const { dtype, shape } = array;
    const own = this.#nameOf(name);
    this.initializers.push({ name: own, dtype, shape, content: array });
    return own;
  }

  scalar(dtype: Dtype, value: number): string {
    return this.constant(dtype, [], [value]);
  }

  /** A vector of i64: constant, or computed from the sizes of inputs. */
  ints(values: readonly Size[]): string {
    if (values.every((value) => typeof value === "number"))
      return this.constant("i64", [values.length], values);
    const parts = values.map((value) =>
      typeof value === "number" ? this.constant("i64", [1], [value]) : this.#symbolic(value),
    );
    return parts.length === 1 ? (parts[0] as string) : this.node("Concat", parts, { axis: { int: 0 } });
  }

  /** start + step · position, in a dtype. Positions are i64. */
  progression(positions: string, dtype: Dtype, { start, step }: { start: number; step: number }): string {
    const inDtype =
      dtype === "i64" ? positions : this.node("Cast", [positions], { to: { int: elementTypeOf(dtype) } });
    const scaled = step === 1 ? inDtype : this.node("Mul", [inDtype, this.scalar(dtype, step)]);
    return start === 0 ? scaled : this.node("Add", [scaled, this.scalar(dtype, start)]);
  }

  /** i64 [1] */
  #symbolic(size: SymbolicSize): string {
    const terms = (size.terms ?? []).map(({ coefficient, symbols }) => {
      const factors = symbols.map((symbol) => this.#sizeOf(symbol));
      const all =
        coefficient === 1 && factors.length > 0
          ? factors
          : [...factors, this.constant("i64", [1], [coefficient])];
      return all.reduce((product, factor) => this.node("Mul", [product, factor]));
    });
    return terms.reduce((sum, term) => this.node("Add", [sum, term]));
  }

  #sizeOf(symbol: string): string {
    const { input, axis } = this.#symbols.get(symbol) ?? { input: "", axis: 0 };
    return this.node("Shape", [input], { start: { int: axis }, end: { int: axis + 1 } });
  }
}

/** JSON has no infinities. */
function infinities(_: string, value: unknown): unknown {
  return typeof value === "number" && !Number.isFinite(value) ? String(value) : value;
}
