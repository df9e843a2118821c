/** Compiled steps of models with large embedding tables: few launches, and the eager step's bits. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { cat, type Device, manualSeed, nn, optim, type Tensor, tensor } from "holdfast";
import { emulatorMissing } from "./support/emulator.js";
import { openEmulatorGpu } from "./support/emulator-gpu.js";

const skip = emulatorMissing;
const batch = 24;
const width = 36;
/** Rows of each table. The memory of a table is padded. */
const sizes = [301, 1201, 700];
/** The first rows that are picked. */
const firstRow = (table: number): number => table * 141;

/** Rows of several tables, concatenated, and a linear layer. The last table has a row without gradient. */
class Recommender extends nn.Module {
  readonly tables = new nn.ModuleList(
    sizes.map((rows, table) => {
      const isLast = table === sizes.length - 1;
      return new nn.Embedding(rows, width, isLast ? { paddingIdx: firstRow(table) } : {});
    }),
  );
  readonly head = new nn.Linear(sizes.length * width, 4);

  /** ids: [batch, tables] */
  forward(ids: Tensor): Tensor {
    const rows = [...this.tables].map((table, index) => table.forward(ids.select(1, index)));
    return this.head.forward(cat(rows, 1));
  }
}

/** Some of the rows are picked more than once, and in other tables other rows. */
function idsOf(device: Device, step: number): Tensor {
  const values = Int32Array.from(
    { length: batch * sizes.length },
    (_, index) => ((index * index * 7 + 5 * step) % 17) + firstRow(index % sizes.length),
  );
  return device.keep(tensor(values, { device }).reshape([batch, sizes.length]));
}

function train(device: Device, mode: "eager" | "compiled", passes = {}) {
  manualSeed(3);
  const model = new Recommender().to(device);
  const parameters = model.parameters();
  const optimizer = new optim.AdamW(parameters, { lr: 0.01 });
  const body = (ids: Tensor): Tensor => {
    const loss = model.forward(ids).square().mean();
    loss.backward();
    optim.clipGradNorm(parameters, 0.5, { errorIfNonfinite: false });
    optimizer.step();
    optimizer.zeroGrad();
    return loss;
  };
  const compiled = device.compile(body, { passes });
  const step = mode === "compiled" ? compiled : body;
  const losses = [0, 1].map((index) => {
    const ids = idsOf(device, index);
    return device.step(() => step(ids).item());
  });
  const weights = parameters.map((parameter) => [...parameter.dataSync()].join());
  const text = mode === "compiled" ? compiled.explain() : "";
  compiled.close();
  return { losses, weights, explanation: text };
}

const callsOf = (text: string): string[] => text.split("\n").filter((line) => /^ +\d+ {2}/.test(line));

describe("a compiled step on a GPU with embeddings", { skip }, () => {
  for (const precision of ["f32", "bf16"] as const) {
    test(`gathers the rows of all tables in one launch, with the eager step's bits: ${precision}`, () => {
      const device = openEmulatorGpu({ precision, capture: "off", multiprocessors: 16 });
      const [eager, compiled] = [train(device, "eager"), train(device, "compiled")];
      const gathers = callsOf(compiled.explanation).filter((line) => line.includes("indexed copy"));
      assert.equal(gathers.length, 1, compiled.explanation);
      assert.deepEqual(compiled.losses, eager.losses);
      assert.deepEqual(compiled.weights, eager.weights);
    });
  }

  test("keeps the gradients of its tables as compact rows, with the eager step's bits", () => {
    // With one multiprocessor, even these tables take longer to read than some launches.
    const device = openEmulatorGpu({ multiprocessors: 1 });
    const [eager, compiled] = [train(device, "eager"), train(device, "compiled")];
    assert.match(compiled.explanation, /row map .*\n.*AdamW of compact ro/s);
    assert.deepEqual(compiled.losses, eager.losses);
    assert.deepEqual(compiled.weights, eager.weights);
    const whole = train(device, "compiled", { compactGradients: false });
    assert.doesNotMatch(whole.explanation, /row map/);
    assert.deepEqual(whole.weights, eager.weights);
  });
});
