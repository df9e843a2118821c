/**
 * The head and the loss of a language model in chunks of rows: a step that never holds all logits has the losses and the gradients of the
 * step that does, and needs less memory.
 */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { type CompileOptions, type Device, manualSeed, nn, randn, type Tensor, tensor } from "holdfast";
import { Guards } from "../src/autograd/index.js";
import type { TilingLimits } from "../src/compile/cost-model.js";
import { planStep, traceStep } from "../src/compile/index.js";
import { planMemory } from "../src/compile/memory/plan.js";
import { tileRows } from "../src/compile/passes/row-tiling.js";
import type { Call } from "../src/compile/program/program.js";
import { lifetimesOf } from "../src/compile/schedule/liveness.js";
import { latestPlanOf } from "../src/tensor/compiled/compiled-step.js";
import { effort } from "./support/effort.js";
import { emulatorMissing } from "./support/emulator.js";
import { openEmulatorGpu } from "./support/emulator-gpu.js";
import { type Precision, withNullGpu } from "./support/null-gpu.js";
import { type ProposedStep, rejectionBy, scheduleOn } from "./support/proposed-steps.js";
import { rewritten } from "./support/rewritten.js";
import { UnverifiedStep } from "./support/unverified-step.js";
import { isNear, type Tolerance, tolerances } from "./tolerances.js";

interface Sizes {
  readonly rows: number;
  readonly width: number;
  readonly classes: number;
}

interface Options {
  readonly isTied?: boolean;
  readonly hasBias?: boolean;
  readonly isWeighted?: boolean;
  /** The loss is a sum of squares, whose gradient needs no index. */
  readonly isSquared?: boolean;
  readonly loss?: {
    readonly reduction?: "mean" | "sum";
    readonly labelSmoothing?: number;
    readonly ignoreIndex?: number;
  };
}

class LanguageModel extends nn.Module {
  readonly embedding: nn.Embedding;
  readonly norms: nn.LayerNorm[];
  readonly head: nn.Linear;

  constructor({ width, classes }: Sizes, { hasBias = false, isTied = false }: Options) {
    super();
    this.embedding = new nn.Embedding(classes, width);
    this.norms = [0, 1, 2, 3].map(() => new nn.LayerNorm([width]));
    this.head = new nn.Linear(width, classes, { bias: hasBias });
    if (isTied) this.head.weight = this.embedding.weight;
  }

  forward(words: Tensor): Tensor {
    const hidden = this.norms.reduce((x, norm) => norm.forward(x), this.embedding.forward(words));
    return this.head.forward(hidden); // [rows, classes]
  }
}

/** A model and the step that computes its loss and adds its gradients to the present ones. */
function makeStep(device: Device, sizes: Sizes, options: Options) {
  const { rows, classes } = sizes;
  manualSeed(5);
  const model = new LanguageModel(sizes, options).to(device);
  const weight = randn([classes], { device }).abs();
  const words = Int32Array.from({ length: rows }, (_, row) => (row * row + 3) % classes);
  const labels = words.map((word, row) => (row % 4 === 1 ? 2 : (word * 7) % classes));
  const [x, y] = [tensor(words, { device }), tensor(labels, { device })];
  for (const kept of [weight, x, y]) device.keep(kept);
  const body = (): Tensor => {
    const settings = { ignoreIndex: 2, ...options.loss, ...(options.isWeighted && { weight }) };
    const logits = model.forward(x);
    const loss = options.isSquared
      ? logits.tanh().square().sum(-1).sum()
      : nn.functional.crossEntropy(logits, y, settings);
    loss.backward();
    return loss;
  };
  return { model, body };
}

/** A kernel that computes the gradient of logits. */
const isLoss = ({ op, work }: Call): boolean =>
  op.includes("crossEntropyGradient") &&
  work.kind === "row" &&
  work.kernel.outputs.some(({ per }) => per === "element");

/** Chunks of a few rows, and without a gain in memory. */
const smallChunks: TilingLimits = {
  ...{ rowAlignment: 8, minRows: 8, preferredRows: 8, minSummedRows: 8, minElements: 1, minShare: -Infinity },
};

const small: Sizes = { rows: 30, width: 16, classes: 24 };

describe("the head of a language model in chunks of rows", { skip: emulatorMissing }, () => {
  const device = emulatorMissing
    ? undefined!
    : openEmulatorGpu({ precision: "bf16", multiprocessors: 1, capture: "off", seesSnapshots: false });

  /** A step as the phases before row tiling leave it, and the gradients after any calls that do its work. */
  function traceSmallStep(options: Options) {
    const { runtime } = device;
    const { model, body } = makeStep(device, small, options);
    // Gradients that a step adds to.
    device.step(() => void body());
    const start = new Map(runtime.persistent.regions.map(({ whole }) => [whole, runtime.read(whole)]));
    const guards = new Guards();
    const trace = traceStep(runtime, () =>
      device.inTracedStep(() => guards.watch(device, () => void body())),
    );
    guards.undo();
    const { stages } = planStep(runtime, trace, { autotune: true, gemmAlgorithms: false });
    const whole = stages[stages.findIndex(({ name }) => name === "rowTiling") - 1]?.calls ?? [];
    const tiled = rewritten(whole, (program) => tileRows(runtime, program, smallChunks));
    const run = (calls: readonly Call[]): readonly Float32Array[] => {
      runtime.upload([...start].map(([target, source]) => ({ target, source })));
      const step = new UnverifiedStep(runtime, proposedStep(calls));
      step.run();
      step.close();
      return model.parameters().map(({ grad }) => Float32Array.from(grad!.dataSync()));
    };
    return { whole, tiled, run };
  }

  const first: Options = {
    ...{ isTied: true, hasBias: true, isWeighted: true, loss: { labelSmoothing: 0.1 } },
  };
  const cases: Readonly<Record<string, Options>> = {
    "tied weights, a bias, class weights, label smoothing, a mean": first,
    ...effort<Record<string, Options>>({
      quick: {},
      thorough: { "a mean": {}, "a bias, a sum": { hasBias: true, loss: { reduction: "sum" } } },
    }),
  };
  const traced = new Map<Options, ReturnType<typeof traceSmallStep>>();
  const stepOf = (options: Options): ReturnType<typeof traceSmallStep> => {
    const step = traced.get(options) ?? traceSmallStep(options);
    traced.set(options, step);
    return step;
  };
  // Only the order of the f32 sums differs.
  const tolerance = tolerances["oracle gradient"].f32;

  for (const [name, options] of Object.entries(cases)) {
    test(`has the gradients of the whole step: ${name}`, () => {
      const { whole, tiled, run } = stepOf(options);
      // The last chunk is smaller.
      assert.deepEqual(
        tiled.filter(isLoss).map(({ work }) => work.kind === "row" && work.iteration.rows),
        [16, 14],
      );
      assert.equal(rejectionBy(proposedStep(tiled)), undefined);
      const expected = run(whole);
      assert.equal(differenceOf(run(tiled), expected, tolerance), undefined);
    });
  }

  test("has other gradients if the work on a chunk is left out or done twice, and no other order is accepted", () => {
    const { whole, tiled, run } = stepOf(first);
    const expected = run(whole);
    const laterSum = tiled.findIndex(({ work }) => work.kind === "gemm" && work.problem.beta === 1);
    const [loss, laterLoss] = [tiled.findIndex(isLoss), tiled.findLastIndex(isLoss)];
    assert.ok(laterSum > 0 && loss < laterLoss);
    for (const index of [laterSum, laterLoss])
      assert.ok(differenceOf(run(tiled.toSpliced(index, 1)), expected, tolerance), `without call ${index}`);
    const twice = tiled.toSpliced(laterSum, 0, tiled[laterSum]!);
    assert.ok(differenceOf(run(twice), expected, tolerance));

    const { schedule, plan } = proposedStep(tiled);
    const exchanged = schedule.calls
      .with(loss, schedule.calls[laterLoss]!)
      .with(laterLoss, schedule.calls[loss]!);
    const rejection = rejectionBy({ program: tiled, schedule: { calls: exchanged }, plan });
    assert.match(String(rejection), /order/);
  });
});

function proposedStep(program: readonly Call[]): ProposedStep {
  const schedule = scheduleOn(
    program,
    program.map(() => 0),
  );
  return { program, schedule, plan: planMemory(lifetimesOf(schedule)) };
}

/** The first gradient that is not near the expected one, in words. */
function differenceOf(
  actual: readonly Float32Array[],
  expected: readonly Float32Array[],
  tolerance: Tolerance,
): string | undefined {
  for (const [parameter, values] of expected.entries()) {
    const scale = values.reduce((max, value) => Math.max(max, Math.abs(value)), 0);
    const index = values.findIndex((value, at) => !isNear(actual[parameter]![at]!, value, tolerance, scale));
    if (index >= 0)
      return `${parameter}[${index}] is ${actual[parameter]![index]} instead of ${values[index]}`;
  }
  return undefined;
}

describe("a plan for a GPU", () => {
  /** A chunk keeps 16 multiprocessors busy with 2048 rows. */
  const large: Sizes = { rows: 9000, width: 32, classes: 1024 };
  const planLarge = (precision: Precision, passes: CompileOptions["passes"] = {}, options: Options = {}) =>
    withNullGpu(
      precision,
      (device) => {
        const { body } = makeStep(device, large, options);
        const step = device.compile(body, { passes: { gemmAlgorithms: false, ...passes } });
        device.step(() => step().item());
        const { schedule, plan } = latestPlanOf(step)!.planned;
        step.close();
        return { calls: schedule.calls.map(({ call }) => call), bytes: plan.bytes };
      },
      { multiprocessors: 16 },
    );

  for (const precision of effort<readonly Precision[]>({ quick: ["bf16"], thorough: ["bf16", "tf32"] })) {
    test(`holds a chunk of the logits instead of all of them: ${precision}`, () => {
      const [whole, tiled] = [planLarge(precision, { rowTiling: false }), planLarge(precision)];
      // Four chunks of up to 2304 rows.
      assert.deepEqual(
        [whole, tiled].map(({ calls }) => calls.filter(isLoss).length),
        [1, 4],
      );
      // Logits and their gradient.
      const bytesPerRow = large.classes * (precision === "bf16" ? 2 + 2 : 4 + 4);
      const saved = (large.rows - 2304) * bytesPerRow;
      assert.ok(whole.bytes - tiled.bytes > 0.9 * saved, `${tiled.bytes} of ${whole.bytes} bytes`);
    });
  }

  test("starts the column sums of a chunk in the kernel of the chunk", () => {
    const options: Options = { isSquared: true, hasBias: true };
    const sumsIn = ({ calls }: ReturnType<typeof planLarge>): readonly number[] =>
      calls.flatMap(({ op, work }) => {
        if (work.kind !== "row" || !op.includes("squareGradient")) return [];
        return work.kernel.outputs.some(({ per }) => per === "column") ? [work.iteration.rows] : [];
      });
    assert.deepEqual(sumsIn(planLarge("bf16", { rowTiling: false }, options)), [large.rows]);
    assert.deepEqual(sumsIn(planLarge("bf16", {}, options)), [2304, 2304, 2304, 2088]);
  });

  test("is not tiled in float32, unless its GEMMs are tuned, which may change bits", () => {
    const settings = effort<readonly CompileOptions["passes"][]>({
      quick: [{}],
      thorough: [{}, { autotune: true }],
    });
    assert.deepEqual(
      settings.map((passes) => planLarge("f32", passes).calls.filter(isLoss).length),
      effort({ quick: [1], thorough: [1, 4] }),
    );
  });
});
