/** Model programs for PyTorch: the input and the output of test/oracle/random_models.py. */

import { manualSeed, type nn } from "holdfast";
import type { StepRecord } from "../random-programs/run.js";
import { RandomModel } from "./build.js";
import type { ModelEvent, ModelInput, ModelProgram, ModelStep } from "./program.js";
import { type ModelRunRecord, shapeOf, valuesOf } from "./run.js";

interface ListedTensor {
  readonly shape: readonly number[];
  readonly dtype: ModelInput["dtype"];
  /** float64, little-endian, base64. */
  readonly data: string;
}

/** One program without dropout, whose random numbers are not PyTorch's. */
export function withoutDropout(program: ModelProgram): ModelProgram {
  return { ...program, steps: program.steps.map(withoutDropoutIn) };
}

function withoutDropoutIn(step: ModelStep): ModelStep {
  if (step.kind === "repeat" || step.kind === "join")
    return { ...step, steps: step.steps.map(withoutDropoutIn) };
  if (step.kind !== "layer") return step;
  if (step.layer === "Dropout") return { ...step, args: [0] };
  const args = step.args.map((argument) =>
    typeof argument === "object" && argument !== null && "dropout" in argument
      ? { ...argument, dropout: 0 }
      : argument,
  );
  return { ...step, args };
}

/** `rates` has the learning rate and the weight decay of each group, for each call. */
export function torchLine(program: ModelProgram, rates: ModelRunRecord["rates"]) {
  manualSeed(program.seed);
  const model = new RandomModel(program.steps);
  const parameters = [...model.namedParameters()].map(([name, parameter]) => ({
    ...{ name, shape: parameter.shape, dtype: "float" },
    data: encode(parameter.initialValues()),
  }));
  const calls = program.calls.map(({ events, batch }, index) => ({
    events: events.flatMap((event) => resolve(event, model)),
    rates: rates[index] ?? [],
    inputs: Object.fromEntries(
      program.inputs.map((input) => [input.name, listed(program, input, index, batch)]),
    ),
  }));
  return { program, parameters, calls };
}

function listed(program: ModelProgram, input: ModelInput, index: number, batch: number): ListedTensor {
  const data = encode(valuesOf(program, input, index, batch));
  return { shape: shapeOf(input, batch), dtype: input.dtype, data };
}

/** Events with the indices of parameters, as PyTorch's side counts them; modes and rates are not included. */
function resolve(event: ModelEvent, model: nn.Module): ModelEvent[] {
  const parameters = model.parameters();
  const { length } = parameters;
  if (event.kind === "freeze")
    return length > 0 ? [{ ...event, parameters: event.parameters.map((at) => at % length) }] : [];
  if (event.kind === "write") return length > 0 ? [{ ...event, parameter: event.parameter % length }] : [];
  if (event.kind === "zeroGrad") return [event];
  if (event.kind !== "freeze module") return [];
  const modules = [...model.namedModules()];
  const affected = modules[event.module % modules.length]![1].parameters();
  const indices = affected.map((parameter) => parameters.indexOf(parameter));
  return [{ kind: "freeze", parameters: indices, requiresGrad: event.requiresGrad }];
}

export type TorchAnswer =
  | { readonly calls: readonly Readonly<Record<string, string>>[] }
  | { readonly error: string };

/** A call's record, with Holdfast's names. */
export function torchRecord(call: Readonly<Record<string, string>>): StepRecord {
  return new Map(Object.entries(call).map(([name, data]) => [name, decode(data)]));
}

function encode(values: ArrayLike<number>): string {
  return Buffer.from(Float64Array.from(values).buffer).toString("base64");
}

function decode(data: string): Float64Array<ArrayBuffer> {
  return new Float64Array(Uint8Array.from(Buffer.from(data, "base64")).buffer);
}
