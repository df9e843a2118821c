/**
 * Loss and gradients of common models: a compiled step on the device under test, in each of its precisions, against eager code in f64 on
 * the CPU. Dropout draws the same masks from the same seed.
 */

import assert from "node:assert/strict";
import { after, describe, test } from "node:test";
import { Device, manualSeed, type nn, optim } from "holdfast";
import { type CommonWorkloadName, commonWorkloads } from "./support/common-models/workloads.js";
import { openDevice } from "./support/devices.js";
import { isThorough } from "./support/effort.js";
import type { Precision } from "./support/null-gpu.js";
import { testDevice } from "./support/test-device.js";
import { type FloatDtype, tolerances } from "./tolerances.js";

interface Results {
  readonly loss: number;
  readonly gradients: ReadonlyMap<string, Float64Array>;
}

function gradientsOf(model: nn.Module): ReadonlyMap<string, Float64Array> {
  return new Map(
    [...model.namedParameters()].map(([path, { grad }]) => [
      path,
      Float64Array.from(grad?.dataSync() ?? [], Number),
    ]),
  );
}

const cpu = new Device("cpu", { memory: "256MiB", stallAfter: "off", print: () => {} });
after(() => cpu.close());

/** Eager, in f64. */
function computeReference(name: CommonWorkloadName, seed: number): Results {
  const { model, loss } = commonWorkloads[name](cpu, { dtype: "f64" });
  manualSeed(seed);
  return cpu.step(() => {
    const value = loss();
    value.backward();
    return { loss: value.item(), gradients: gradientsOf(model) };
  });
}

/** Compiled. The second call's results count: the first may run call by call. */
function computeCompiled(name: CommonWorkloadName, precision: Precision, seed: number): Results {
  const device = openDevice({ precision });
  const { model, loss } = commonWorkloads[name](device);
  const optimizer = new optim.SGD(model.parameters(), { lr: 0 });
  const step = device.compile(() => {
    optimizer.zeroGrad();
    const value = loss();
    value.backward();
    return { loss: value };
  });
  step();
  manualSeed(seed);
  const result = { loss: step().loss.item(), gradients: gradientsOf(model) };
  step.close();
  return result;
}

const normOf = (values: Float64Array): number => Math.hypot(...values);

/** The distance of each gradient from the reference, relative to its norm, largest first; and that of the loss. */
function distances({ loss, gradients }: Results, reference: Results): readonly (readonly [string, number])[] {
  const ofGradients = [...reference.gradients].map(([path, expected]) => {
    const actual = gradients.get(path) ?? new Float64Array();
    assert.equal(actual.length, expected.length, path);
    const difference = expected.map((value, index) => value - (actual[index] ?? Number.NaN));
    return [path, normOf(difference) / normOf(expected)] as const;
  });
  const ofLoss = ["loss", Math.abs(loss - reference.loss) / Math.abs(reference.loss)] as const;
  return [...ofGradients, ofLoss].sort(([, a], [, b]) => b - a);
}

/** TF32 has as many significant bits as f16. */
const dtypeOf: Readonly<Record<Precision, FloatDtype>> = { f32: "f32", tf32: "f16", bf16: "bf16" };

/** The emulator takes minutes for all of them. */
function precisionsFor(name: CommonWorkloadName): readonly Precision[] {
  if (testDevice === "cpu") return ["f32"];
  if (testDevice === "cuda" || isThorough) return ["f32", "tf32", "bf16"];
  return name === "mlp" || name === "recommender" ? ["bf16"] : [];
}

for (const name of Object.keys(commonWorkloads) as CommonWorkloadName[]) {
  describe(`a compiled step of the ${name}`, () => {
    for (const precision of precisionsFor(name)) {
      test(`has the gradients of eager code in f64, in ${precision}`, (t) => {
        const found = distances(computeCompiled(name, precision, 3), computeReference(name, 3));
        const [[path, distance] = ["", Number.NaN]] = found;
        t.diagnostic(`${path}: ${distance.toExponential(1)}`);
        const { relative } = tolerances["model gradient"][dtypeOf[precision]];
        assert.ok(distance <= relative, `${path} is ${distance} from f64; ${relative} is allowed`);
      });
    }
  });
}

test("red proof: the masks of another seed are detected in every precision", () => {
  const [first, other] = [3, 4].map((seed) => computeReference("gpt with dropout", seed)) as [
    Results,
    Results,
  ];
  const [[, distance] = ["", 0]] = distances(other, first);
  for (const { relative } of Object.values(tolerances["model gradient"]))
    assert.ok(distance > 2 * relative, `${distance}`);
});
