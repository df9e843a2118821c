/** Query, key and value of attention: written as three `Linear`, or as a `MultiheadAttention`, they need one GEMM in each direction. */

import assert from "node:assert/strict";
import { afterEach, describe, test } from "node:test";
import { type Device, manualSeed, nn, optim, randn, type Tensor } from "holdfast";
import { latestPlanOf } from "../src/tensor/compiled/compiled-step.js";
import { effort } from "./support/effort.js";
import { emulatorMissing, openEmulator } from "./support/emulator.js";
import { openEmulatorGpu } from "./support/emulator-gpu.js";

const skip = emulatorMissing;
const [batch, rows, width, heads] = [2, 4, 64, 2];
// A capture would run each new step twice more.
const capture = effort({ quick: "off", thorough: "on" } as const);

afterEach(() => {
  if (!skip) openEmulator().reset();
});

class ThreeLinears extends nn.Module {
  readonly q = new nn.Linear(width, width);
  readonly k = new nn.Linear(width, width);
  readonly v = new nn.Linear(width, width);
  readonly o = new nn.Linear(width, width);

  forward(x: Tensor): Tensor {
    const split = (y: Tensor): Tensor => y.unflatten(-1, [heads, width / heads]).transpose(1, 2);
    const [q, k, v] = [this.q, this.k, this.v].map((layer) => split(layer.forward(x)));
    const attended = nn.functional.scaledDotProductAttention(q!, k!, v!);
    return this.o.forward(attended.transpose(1, 2).flatten(-2));
  }
}

const layers = {
  "three Linear": () => new ThreeLinears(),
  MultiheadAttention: () => new nn.MultiheadAttention(width, heads),
} as const;

/** Two training steps of a linear layer and attention: the losses, and [m, n, k, batch] of the GEMMs that are not weight gradients. */
function train(device: Device, make: () => nn.Module & { forward(x: Tensor): Tensor }, isCompiled: boolean) {
  manualSeed(5);
  const model = new nn.Sequential(new nn.Linear(width, width), make()).to(device);
  const optimizer = new optim.AdamW(model.parameters(), { lr: 0.01 });
  const step = (x: Tensor): Tensor => {
    const loss = model.forward(x).square().mean();
    loss.backward();
    optimizer.step();
    optimizer.zeroGrad();
    return loss;
  };
  const compiled = isCompiled ? device.compile(step) : undefined;
  const x = randn([batch, rows, width], { device });
  const losses = [0, 1].map(() => (compiled ?? step)(x).item());
  const calls = (compiled && latestPlanOf(compiled)?.planned.schedule.calls) ?? [];
  const gemms = calls.flatMap(({ call: { work } }) => {
    if (work.kind !== "gemm" || work.problem.a.isTransposed) return [];
    const { m, n, k, batch: matrices = 1 } = work.problem;
    return [[m, n, k, matrices].join("×")];
  });
  return { losses, gemms };
}

const square = `${batch * rows}×${width}×${width}`;
const wide = `${batch * rows}×${3 * width}×${width}`;
const deep = `${batch * rows}×${width}×${3 * width}`;

/** The first layer, the projections, the output projection; then the gradients of the last two layers' inputs. */
const expected = {
  "three Linear": [`${square}×1`, `${square}×3`, `${square}×1`, `${square}×1`, `${square}×3`],
  MultiheadAttention: [`${square}×1`, `${wide}×1`, `${square}×1`, `${square}×1`, `${deep}×1`],
} as const;

type LayerName = keyof typeof layers;
const names: readonly LayerName[] = ["three Linear", "MultiheadAttention"];
const cases = effort<Readonly<Record<"tf32" | "bf16", readonly LayerName[]>>>({
  quick: { tf32: ["three Linear"], bf16: ["MultiheadAttention"] },
  thorough: { tf32: names, bf16: names },
});

for (const precision of ["tf32", "bf16"] as const) {
  describe(`the projections of attention in ${precision}`, { skip }, () => {
    const device = skip ? undefined! : openEmulatorGpu({ precision, multiprocessors: 1, capture });
    for (const name of cases[precision]) {
      test(`are one GEMM forward and one backward, written as ${name}; losses are close to eager ones`, () => {
        const eager = train(device, layers[name], false);
        const { losses, gemms } = train(device, layers[name], true);
        assert.deepEqual(gemms, expected[name]);
        for (const [index, loss] of losses.entries())
          assert.ok(
            Math.abs(loss - eager.losses[index]!) < 1e-2 * loss,
            `${loss} and ${eager.losses[index]}`,
          );
      });
    }
  });
}
