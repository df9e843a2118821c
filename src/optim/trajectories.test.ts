/** The optimizers against PyTorch: six to eight steps each, with all options, groups, and parameters without gradients. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { openStrictDevice } from "../../test/support/devices.js";
import { isThorough } from "../../test/support/effort.js";
import { placeParameters, setGradient } from "../../test/support/parameter-module.js";
import { readRepositoryFile } from "../../test/support/repository.js";
import { type Tensor, tensor } from "../tensor/index.js";
import * as optim from "./index.js";

interface Case {
  readonly name: string;
  readonly optimizer: keyof typeof optimizers;
  readonly options: Readonly<Record<string, unknown>>;
  readonly groups:
    | readonly (Readonly<Record<string, unknown>> & { readonly params: readonly number[] })[]
    | null;
  readonly absent: Readonly<Record<string, readonly number[]>> | null;
  readonly shapes: readonly (readonly number[])[];
  readonly initial: readonly (readonly number[])[];
  readonly gradients: readonly (readonly (readonly number[])[])[];
  readonly trajectory: Readonly<Record<"f64" | "f32", readonly (readonly (readonly number[])[])[]>>;
  /** After the last step, in f64. */
  readonly state?: Readonly<Record<string, readonly number[]>> | null;
}

const { cases } = JSON.parse(readRepositoryFile("test/oracle/optimizers.json")) as { cases: readonly Case[] };
const { SGD, Adam, AdamW, RMSprop, Adagrad, Adadelta, Adamax, NAdam, RAdam, Rprop, ASGD } = optim;
const optimizers = { SGD, Adam, AdamW, RMSprop, Adagrad, Adadelta, Adamax, NAdam, RAdam, Rprop, ASGD };
const tolerances = { f64: 1e-12, f32: 2e-6 } as const;

const cpu = openStrictDevice();

function inCamelCase(options: Readonly<Record<string, unknown>>): Record<string, unknown> {
  const rename = (name: string): string =>
    name.replace(/_(\w)/g, (_, letter: string) => letter.toUpperCase());
  return Object.fromEntries(Object.entries(options).map(([name, value]) => [rename(name), value]));
}

function make({ optimizer, options, groups }: Case, parameters: readonly Tensor[]): optim.Optimizer {
  const source = groups
    ? groups.map(({ params, ...groupOptions }) => ({
        params: params.map((index) => parameters[index]!),
        ...inCamelCase(groupOptions),
      }))
    : parameters;
  return new optimizers[optimizer](source as Tensor[], inCamelCase(options) as unknown as optim.SGDOptions);
}

/** Placed contiguously by a module, or separately as plain tensors. */
const placements = {
  "a module's parameters": ({ shapes, initial }: Case, dtype: "f64" | "f32") =>
    placeParameters(cpu, dtype, shapes, initial),
  "plain tensors": ({ shapes, initial }: Case, dtype: "f64" | "f32") =>
    initial.map((values, index) => {
      const flat = tensor([...values], { dtype, device: cpu });
      const parameter = flat.reshape(shapes[index]!).detach();
      parameter.requiresGrad = true;
      return parameter;
    }),
};

for (const [placement, place] of Object.entries(placements)) {
  for (const dtype of ["f64", "f32"] as const) {
    for (const [number, oracleCase] of cases.entries()) {
      // A quick run tries each case once per dtype, with another placement for each.
      const isModule = placement === "a module's parameters";
      if (!isThorough && isModule !== ((dtype === "f64") === (number % 2 === 0))) continue;
      test(`${oracleCase.optimizer} of ${placement} in ${dtype} has PyTorch's trajectory: ${oracleCase.name}`, () => {
        const parameters = place(oracleCase, dtype);
        const optimizer = make(oracleCase, parameters);
        for (const [step, gradients] of oracleCase.gradients.entries()) {
          optimizer.zeroGrad();
          for (const [index, parameter] of parameters.entries()) {
            if (!oracleCase.absent?.[step]?.includes(index)) setGradient(cpu, parameter, gradients[index]!);
          }
          optimizer.step();
          for (const [index, parameter] of parameters.entries()) {
            const expected = oracleCase.trajectory[dtype][step]![index]!;
            for (const [element, value] of Array.from(parameter.dataSync()).entries()) {
              const bound = tolerances[dtype] * Math.max(1, Math.abs(expected[element]!));
              if (Math.abs(value - expected[element]!) <= bound) continue;
              assert.fail(
                `step ${step + 1}, parameter ${index}, element ${element}: ${value}, PyTorch has ${expected[element]}`,
              );
            }
          }
        }
        if (dtype === "f32") return;
        const state = optimizer.stateDict();
        for (const [name, expected] of Object.entries(oracleCase.state ?? {})) {
          for (const [element, value] of state[name]!.dataSync().entries())
            assert.ok(Math.abs(value - expected[element]!) <= 1e-12, `${name}: ${value}`);
        }
      });
    }
  }
}
