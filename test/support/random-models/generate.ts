/** Generates model programs from random choices, so that a failing one shrinks to a small one. */

import fc from "fast-check";
import { phaseNames } from "../../../src/compile/index.js";
import { Choices } from "../random-programs/choices.js";
import { specialLiterals } from "../random-programs/literals.js";
import { embedding, layerDrawers, Sketch } from "./layers.js";
import type { ModelDtype, ModelProgram, ModelStep } from "./program.js";
import { divisorsOf, elementsOf, maxElements, randomDivisor, randomSize, type Sizes } from "./sizes.js";
import { lossDrawers, randomCalls, randomClip, randomOptimizer, randomSchedule } from "./training.js";

const anyAlgorithms = (length: number) => fc.array(fc.nat(4095), { minLength: length, maxLength: length });

/** Single phases, and all of autotuning: GEMMs whose algorithms alone are not tuned still differ from eager code's. */
const switches = phaseNames.map((name) => (name === "gemmAlgorithms" ? "autotune" : name));

export interface ModelOptions {
  /** True if there are events between calls. Default: true. */
  readonly hasEvents?: boolean;
  /** True if there are special literals. Default: true. */
  readonly hasSpecials?: boolean;
  readonly dtypes?: readonly ModelDtype[];
}

const someDtypes: readonly ModelDtype[] = [
  "f32",
  "f32",
  "f32",
  "f32",
  "f32",
  "f32",
  "f32",
  "f64",
  "bf16",
  "f16",
];

/** The result of a generated trunk. */
interface Trunk {
  readonly steps: ModelStep[];
  sizes: Sizes;
}

export function anyModelProgram({
  hasEvents = true,
  hasSpecials = true,
  dtypes = someDtypes,
}: ModelOptions = {}): fc.Arbitrary<ModelProgram> {
  return fc
    .record({
      dtype: fc.constantFrom(...dtypes),
      seed: fc.integer({ min: 1, max: 2 ** 31 - 1 }),
      without: fc.oneof(
        { weight: 3, arbitrary: fc.constant([]) },
        { weight: 1, arbitrary: fc.subarray(switches) },
      ),
      start: anyAlgorithms(16),
      body: fc.array(anyAlgorithms(16), { minLength: 1, maxLength: 5, size: "max" }),
      training: anyAlgorithms(24),
      calls: fc.array(anyAlgorithms(14), { minLength: 1, maxLength: 5, size: "max" }),
    })
    .map(({ dtype, seed, without, start, body, training, calls }) => {
      const first = new Choices(start);
      const budget = first.of([3000, 3000, 3000, 12_000, 12_000, 12_000, 12_000, 100_000]);
      const sketch = new Sketch(budget);
      const trunk = randomStart(sketch, first);
      for (const numbers of body) extend(sketch, new Choices(numbers), trunk, hasSpecials);
      const choices = new Choices(training);
      const isEmpty = sketch.parametersLeft === budget;
      if (isEmpty || choices.isOneIn(2)) append(trunk, randomLayer(sketch, choices, trunk.sizes, "Linear"));
      const { loss, before } = lossDrawers[choices.of(Object.keys(lossDrawers))]!(
        sketch,
        choices,
        trunk.sizes,
      );
      trunk.steps.push(...before);
      const feedable = combinesOf(trunk.steps, sketch);
      const results = (["output", "joined", "norm"] as const).filter(() => choices.isOneIn(2));
      const named = ["loss", ...(results.includes("output") ? ["output"] : [])];
      if (results.includes("joined")) named.push(...feedable.map((input) => `at ${input}`));
      const optimizer = randomOptimizer(choices);
      const [clip, schedule] = [randomClip(choices), randomSchedule(choices)];
      const batches = [1 + choices.below(4), 1 + choices.below(9)];
      const trainingCalls = randomCalls(
        calls.map((numbers) => new Choices(numbers)),
        { batches, feedable: results.includes("joined") ? feedable : [], results: named },
      );
      return {
        ...{ dtype, seed, without, inputs: sketch.inputs, steps: trunk.steps, loss, results, optimizer },
        ...(clip && { clip }),
        ...(schedule && { schedule }),
        calls: hasEvents ? trainingCalls : trainingCalls.map((call) => ({ ...call, events: [] })),
      };
    });
}

function randomStart(sketch: Sketch, choices: Choices): Trunk {
  const how = choices.below(5);
  if (how === 4) {
    const width = randomSize(choices);
    const count = randomSize(choices, Math.floor(sketch.parametersLeft / width));
    const rows = choices.of([[], [randomSize(choices, Math.min(40, maxElements / width))]]);
    sketch.reserve(count * width);
    sketch.input({ sizes: rows, dtype: "i32", from: 0, to: count - 1 });
    return { steps: [embedding(choices, count, width)], sizes: [...rows, width] };
  }
  const first = randomSize(choices);
  const second = randomSize(choices, maxElements / first);
  const third = randomSize(choices, maxElements / first / second);
  const sizes = [[first], [second, first], [first, second], [third, first, second]][how]!;
  sketch.floats(sizes);
  return { steps: [], sizes };
}

function append(trunk: Trunk, next: { readonly step: ModelStep; readonly sizes: Sizes } | undefined): void {
  if (!next) return;
  trunk.steps.push(next.step);
  trunk.sizes = next.sizes;
}

const layerNames = Object.keys(layerDrawers);

/** The named layer; another one, or none, if it does not fit. */
function randomLayer(sketch: Sketch, choices: Choices, sizes: Sizes, name: string) {
  return layerDrawers[name]!(sketch, choices, sizes);
}

function extend(sketch: Sketch, choices: Choices, trunk: Trunk, hasSpecials: boolean): void {
  const how = choices.below(16);
  if (how < 9) append(trunk, randomLayer(sketch, choices, trunk.sizes, choices.of(layerNames)));
  else if (how < 12) append(trunk, randomRepeat(sketch, choices, trunk.sizes));
  else if (how === 12) append(trunk, randomJoin(sketch, choices, trunk.sizes));
  else if (how === 13) append(trunk, randomReshape(choices, trunk.sizes));
  else if (how === 14) append(trunk, randomLayer(sketch, choices, trunk.sizes, choices.of(inRows)));
  else append(trunk, randomNumber(choices, trunk.sizes, hasSpecials));
}

const inRows = ["MultiheadAttention", "TransformerEncoderLayer", "Conv1d", "Conv2d"];

/** 1 to 4 equal layers that keep the sizes, at any width. */
function randomRepeat(sketch: Sketch, choices: Choices, sizes: Sizes) {
  const count = 1 + choices.below(4);
  const before = { inputs: sketch.inputs.length, left: sketch.parametersLeft };
  sketch.parametersLeft = Math.floor(before.left / count);
  const each = sketch.parametersLeft;
  const steps = randomEqual(sketch, choices, sizes);
  sketch.parametersLeft = before.left - count * (each - sketch.parametersLeft);
  return steps && { step: { kind: "repeat" as const, count, steps, isResidual: choices.isOneIn(2) }, sizes };
}

function randomEqual(sketch: Sketch, choices: Choices, sizes: Sizes): readonly ModelStep[] | undefined {
  const width = sizes.at(-1) ?? 1;
  const how = choices.below(5);
  const linear = (from: number, to: number): ModelStep => ({
    kind: "layer",
    layer: "Linear",
    args: [from, to],
  });
  const alone = (name: string) => randomLayer(sketch, choices, sizes, name)?.step;
  if (how === 0) {
    const step = alone(choices.of(["LayerNorm", "RMSNorm", "GELU", "Dropout", "Softmax", "LeakyReLU"]));
    return step && [step];
  }
  if (how === 1 || how === 2) {
    const step = alone(choices.of(["TransformerEncoderLayer", "MultiheadAttention"]));
    if (step) return [step];
  }
  const norm = alone(choices.of(["LayerNorm", "RMSNorm", "Dropout"]));
  const activation = alone(choices.of(["GELU", "ReLU", "SiLU", "Tanh"]))!;
  // Square if the budget allows it, otherwise through a narrower layer.
  const hidden = sketch.reserve(width * width + width) ? undefined : randomSize(choices, 16);
  if (hidden !== undefined && !sketch.reserve(2 * hidden * width + hidden + width)) return norm && [norm];
  const matrices =
    hidden === undefined
      ? [linear(width, width), activation]
      : [linear(width, hidden), activation, linear(hidden, width)];
  return norm ? [norm, ...matrices] : matrices;
}

/** Another input, through a layer or directly. */
function randomJoin(sketch: Sketch, choices: Choices, sizes: Sizes) {
  const how = choices.of(["add", "mul", "cat"] as const);
  const width = sizes.at(-1) ?? 1;
  if (how === "cat") {
    const added = randomSize(choices, Math.min(300, maxElements / (elementsOf(sizes) / width) - width));
    if ((elementsOf(sizes) / width) * (width + added) > maxElements) return undefined;
    const input = sketch.floats([...sizes.slice(0, -1), added]);
    return {
      step: { kind: "join" as const, how, input, steps: [] },
      sizes: [...sizes.slice(0, -1), width + added],
    };
  }
  const from = randomSize(choices, maxElements / (elementsOf(sizes) / width));
  const hasLinear = choices.isOneIn(2) && sketch.reserve(from * width + width);
  const steps: ModelStep[] = hasLinear ? [{ kind: "layer", layer: "Linear", args: [from, width] }] : [];
  const input = sketch.floats(hasLinear ? [...sizes.slice(0, -1), from] : sizes);
  return { step: { kind: "join" as const, how, input, steps }, sizes };
}

function randomReshape(choices: Choices, sizes: Sizes) {
  if (sizes.length > 1 && choices.isOneIn(3)) {
    const axis = choices.below(sizes.length);
    return { step: { kind: "mean" as const, axis: axis + 1 }, sizes: sizes.toSpliced(axis, 1) };
  }
  const count = elementsOf(sizes);
  const rows = randomDivisor(choices, count, 300);
  const columns = divisorsOf(count / rows).at(-1 - choices.below(2)) ?? 1;
  const shaped = choices.of([[rows, count / rows], [count / rows / columns, rows, columns], [count]]);
  return { step: { kind: "reshape" as const, sizes: shaped }, sizes: shaped };
}

function randomNumber(choices: Choices, sizes: Sizes, hasSpecials: boolean) {
  const op = choices.of(["mul", "add", "maximum", "minimum", "div"] as const);
  const isSpecial = hasSpecials && choices.isOneIn(3);
  const value = isSpecial ? choices.of(specialLiterals) : choices.of([0.5, 1.25, -0.75]);
  return { step: { kind: "number" as const, op, value }, sizes };
}

/** Inputs of joins outside of equal layers whose sizes are those of the other operand. */
function combinesOf(steps: readonly ModelStep[], { inputs }: Sketch): string[] {
  return steps.flatMap((step) => {
    if (step.kind !== "join" || step.steps.length > 0 || step.how === "cat") return [];
    return inputs.find(({ name }) => name === step.input)?.dtype === "float" ? [step.input] : [];
  });
}
