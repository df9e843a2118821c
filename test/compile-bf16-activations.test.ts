/**
 * Steps whose GEMMs store bf16 for each other: their gradients equal those of f32 within the precision of
 * bf16, gradients of weights are not rounded, and a replay has the bits of the planned calls.
 */

import assert from "node:assert/strict";
import { afterEach, describe, test } from "node:test";
import fc from "fast-check";
import { arange, cat, crossasset, type Device, manualSeed, nn, optim, randn, type Tensor } from "holdfast";
import type { PassSettings } from "../src/compile/index.js";
import type { Call } from "../src/compile/program/program.js";
import { latestPlanOf } from "../src/tensor/compiled/compiled-step.js";
import { effort } from "./support/effort.js";
import { emulatorMissing, openEmulator } from "./support/emulator.js";
import { openEmulatorGpu } from "./support/emulator-gpu.js";
import { withNullGpu } from "./support/null-gpu.js";
import { sameBits } from "./support/random-programs/compare.js";
import { anyProgram } from "./support/random-programs/generate.js";
import { runProgram } from "./support/random-programs/run.js";
import { sameBytes } from "./support/same-bytes.js";
import { isNear, tolerances } from "./tolerances.js";

const skip = emulatorMissing;
/** Two layers have more GEMMs between attentions; one has each kind once. */
const layers = effort({ quick: 1, thorough: 2 });

afterEach(() => {
  if (!skip) openEmulator().reset();
});

/** A small CrossAsset, and the shape of its input. */
function crossAsset() {
  const sizes = { sources: 3, features: 16, width: 32, heads: 2, layers, hidden: 64 };
  return { model: new crossasset.CrossAsset(sizes), shape: [16, 3, 16] };
}

/** A feed-forward block that normalises its input: the gradient of the norm's output is the result of a GEMM. */
class FeedForward extends nn.Module {
  readonly norm = new nn.LayerNorm(16);
  readonly up = new nn.Linear(16, 32);
  readonly down = new nn.Linear(32, 16);

  forward(x: Tensor): Tensor {
    return x.add(this.down.forward(this.up.forward(this.norm.forward(x)).gelu()));
  }
}

/** Attention whose queries and keys are rotated by position, two heads of queries for one of keys. */
class Rotated extends nn.Module {
  readonly query = new nn.Linear(32, 32, { bias: false });
  readonly key = new nn.Linear(32, 16, { bias: false });
  readonly value = new nn.Linear(32, 16, { bias: false });
  readonly out = new nn.Linear(32, 32, { bias: false });

  forward(x: Tensor): Tensor {
    const [batch = 1, rows = 1] = x.shape;
    const angles = arange(0, rows, 1, { device: x.device }).reshape([rows, 1, 1]).mul(0.1);
    const [cos, sin] = [angles.cos(), angles.sin()];
    const rotate = (h: Tensor): Tensor => {
      const [a, b] = h.chunk(2, -1) as [Tensor, Tensor];
      return cat([a.mul(cos).sub(b.mul(sin)), b.mul(cos).add(a.mul(sin))], -1);
    };
    const heads = (layer: nn.Linear): Tensor => layer.forward(x).reshape([batch, rows, -1, 16]);
    const attended = nn.functional.scaledDotProductAttention(
      ...([rotate(heads(this.query)), rotate(heads(this.key)), heads(this.value)] as const),
      ...([null, { isCausal: true, enableGqa: true, rowsFirst: true }] as const),
    );
    return this.out.forward(attended.reshape([batch, rows, 32]));
  }
}

interface Trained {
  readonly model: nn.Module & { forward(x: Tensor): Tensor };
  readonly shape: readonly number[];
}

/** The gradients of a model, by the parameters' names; compiled if passes are passed. */
function gradientsOf(device: Device, passes?: PassSettings, make: () => Trained = crossAsset) {
  manualSeed(11);
  const { model, shape } = make();
  model.to(device);
  const step = (x: Tensor): Tensor => {
    const loss = model.forward(x).square().mean();
    loss.backward();
    return loss;
  };
  const compiled = passes && device.compile(step, { passes });
  const x = randn(shape, { device });
  if (compiled) compiled(x);
  else device.step(() => step(x).item());
  const gradients = new Map(
    [...model.namedParameters()].map(([name, { grad }]) => [name, grad!.dataSync() as Float32Array]),
  );
  const calls = (compiled && latestPlanOf(compiled)?.planned.schedule.calls) ?? [];
  return { gradients, calls: calls.map(({ call }) => call) };
}

const resultsOf = (calls: readonly Call[], isGradient: boolean): (string | undefined)[] =>
  calls.flatMap(({ work }) => {
    const problems =
      work.kind === "gemm" ? [work.problem] : work.kind === "grouped-gemm" ? work.problems : [];
    return problems.flatMap(({ a, resultDtype }) => (a.isTransposed === isGradient ? [resultDtype] : []));
  });

/** Compares gradients with those of f32, relative to the largest of each parameter. */
function areNear(
  gradients: ReadonlyMap<string, Float32Array>,
  expected: ReadonlyMap<string, Float32Array>,
): void {
  for (const [name, values] of expected) {
    const actual = gradients.get(name)!;
    const scale = values.reduce((max, value) => Math.max(max, Math.abs(value)), 0);
    for (const [index, value] of values.entries())
      assert.ok(
        isNear(actual[index]!, value, tolerances["oracle gradient"].bf16, scale),
        `${name}[${index}] is ${actual[index]}, in f32 ${value}, of ${scale}`,
      );
  }
}

describe("a compiled step in bf16", { skip }, () => {
  test("has the gradients of f32 within bf16's precision, and stores those of weights as f32", () => {
    const { gradients: expected } = gradientsOf(openEmulatorGpu({ capture: "off" }));
    const device = openEmulatorGpu({
      precision: "bf16",
      // A capture would run the step twice more.
      capture: effort({ quick: "off", thorough: "on" }),
    });
    const { gradients, calls } = gradientsOf(device, {});
    const attention = calls.flatMap(({ work }) => (work.kind === "attention" ? [work] : []));
    assert.equal(attention.length, 2 * layers);
    for (const { layouts } of attention) {
      const read = ["query", "key", "value"].map((name) => layouts[name]?.dtype);
      assert.deepEqual(read, ["bf16", "bf16", "bf16"]);
    }
    assert.ok(resultsOf(calls, false).filter((dtype) => dtype === "bf16").length >= 4 * layers);
    assert.deepEqual([...new Set(resultsOf(calls, true))], ["f32"]);
    areNear(gradients, expected);
  });

  test("stores rotated queries and keys, and all gradients of attention, as bf16", () => {
    const rotated = () => ({ model: new Rotated(), shape: [2, 24, 32] });
    const { gradients: expected } = gradientsOf(openEmulatorGpu({ capture: "off" }), undefined, rotated);
    const device = openEmulatorGpu({ precision: "bf16", capture: "off" });
    const { gradients, calls } = gradientsOf(device, {}, rotated);
    const attention = calls.flatMap(({ work }) => (work.kind === "attention" ? [work] : []));
    assert.deepEqual(
      attention.map(({ shape, layouts }) => [
        shape.resultDtype,
        ...["query", "key", "value"].map((name) => layouts[name]?.dtype),
      ]),
      [0, 1].map(() => ["bf16", "bf16", "bf16", "bf16"]),
    );
    areNear(gradients, expected);
  });

  test("reduces the columns of bf16 gradients to gradients of f32, within bf16's precision", () => {
    const block = () => ({ model: new FeedForward(), shape: [40, 16] });
    const { gradients: expected } = gradientsOf(openEmulatorGpu({ capture: "off" }), undefined, block);
    const device = openEmulatorGpu({ precision: "bf16", capture: "off" });
    const { gradients, calls } = gradientsOf(device, {}, block);
    const reduced = calls.flatMap(({ work }) => {
      if (work.kind === "column") return [work];
      return work.kind === "grouped-reduce" ? work.columns : [];
    });
    const norm = reduced.find(({ kernel }) => kernel.name === "layerNormAffineGradient");
    assert.equal(norm?.kernel.inputs[0], "bf16");
    assert.deepEqual([...new Set(reduced.flatMap(({ kernel }) => kernel.outputs))], ["f32"]);
    areNear(gradients, expected);
    assert.throws(() =>
      areNear(new Map([...gradients].map(([name, g]) => [name, g.map((v) => 2 * v)])), expected),
    );
  });

  test("stores no GEMM's result as bf16 if the pass is off, or if eager GEMMs are requested", () => {
    for (const passes of [{ bf16Activations: false }, { autotune: false }]) {
      const { calls } = withNullGpu("bf16", (device) => gradientsOf(device, passes));
      assert.deepEqual([...new Set([...resultsOf(calls, false), ...resultsOf(calls, true)])], ["f32"]);
    }
  });

  test("replays random programs to the bits of their planned calls", () => {
    const [direct, replaying] = (["off", "on"] as const).map((capture) =>
      openEmulatorGpu({ precision: "bf16", capture }),
    );
    fc.assert(
      fc.property(anyProgram, (program) => {
        const planned = runProgram(direct!, program, { isCompiled: true });
        sameBits(runProgram(replaying!, program, { isCompiled: true }), planned, "replayed and planned");
      }),
      { numRuns: effort({ quick: 1, thorough: 8 }), seed: 20_250_301 },
    );
  });

  test("replays random feed-forward stacks, which store bf16, to the bits of their planned calls", () => {
    const devices = (["off", "on"] as const).map((capture) =>
      openEmulatorGpu({ precision: "bf16", capture }),
    );
    const width = fc.constantFrom(8, 16, 24);
    const stacks = fc.record({
      rows: fc.constantFrom(8, 40),
      widths: fc.array(fc.record({ width, bias: fc.boolean(), isResidual: fc.boolean() }), {
        minLength: 2,
        maxLength: 4,
      }),
    });
    let narrow = 0;
    fc.assert(
      fc.property(stacks, ({ rows, widths }) => {
        const [planned, replayed] = devices.map((device) => {
          manualSeed(3);
          let [before, parameters] = [16, [] as Tensor[]];
          const layers = widths.map(({ width: after, bias }) => {
            const layer = new nn.Linear(before, after, { bias }).to(device);
            before = after;
            parameters = [...parameters, ...layer.parameters()];
            return layer;
          });
          const optimizer = new optim.AdamW(parameters as nn.Parameter[], { lr: 0.01 });
          const step = device.compile((x: Tensor) => {
            let value = x;
            for (const [index, layer] of layers.entries()) {
              const activation = layer.forward(value).gelu("tanh");
              const isSame = String(activation.shape) === String(value.shape);
              value = widths[index]!.isResidual && isSame ? activation.add(value) : activation;
            }
            const loss = value.square().mean();
            loss.backward();
            optimizer.step();
            optimizer.zeroGrad();
            return loss;
          });
          const x = randn([rows, 16], { device });
          const losses = [0, 1].map(() => step(x).item());
          const calls = latestPlanOf(step)?.planned.schedule.calls.map(({ call }) => call) ?? [];
          narrow += resultsOf(calls, false).filter((dtype) => dtype === "bf16").length;
          const left = parameters.map((parameter) => parameter.dataSync() as Float32Array);
          step.close();
          return { losses, left };
        });
        assert.deepEqual(replayed!.losses, planned!.losses);
        for (const [index, weights] of planned!.left.entries())
          sameBytes(replayed!.left[index]!, weights, `weights ${index}`);
      }),
      { numRuns: effort({ quick: 1, thorough: 4 }), seed: 7 },
    );
    assert.ok(narrow > 0, "no GEMM stores bf16");
  });
});
