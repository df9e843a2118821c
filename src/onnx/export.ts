/** exportOnnx: writes a model as an ONNX file. */

import { HoldfastError } from "../errors/index.js";
import { packageVersion } from "../files/index.js";
import { formatShape, opTable } from "../ops/index.js";
import { type Device, Tensor } from "../tensor/index.js";
import { parseBytes } from "../units/index.js";
import { type BuiltGraph, buildGraph } from "./build-graph.js";
import { mergeTraces } from "./merge-traces.js";
import { type Assignment, assignmentsOf, type DynamicAxes, type Samples } from "./sizes.js";
import {
  type ExportedModel,
  type ForwardPass,
  forwardPass,
  type InputType,
  type ModelTrace,
  traceModel,
} from "./trace-model.js";
import { translations } from "./translate/table.js";
import { writeModel } from "./write-model.js";

/** Options of `exportOnnx`. */
export interface ExportOnnxOptions {
  /**
   * Axes whose size may change, with a name for each. Default: the first axis of every input that has as many rows as the first input,
   * named "batch". `{}`: all shapes are fixed.
   */
  readonly dynamicAxes?: DynamicAxes;
  /** Names of the results. Default: "output" for one tensor; otherwise keys and positions, such as "output.0". */
  readonly outputNames?: readonly string[];
  /** The file's name for the model. Default: the name of its class. */
  readonly name?: string;
  /** Texts that the file carries. */
  readonly metadata?: Readonly<Record<string, string>>;
  /** If the weights take more bytes, they are in a second file, `PATH_data`. Default and maximum: "1900MiB". */
  readonly externalDataAbove?: string;
}

/** An input or a result of an exported model. A size may be symbolic, such as "batch". */
export interface OnnxPort {
  readonly name: string;
  readonly dtype: string;
  readonly shape: readonly (number | string)[];
}

/** What `exportOnnx` wrote. */
export interface OnnxExport {
  readonly inputs: readonly OnnxPort[];
  readonly outputs: readonly OnnxPort[];
  readonly opset: number;
  readonly nodes: number;
  /** Paths of the written files. */
  readonly files: readonly string[];
  readonly bytes: number;
}

/**
 * Opset 20 is the first with Gelu, which runtimes compute in one kernel. ONNX Runtime has it since version 1.17, of 2024. Its files have IR
 * version 9.
 */
export const opset = 20;
const irVersion = 9;

/** A protobuf message has at most 2 GiB. */
const maxInline = "1900MiB";

/** By name, or in order: `input`, or `input_0`, `input_1`, … */
export type OnnxInputs = Readonly<Record<string, Tensor>> | readonly Tensor[];

/**
 * Writes a model's forward pass as an ONNX file, for ONNX Runtime and other engines. The model is traced in evaluation mode with
 * tensors like `inputs`: only their shapes and dtypes matter. Sizes of dynamic axes are symbolic in the file.
 *
 * @example
 * ```ts
 * import { mkdtempSync } from "node:fs";
 * import { tmpdir } from "node:os";
 * import { join } from "node:path";
 * import { device, exportOnnx, nn, zeros } from "holdfast";
 * const cpu = await device("cpu");
 * const model = new nn.Sequential(new nn.Linear(4, 8), new nn.GELU(), new nn.Linear(8, 2)).to(cpu);
 * const path = join(mkdtempSync(join(tmpdir(), "onnx-")), "model.onnx");
 * const { inputs, outputs } = exportOnnx(model, path, { x: zeros([1, 4]) });
 * console.log(inputs[0]?.shape, outputs[0]?.shape); // → [ 'batch', 4 ] [ 'batch', 2 ]
 * cpu.close();
 * ```
 */
export function exportOnnx(
  model: ExportedModel,
  path: string,
  inputs: OnnxInputs,
  options: ExportOnnxOptions = {},
): OnnxExport {
  return writeOnnx(forwardPass(model), path, inputs, { name: model.constructor.name, ...options });
}

/** Writes any forward pass. */
export function writeOnnx(
  pass: ForwardPass,
  path: string,
  inputs: OnnxInputs,
  options: ExportOnnxOptions,
): OnnxExport {
  const { name = "", metadata = {}, externalDataAbove = maxInline } = options;
  const limit = parseBytes(externalDataAbove);
  if (limit > parseBytes(maxInline))
    throw new HoldfastError(
      "BAD_SIZE",
      `exportOnnx: externalDataAbove is ${externalDataAbove}; an ONNX file has at most ${maxInline} of weights.`,
    );
  const { initializers, ...graph } = graphOf(pass, inputs, options);
  const producer = { name: "holdfast", version: packageVersion() };
  const { files, bytes } = writeModel(
    deviceOf(inputs).runtime,
    path,
    { irVersion, opset, producer, metadata, graph: { name, ...graph } },
    initializers,
    limit,
  );
  const { inputs: ports, outputs, nodes } = graph;
  return { inputs: ports, outputs, opset, nodes: nodes.length, files, bytes };
}

/** Composite ops that have a translation of their own. */
const keptComposites = new Set(
  Object.values(opTable).flatMap(({ kind, name }) =>
    kind === "composite" && translations.has(name) ? [name] : [],
  ),
);

function graphOf(
  pass: ForwardPass,
  given: OnnxInputs,
  { dynamicAxes, outputNames }: ExportOnnxOptions,
): BuiltGraph {
  const inputs = namedInputs(given);
  const device = deviceOf(given);
  const axes = dynamicAxes ?? defaultAxes(inputs);
  requireAxes(inputs, axes);
  const traced = traceAtSizes(inputs, axes, (types) => traceModel(device, pass, types, keptComposites));
  const merged = mergeTraces(traced.traces, traced.samples);
  return buildGraph({
    ...{ merged, axes, inputNames: inputs.map(({ name }) => name) },
    results: renamed(traced.traces[0]?.results ?? new Map(), outputNames),
    names: storedNames(pass),
  });
}

function deviceOf(inputs: OnnxInputs): Device {
  const [first] = Object.values(inputs) as readonly Tensor[];
  if (first instanceof Tensor) return first.device;
  throw new HoldfastError("BAD_ARGUMENT", "exportOnnx: pass at least one input, which is a tensor.");
}

interface NamedInput {
  readonly name: string;
  readonly tensor: Tensor;
}

function namedInputs(inputs: OnnxInputs): readonly NamedInput[] {
  const isList = Array.isArray(inputs);
  return Object.entries(inputs as Readonly<Record<string, Tensor>>).map(([key, tensor]) => {
    if (!(tensor instanceof Tensor))
      throw new HoldfastError("BAD_ARGUMENT", `exportOnnx: input ${key} is no tensor.`);
    return { name: !isList ? key : inputs.length === 1 ? "input" : `input_${key}`, tensor };
  });
}

function defaultAxes(inputs: readonly NamedInput[]): DynamicAxes {
  const rows = inputs[0]?.tensor.shape[0];
  return Object.fromEntries(
    inputs.flatMap(({ name, tensor }) =>
      rows !== undefined && tensor.shape[0] === rows ? [[name, { 0: "batch" }]] : [],
    ),
  );
}

function requireAxes(inputs: readonly NamedInput[], axes: DynamicAxes): void {
  for (const [name, named] of Object.entries(axes)) {
    const input = inputs.find((candidate) => candidate.name === name);
    if (!input)
      throw new HoldfastError(
        "BAD_ARGUMENT",
        `exportOnnx: dynamicAxes has "${name}", which is no input. The inputs are ${inputs.map((each) => each.name).join(", ")}.`,
      );
    for (const [axis, symbol] of Object.entries(named)) {
      const isAxis = Number(axis) < input.tensor.ndim && Number(axis) >= 0;
      const addends = symbol.split(" + ");
      if (isAxis && addends.every((addend) => isAlone(axes, addend, symbol))) continue;
      throw new HoldfastError(
        "BAD_ARGUMENT",
        `exportOnnx: dynamicAxes names axis ${axis} of "${name}" "${symbol}". The axes of ${formatShape(input.tensor.shape)} are 0 to ` +
          `${input.tensor.ndim - 1}, and a name has letters, digits and underscores, or is a sum of other axes, such as "past + rows".`,
      );
    }
  }
}

/** True for the name of an axis; an addend of a sum must be the name of another axis. */
function isAlone(axes: DynamicAxes, name: string, symbol: string): boolean {
  const isName = /^[A-Za-z_]\w*$/.test(name);
  return (
    isName && (name === symbol || Object.values(axes).some((named) => Object.values(named).includes(name)))
  );
}

interface Traces {
  readonly traces: readonly ModelTrace[];
  readonly samples: Samples;
}

/** Sizes to trace with, for an axis of this size. Models may reject some: sizes above a maximum, or odd ones. */
const sampleChoices: readonly ((size: number) => readonly [number, number, number])[] = [
  (size) => [size, size + 1, size + 3],
  (size) => [size, 2 * size, 4 * size],
  (size) => [size, size - 1, size - 2],
];

function traceAtSizes(
  inputs: readonly NamedInput[],
  axes: DynamicAxes,
  trace: (types: readonly InputType[]) => ModelTrace,
): Traces {
  const sizes = new Map<string, number>();
  for (const { name, tensor } of inputs)
    for (const [axis, symbol] of Object.entries(axes[name] ?? {}))
      if (!symbol.includes("+")) sizes.set(symbol, Math.max(2, tensor.shape[Number(axis)] ?? 2));
  const failures: unknown[] = [];
  for (const choose of sampleChoices) {
    const samples = Object.fromEntries([...sizes].map(([symbol, size]) => [symbol, choose(size)]));
    if (Object.values(samples).some((chosen) => chosen.some((size) => size < 2))) continue;
    try {
      const traces = assignmentsOf(samples).map((assignment) => trace(typesAt(inputs, axes, assignment)));
      return { traces, samples };
    } catch (failure) {
      failures.push(failure);
      // The model itself can't be exported, or runs at no other size.
      if (sizes.size === 0 || (failure instanceof HoldfastError && failure.code === "UNSUPPORTED")) break;
    }
  }
  const [failure] = failures;
  if (sizes.size === 0 || !(failure instanceof HoldfastError)) throw failure;
  throw new HoldfastError(
    failure.code,
    `exportOnnx, at other sizes of ${[...sizes.keys()].join(" and ")}: ${failure.message} If an axis must keep its size, leave it out of ` +
      "the option dynamicAxes.",
    { numbers: failure.numbers, cause: failure },
  );
}

function typesAt(
  inputs: readonly NamedInput[],
  axes: DynamicAxes,
  assignment: Assignment,
): readonly InputType[] {
  return inputs.map(({ name, tensor: { shape, dtype } }) => ({
    ...{ name, dtype },
    shape: shape.map((size, axis) => {
      const symbol = axes[name]?.[axis];
      return symbol === undefined
        ? size
        : symbol.split(" + ").reduce((sum, addend) => sum + (assignment[addend] ?? 0), 0);
    }),
  }));
}

function renamed(
  results: ReadonlyMap<string, number>,
  names: readonly string[] | undefined,
): ReadonlyMap<string, number> {
  if (results.size === 0)
    throw new HoldfastError("BAD_ARGUMENT", "exportOnnx: the model returned no tensor.");
  if (!names) return results;
  if (names.length === results.size && new Set(names).size === names.length)
    return new Map([...results.values()].map((id, index) => [names[index] ?? "", id]));
  throw new HoldfastError(
    "BAD_ARGUMENT",
    `exportOnnx: outputNames has ${names.length} names for ${results.size} results (${[...results.keys()].join(", ")}). Pass a different ` +
      "name for each.",
  );
}

/** The names of parameters and buffers by address. */
function storedNames({ module }: ForwardPass): ReadonlyMap<number, string> {
  const names = new Map<number, string>();
  if (!module) return names;
  for (const [path, tensor] of [...module.namedParameters(), ...module.namedBuffers()])
    if (tensor.isPlaced && tensor.array.storage) names.set(tensor.array.storage.span.address, path);
  return names;
}
