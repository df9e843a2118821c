/** Compiled steps with views: kernels write their results to slices of gradients, without copies and zeros in between. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { type Device, manualSeed, nn, randn, type Tensor } from "holdfast";
import type { Call } from "../src/compile/program/program.js";
import { openStrictDevice } from "./support/devices.js";
import { effort } from "./support/effort.js";
import { emulatorMissing } from "./support/emulator.js";
import { openEmulatorGpu } from "./support/emulator-gpu.js";
import { planAllSchedules, withNullGpu } from "./support/null-gpu.js";

const [batch, width, heads] = [2, 8, 2];

/** A GRU, unrolled by hand over all rows. */
class Gru extends nn.Module {
  readonly inputs = new nn.Linear(width, 3 * width);
  readonly hidden = new nn.Linear(width, 3 * width);

  forward(x: Tensor): Tensor {
    const gates = this.inputs.forward(x); // [B, T, 3 · D]
    let state = x.select(1, 0);
    for (let row = 0; row < x.shape[1]!; row++) {
      const [xr, xz, xn] = gates.select(1, row).chunk(3, -1) as [Tensor, Tensor, Tensor];
      const [hr, hz, hn] = this.hidden.forward(state).chunk(3, -1) as [Tensor, Tensor, Tensor];
      const [r, z] = [xr.add(hr).sigmoid(), xz.add(hz).sigmoid()];
      const candidate = xn.add(r.mul(hn)).tanh();
      state = candidate.add(z.mul(state.sub(candidate)));
    }
    return state;
  }
}

/** Causal attention as most GPTs are written: query, key and value are slices of one projection. */
class Attention extends nn.Module {
  readonly projection = new nn.Linear(width, 3 * width);

  forward(x: Tensor): Tensor {
    const [rows] = x.shape.slice(1);
    const packed = this.projection.forward(x).reshape([batch, rows!, 3, heads, width / heads]);
    const [q, k, v] = [0, 1, 2].map((index) => packed.select(2, index).transpose(1, 2));
    return nn.functional.scaledDotProductAttention(q!, k!, v!).transpose(1, 2).reshape(x.shape);
  }
}

const models = { Gru: () => new Gru(), Attention: () => new Attention() } as const;
type Model = nn.Module & { forward(x: Tensor): Tensor };

function lossOf(device: Device, make: () => Model, rows: number): { model: Model; loss: () => Tensor } {
  manualSeed(7);
  const model = make().to(device);
  const x = randn([batch, rows, width], { device });
  device.keep(x);
  return { model, loss: () => model.forward(x).square().mean() };
}

/** The planned calls of a step on a GPU, without those of the forward pass. */
function plannedCalls(make: () => Model, rows: number, precision: "f32" | "bf16"): readonly Call[] {
  return withNullGpu(precision, (device) => {
    const { loss } = lossOf(device, make, rows);
    const [planned] = planAllSchedules(device, () => loss().backward());
    return planned!.schedule.calls.map(({ call }) => call).filter(({ phase }) => phase === "backward");
  });
}

const isZeros = ({ work }: Call): boolean =>
  work.kind === "fill" || (work.kind === "row" && work.kernel.name === "fill");
/** Copies of views that no other kernel does. */
const isLoneCopy = ({ op }: Call): boolean => /^viewGradient( \+ viewGradient)*$/.test(op);

describe("a step that is planned for a GPU", () => {
  test("writes the gradients of a GRU's gates from the kernels that compute them", () => {
    const [three, five] = [3, 5].map((rows) => plannedCalls(models.Gru, rows, "f32")) as [Call[], Call[]];
    assert.equal(five.filter(isZeros).length, 0);
    // However many rows there are: only the copies of the first and the last row may stay.
    assert.equal(five.filter(isLoneCopy).length, three.filter(isLoneCopy).length);
    // Long lists of ops are cut.
    assert.equal(five.filter(({ op }) => op.includes("tanh")).length, 5);
  });

  for (const precision of ["f32", "bf16"] as const) {
    test(`writes the gradients of query, key and value to their slices of one gradient in ${precision}`, () => {
      const calls = plannedCalls(models.Attention, 4, precision);
      assert.deepEqual([calls.filter(isZeros), calls.filter(isLoneCopy)], [[], []]);
      const [attention] = calls.flatMap(({ work }) => (work.kind === "attention" ? work : []));
      const { queryGradient, keyGradient, valueGradient } = attention!.operands;
      const elementBytes = precision === "bf16" ? 2 : 4;
      assert.equal(keyGradient!.buffer, queryGradient!.buffer);
      assert.equal(keyGradient!.offset - queryGradient!.offset, width * elementBytes);
      assert.equal(valueGradient!.offset - keyGradient!.offset, width * elementBytes);
      assert.equal(attention!.layouts["keyGradient"]!.rowStride, 3 * width);
    });
  }
});

/** The bytes of all gradients after a step, and the loss. */
function train(device: Device, make: () => Model, isCompiled: boolean): readonly unknown[] {
  const { model, loss } = lossOf(device, make, 4);
  const step = (): Tensor => {
    const result = loss();
    result.backward();
    return result;
  };
  const run = isCompiled ? device.compile(step) : step;
  const losses = [run().item()];
  return [losses, ...model.parameters().map(({ grad }) => grad?.tolist())];
}

const devices = effort<readonly (readonly [string, () => Device])[]>({
  quick: [["the CPU", openStrictDevice]],
  thorough: [
    ["the CPU", openStrictDevice],
    ...(emulatorMissing ? [] : [["CUDA", () => openEmulatorGpu({ precision: "f32" })] as const]),
  ],
});

for (const [name, open] of devices) {
  describe(`on ${name}, a compiled step has the bits of the eager one:`, () => {
    const device = open();
    for (const [model, make] of Object.entries(models)) {
      test(model, () => {
        assert.deepEqual(
          train(device, make, true),
          device.step(() => train(device, make, false)),
        );
      });
    }
  });
}
