/** SGD, Adam and AdamW against PyTorch: six steps each, with all options, groups, and parameters without gradients. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { openStrictDevice } from "../../test/support/devices.js";
import { placeParameters, setGradient } from "../../test/support/parameter-module.js";
import { readRepositoryFile } from "../../test/support/repository.js";
import { type Tensor, tensor } from "../tensor/index.js";
import { Adam, AdamW, type Optimizer, SGD, type SGDOptions } from "./index.js";

interface Case {
  readonly name: string;
  readonly optimizer: "SGD" | "Adam" | "AdamW";
  readonly options: Readonly<Record<string, unknown>>;
  readonly groups:
    | readonly (Readonly<Record<string, unknown>> & { readonly params: readonly number[] })[]
    | null;
  readonly absent: Readonly<Record<string, readonly number[]>> | null;
  readonly shapes: readonly (readonly number[])[];
  readonly initial: readonly (readonly number[])[];
  readonly gradients: readonly (readonly (readonly number[])[])[];
  readonly trajectory: Readonly<Record<"f64" | "f32", readonly (readonly (readonly number[])[])[]>>;
}

const { cases } = JSON.parse(readRepositoryFile("test/oracle/optimizers.json")) as { cases: readonly Case[] };
const optimizers = { SGD, Adam, AdamW };
const tolerances = { f64: 1e-12, f32: 2e-6 } as const;

const cpu = openStrictDevice();

function inCamelCase(options: Readonly<Record<string, unknown>>): Record<string, unknown> {
  const rename = (name: string): string =>
    name.replace(/_(\w)/g, (_, letter: string) => letter.toUpperCase());
  return Object.fromEntries(Object.entries(options).map(([name, value]) => [rename(name), value]));
}

function make({ optimizer, options, groups }: Case, parameters: readonly Tensor[]): Optimizer {
  const source = groups
    ? groups.map(({ params, ...own }) => ({
        params: params.map((index) => parameters[index]!),
        ...inCamelCase(own),
      }))
    : parameters;
  return new optimizers[optimizer](source as Tensor[], inCamelCase(options) as unknown as SGDOptions);
}

/** Placed by a module, side by side; or each on its own, as plain tensors. */
const places = {
  "a module's parameters": (one: Case, dtype: "f64" | "f32") =>
    placeParameters(cpu, dtype, one.shapes, one.initial),
  "plain tensors": (one: Case, dtype: "f64" | "f32") =>
    one.initial.map((values, index) => {
      const flat = tensor([...values], { dtype, device: cpu });
      const own = flat.reshape(one.shapes[index]!).detach();
      own.requiresGrad = true;
      return own;
    }),
};

for (const [place, put] of Object.entries(places)) {
  for (const dtype of ["f64", "f32"] as const) {
    for (const one of cases) {
      test(`${one.optimizer} of ${place} in ${dtype} goes PyTorch's way: ${one.name}`, () => {
        const parameters = put(one, dtype);
        const optimizer = make(one, parameters);
        for (const [step, gradients] of one.gradients.entries()) {
          optimizer.zeroGrad();
          for (const [index, parameter] of parameters.entries()) {
            if (!one.absent?.[step]?.includes(index)) setGradient(cpu, parameter, gradients[index]!);
          }
          optimizer.step();
          for (const [index, parameter] of parameters.entries()) {
            const expected = one.trajectory[dtype][step]![index]!;
            for (const [at, found] of Array.from(parameter.dataSync()).entries()) {
              const bound = tolerances[dtype] * Math.max(1, Math.abs(expected[at]!));
              assert.ok(
                Math.abs(found - expected[at]!) <= bound,
                `step ${step + 1}, parameter ${index}, element ${at}: ${found}, PyTorch has ${expected[at]}`,
              );
            }
          }
        }
      });
    }
  }
}
