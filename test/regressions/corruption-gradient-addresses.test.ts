/** Row C2, with tensors and an optimizer: p, g, m and v stay at their addresses, and micro-batches equal one batch. */

import assert from "node:assert/strict";
import { type Device, fromTyped, nn, optim } from "holdfast";
import { GradientHooks } from "../../src/autograd/index.js";
import { submit } from "../../src/kernels/index.js";
import { add, allocateArray, copyCalls, type DeviceArray, runOp } from "../../src/ops/index.js";
import type { GradientHolder } from "../../src/tensor/index.js";
import { withDevice } from "../support/devices.js";
import { regressionRow } from "../support/regressions.js";
import { sameBytes } from "../support/same-bytes.js";

class Linear extends nn.Module {
  readonly weight = new nn.Parameter([3, 5], () =>
    Array.from({ length: 15 }, (_, index) => (index % 4) - 1.5),
  );
  readonly bias = new nn.Parameter([5], () => [0, 1, 2, 3, 4]);
}

type Prepare = (cpu: Device, model: Linear) => void;

/** The old way: every accumulation creates a new array in the arena, and that becomes the gradient. */
const rehomed: Prepare = (cpu, model) => {
  for (const parameter of model.parameters()) {
    let gradient: DeviceArray | undefined;
    const holder: GradientHolder = {
      get gradient() {
        return gradient;
      },
      accumulate(arrived) {
        if (gradient) [gradient] = runOp(cpu.runtime, add, [gradient, arrived], {});
        else {
          gradient = allocateArray(cpu.runtime, arrived.shape, arrived.dtype, "gradient");
          submit(cpu.runtime, copyCalls(arrived, gradient));
        }
      },
      accumulateView: () => assert.fail("no gradient here is a part of another"),
      accumulateRecorded: () => assert.fail("no gradient here has a graph"),
      source: undefined,
      hooks: new GradientHooks(),
      takeDestination: () => undefined,
      clear: () => {
        gradient = undefined;
      },
      release: () => undefined,
    };
    parameter.value.leaf = holder;
    Object.defineProperty(parameter, "gradientHolder", { value: holder });
  }
};

/** The addresses that must stay: of parameters, existing gradients and moments. */
function addresses(model: Linear, optimizer: optim.Optimizer): number[] {
  const gradients = model.parameters().map(({ gradientHolder }) => gradientHolder?.gradient);
  const arrays = [...model.parameters(), ...Object.values(optimizer.stateDict())].map(({ array }) => array);
  return [...arrays, ...gradients].map((array) => array?.storage?.span.address ?? 0);
}

/** Small integers: their sums are exact in any order. */
const samples = (step: number): Float32Array =>
  Float32Array.from({ length: 8 * 3 }, (_, index) => ((index * 7 + step * 5) % 11) - 5); // [8, 3]

/** Trains for 25 steps of eight samples, accumulated in some micro-batches. */
function train(prepare: Prepare, microBatches: number): readonly Float32Array[] {
  return withDevice({ memory: "64MiB", poison: true }, (cpu) => {
    const model = new Linear().to(cpu);
    prepare(cpu, model);
    const optimizer = new optim.AdamW(model.parameters(), { lr: 0.05 });
    let lastAddresses: number[] | undefined;
    for (let step = 0; step < 25; step++) {
      cpu.step(() => {
        optimizer.zeroGrad();
        const rows = 8 / microBatches;
        for (let microBatch = 0; microBatch < microBatches; microBatch++) {
          const x = fromTyped(
            samples(step).subarray(microBatch * rows * 3, (microBatch + 1) * rows * 3),
            [rows, 3],
            {
              device: cpu,
            },
          );
          x.matmul(model.weight).add(model.bias).sum().backward();
          lastAddresses ??= addresses(model, optimizer);
          assert.deepEqual(
            addresses(model, optimizer),
            lastAddresses,
            `step ${step + 1}, micro-batch ${microBatch + 1}`,
          );
        }
        optim.clipGradNorm(model.parameters(), 1e6);
        optimizer.step();
        assert.deepEqual(addresses(model, optimizer), lastAddresses, `after step ${step + 1}`);
      });
    }
    return model.parameters().map((parameter) => Float32Array.from(parameter.dataSync()));
  });
}

regressionRow<Prepare>({
  row: "C2",
  rule: "over 25 steps of AdamW p, g, m and v stay at their addresses, and two or four micro-batches equal one batch",
  sound: () => {},
  faults: { "accumulating moves the gradient into the arena": rehomed },
  check(prepare) {
    const oneBatch = train(prepare, 1);
    assert.notEqual(oneBatch[1]![0], 0, "the run has trained something");
    for (const microBatches of [2, 4]) {
      const actual = train(prepare, microBatches);
      for (const [index, values] of actual.entries()) {
        sameBytes(values, oneBatch[index]!, `${microBatches} micro-batches, parameter ${index}`);
      }
    }
  },
});
