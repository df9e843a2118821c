/** Generates programs from random choices, so that a failing one shrinks to a small one. */

import fc from "fast-check";
import { phaseNames } from "../../../src/compile/index.js";
import type { FloatDtype } from "../../tolerances.js";
import { Builder, isSame } from "./builder.js";
import { Choices } from "./choices.js";
import { makers } from "./instructions.js";
import type { OptimizerSpec, Program } from "./program.js";
import { stateMakers } from "./states.js";

const optimizers: readonly OptimizerSpec[] = [
  { name: "SGD", lr: 0.01 },
  { name: "SGD", lr: 0.01, momentum: 0.9, weightDecay: 0.01 },
  { name: "AdamW", lr: 0.01 },
];

const anyAlgorithms = fc.array(fc.nat(4095), { minLength: 16, maxLength: 16 });
const anyInstruction = fc.tuple(fc.nat(makers.length - 1), anyAlgorithms);

const maxInstructions = 12;

/** Single phases, and all of autotuning: GEMMs whose algorithms alone are not tuned still differ from eager code's. */
const switches = phaseNames.map((name) => (name === "gemmAlgorithms" ? "autotune" : name));

export const anyProgram: fc.Arbitrary<Program> = fc
  .record({
    dtype: fc.constantFrom<FloatDtype>(
      ...Array.from({ length: 8 }, () => "f32" as const),
      "f64",
      "bf16",
      "f16",
    ),
    seed: fc.integer({ min: 1, max: 2 ** 31 - 1 }),
    optimizer: fc.constantFrom(...optimizers),
    inModule: fc.boolean(),
    without: fc.oneof(
      { weight: 3, arbitrary: fc.constant([]) },
      { weight: 1, arbitrary: fc.subarray(switches) },
    ),
    body: fc.array(anyInstruction, { minLength: 1, maxLength: maxInstructions, size: "max" }),
    /** True if the step ends like a training step. */
    trains: fc.boolean(),
    ending: anyAlgorithms,
  })
  .map(({ dtype, body, trains, ending, ...rest }) => {
    const builder = new Builder(dtype);
    for (const [index, numbers] of body) makers[index]!(builder, new Choices(numbers));
    const choices = new Choices(ending);
    if (trains) {
      stateMakers["backward"]!(builder, choices);
      stateMakers["optimize"]!(builder, choices);
    }
    const names = builder.values.map(({ name }) => name);
    const candidates = [names.at(-1), ...Array.from({ length: choices.below(4) }, () => choices.of(names))];
    const results = [...new Set(candidates.flatMap((name) => name ?? []))];
    const feeds = choices.isOneIn(2) ? feedsOf(builder, results) : [];
    const { inputs, instructions } = builder;
    const leftOut = choices.isOneIn(5) && instructions.length > 0 ? [choices.below(instructions.length)] : [];
    return { ...rest, dtype, inputs, instructions, leftOut, results, feeds };
  });

/** Arguments that can take a result of the previous step. */
function feedsOf(builder: Builder, results: readonly string[]): Program["feeds"] {
  const used = new Set<string>();
  return builder.inputs.flatMap(({ name, role, dtype, shape }) => {
    if (role !== "argument" || dtype !== "float") return [];
    const from = results.find((name) => {
      const value = builder.find(name);
      return !used.has(name) && value.dtype === "float" && isSame(value.shape, shape);
    });
    if (from === undefined) return [];
    used.add(from);
    return [{ from, to: name }];
  });
}
