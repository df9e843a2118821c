/**
 * Random models over every layer of nn, at widths from 1 to 300, trained for a few calls with events between
 * them: modes, freezing, rates, writes, other batches, results that are kept and used late. Eager and
 * compiled agree to the bit. Models that have once failed are kept in random-programs-kept.json and run
 * first. TEST_RANDOM_MODELS=N runs that many; run-random.ts runs ranges of them, on any device.
 */

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { setImmediate } from "node:timers/promises";
import fc from "fast-check";
import { nn, optim } from "holdfast";
import type { Driver } from "holdfast/internals";
import { GiB } from "../src/units/index.js";
import { openDevice, withDevice } from "./support/devices.js";
import { effort } from "./support/effort.js";
import { fakeHost } from "./support/fake-host.js";
import { checkModel, type ModelDevice, namesOf, noModelCounts } from "./support/random-models/check.js";
import { anyModelProgram } from "./support/random-models/generate.js";
import type { ModelProgram } from "./support/random-models/program.js";
import { pruneModel } from "./support/random-models/prune.js";
import { losingLaunches, losingReplays } from "./support/random-programs/faults.js";
import { readKept } from "./support/random-programs/kept.js";
import { fromJson, toJson } from "./support/random-programs/literals.js";
import { testDevice } from "./support/test-device.js";

const host = fakeHost(4 * GiB, 4 * GiB);
after(() => host.remove());

const options = { capture: "on", threads: 1, hostRoot: host.root, poison: true } as const;
const device = openDevice(options);
const models: ModelDevice = { device, cpu: device, precision: "f32" };

const seed = 20_260_117;
const minPrograms = { cpu: effort({ quick: 3, thorough: 40 }), emulator: 8, cuda: 40 }[testDevice];
const programCount = Number(process.env["TEST_RANDOM_MODELS"] ?? minPrograms);

for (const { note, model } of readKept()) {
  if (model)
    test(`a model that once failed is the same, eager and compiled: ${note}`, () => {
      checkModel(models, model, noModelCounts());
    });
}

test("eager and compiled agree to the bit on random models, with events between their calls", async (context) => {
  const counts = noModelCounts();
  const property = fc.asyncProperty(anyModelProgram(), async (program) => {
    // Modules of a trace are collected only after the end of a turn of the event loop.
    await setImmediate();
    checkModel(models, asKept(program), counts);
  });
  const details = await fc.check(property, { seed, numRuns: programCount });
  const { programs, calls, events, rejections } = counts;
  context.diagnostic(`${programs} programs; ${calls} calls; ${events} events; ${rejections} rejected`);
  if (details.failed) failWith(details);
  assert.ok(programs >= minPrograms, `${programs} programs were run`);
  assert.ok(rejections <= Math.max(1, 0.2 * programs), `${rejections} of ${programs} programs were rejected`);
});

/** Classes of a namespace, by name, that extend a base. */
function classesOf(namespace: object, base: { readonly prototype: object }): string[] {
  const extendsBase = (type: { readonly prototype: object }) =>
    Object.prototype.isPrototypeOf.call(base.prototype, type.prototype);
  return Object.entries(namespace).flatMap(([name, member]) =>
    typeof member === "function" && member.prototype && extendsBase(member) ? [name] : [],
  );
}

/**
 * Not generated: values of other axes or several operands, results that are tuples, layers of several ranks, and containers. The cases of
 * oracle-layers.test.ts, oracle-recurrent.test.ts, layers.test.ts and test/distributed run them, eager and compiled. LBFGS calls its function several times a step.
 */
const generatedElsewhere = `
  AdaptiveAvgPool3d AdaptiveMaxPool3d AvgPool3d MaxPool3d BatchNorm3d InstanceNorm3d Conv3d ConvTranspose3d Dropout3d
  CircularPad3d ConstantPad3d ReflectionPad3d ReplicationPad3d ZeroPad3d
  Bilinear CosineSimilarity PairwiseDistance EmbeddingBag Fold Unfold
  RNN GRU LSTM RNNCell GRUCell LSTMCell
  MaxUnpool1d MaxUnpool2d MaxUnpool3d SyncBatchNorm
  LinearAdapter ModuleDict ParameterDict ParameterList Transformer TransformerDecoder TransformerDecoderLayer TransformerEncoder
  CTCLoss CosineEmbeddingLoss GaussianNLLLoss MarginRankingLoss MultiLabelMarginLoss MultiLabelSoftMarginLoss MultiMarginLoss
  TripletMarginLoss TripletMarginWithDistanceLoss
  LBFGS`
  .trim()
  .split(/\s+/);

const sample = fc.sample(anyModelProgram(), { seed, numRuns: 4000 });

test("every layer and loss of nn, every optimizer and every schedule is generated", () => {
  const names = new Set(sample.flatMap(namesOf));
  const all = [
    ...classesOf(nn, nn.Module),
    ...classesOf(optim, optim.Optimizer),
    ...classesOf(optim, optim.Schedule),
    "ReduceOnPlateau",
  ];
  assert.deepEqual(
    all.filter((name) => !names.has(name)),
    generatedElsewhere.filter((name) => all.includes(name)).sort((a, b) => all.indexOf(a) - all.indexOf(b)),
  );
  assert.deepEqual(
    generatedElsewhere.filter((name) => !all.includes(name)),
    [],
    "no such class",
  );
  assert.ok(all.length > 40);
});

test("widths of linear layers range from 1 to 300, also for equal layers", () => {
  const widths = new Set<number>();
  const equal = new Set<number>();
  for (const { steps } of sample) {
    for (const step of steps) {
      if (step.kind === "layer" && step.layer === "Linear") widths.add(step.args[0] as number);
      if (step.kind === "repeat" && step.count === 4)
        for (const layer of step.steps)
          if (layer.kind === "layer" && layer.layer === "Linear") equal.add(layer.args[0] as number);
    }
  }
  assert.ok(widths.size > 150, `${widths.size} widths`);
  assert.ok(equal.size > 30, `${equal.size} widths of four equal layers`);
  assert.ok(Math.max(...widths) <= 900 && Math.min(...widths) === 1);
});

const faults: Readonly<Record<string, (driver: Driver) => Driver>> = {
  "some replays are lost": losingReplays,
  "some launches are lost": losingLaunches,
};

for (const [what, inject] of Object.entries(faults)) {
  test(`random models detect that ${what}`, () => {
    const failed = withDevice(
      options,
      (faulty) => {
        const faultyModels: ModelDevice = { ...models, device: faulty };
        const property = fc.property(anyModelProgram(), (program) =>
          checkModel(faultyModels, program, noModelCounts()),
        );
        return fc.check(property, { seed, numRuns: 20, endOnFailure: true }).failed;
      },
      inject,
    );
    assert.ok(failed, "20 models have found nothing");
  });
}

function asKept(program: ModelProgram): ModelProgram {
  return fromJson<ModelProgram>(toJson(program));
}

/** Fails with the smallest program, in the format of the file of kept ones. */
function failWith({ counterexample, errorInstance }: fc.RunDetails<[ModelProgram]>): never {
  const first = errorInstance as Error;
  const failsAlike = (program: ModelProgram): boolean => {
    try {
      checkModel(models, program, noModelCounts());
      return false;
    } catch (error) {
      return (error as Error).name === first.name;
    }
  };
  const model = pruneModel(asKept(counterexample![0]), failsAlike);
  throw new Error(
    `${first.message}\nFor random-programs-kept.json, with a note:\n${toJson({ note: "", model })}`,
    {
      cause: first,
    },
  );
}
