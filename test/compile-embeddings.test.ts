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
  readonly tables: nn.ModuleList<nn.Embedding>;
  readonly head = new nn.Linear(sizes.length * width, 4);

  constructor(options: nn.EmbeddingOptions = {}) {
    super();
    this.tables = new nn.ModuleList(
      sizes.map((rows, table) => {
        const isLast = table === sizes.length - 1;
        return new nn.Embedding(rows, width, isLast ? { ...options, paddingIdx: firstRow(table) } : options);
      }),
    );
  }

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

function train(device: Device, mode: "eager" | "compiled", passes = {}, options: nn.EmbeddingOptions = {}) {
  manualSeed(3);
  const model = new Recommender(options).to(device);
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

  for (const precision of ["f32", "bf16"] as const) {
    test(`scales the rows that it looks up down to a maximum norm, with the eager step's bits: ${precision}`, () => {
      const device = openEmulatorGpu({ precision, multiprocessors: 1 });
      const run = (mode: "eager" | "compiled") => train(device, mode, {}, { maxNorm: 2, normType: 1 });
      const [eager, compiled, free] = [run("eager"), run("compiled"), train(device, "eager")];
      assert.match(compiled.explanation, /renormRows/);
      assert.deepEqual(compiled.losses, eager.losses);
      assert.deepEqual(compiled.weights, eager.weights);
      assert.ok(eager.losses[0]! < free.losses[0]! / 4, "shorter rows have a smaller loss");
    });
  }

  for (const precision of ["f32", "bf16"] as const) {
    test(`has one launch of scatters for tables of all sizes, in ${precision}: looked up twice, or tied to the head`, () => {
      const device = openEmulatorGpu({ precision, capture: "off", multiprocessors: 16 });
      const [eager, compiled] = [trainMixed(device, "eager"), trainMixed(device, "compiled")];
      const scatters = callsOf(compiled.explanation).filter((line) => line.includes("scatterAdd"));
      // In bf16 the second lookup of a table and the tied one add to a gradient that other calls write.
      const launches = precision === "f32" ? [6] : [4, 2];
      assert.deepEqual(
        scatters.map((line) => Number(/(\d+) × scatterAdd/.exec(line)?.[1] ?? 1)),
        launches,
        compiled.explanation,
      );
      if (precision === "f32") assert.deepEqual(compiled.weights, eager.weights);
      else assertClose(compiled.weights, eager.weights);
    });
  }
});

/** Tables of one hot row, some rows and many rows; the second one is looked up twice, and the last one is the head's weight. */
class Mixed extends nn.Module {
  readonly tables = new nn.ModuleList([5, 60, 3000, 9].map((rows) => new nn.Embedding(rows, 8)));
  readonly tied = new nn.Embedding(40, 16);
  readonly up = new nn.Linear(8, 16);

  /** ids: [batch, 6] */
  forward(ids: Tensor): Tensor {
    const [first, second, third, fourth] = [...this.tables];
    const looked = [first, second, third, fourth, second].map((table, column) =>
      table!.forward(ids.select(1, column)),
    );
    const sum = looked.reduce((total, rows) => total.add(rows));
    const hidden = this.up.forward(sum.square()).add(this.tied.forward(ids.select(1, 5)));
    return hidden.matmul(this.tied.weight.transpose(0, 1));
  }
}

function trainMixed(device: Device, mode: "eager" | "compiled") {
  manualSeed(5);
  const model = new Mixed().to(device);
  const parameters = model.parameters();
  const optimizer = new optim.SGD(parameters, { lr: 1e-3 });
  const rows = [5, 60, 3000, 9, 60, 40];
  const values = Int32Array.from({ length: 300 * 6 }, (_, place) =>
    place % 6 === 0 ? 3 : (place * place * 11) % rows[place % 6]!,
  );
  const ids = device.keep(tensor(values, { device }).reshape([300, 6]));
  const body = (): void => {
    model.forward(ids).square().mean().backward();
    optimizer.step();
    optimizer.zeroGrad();
  };
  const compiled = device.compile(body);
  for (let step = 0; step < 2; step++) device.step(() => (mode === "compiled" ? compiled() : body()));
  const weights = parameters.map((parameter) => [...parameter.dataSync()].join());
  const explanation = mode === "compiled" ? compiled.explain() : "";
  compiled.close();
  return { weights, explanation };
}

function assertClose(actual: readonly string[], expected: readonly string[]): void {
  for (const [index, text] of actual.entries()) {
    const [a, b] = [text, expected[index]!].map((list) => list.split(",").map(Number));
    for (const [place, value] of a!.entries())
      assert.ok(
        Math.abs(value - b![place]!) < 5e-3 * Math.max(1, Math.abs(value)),
        `${index} ${place}: ${value} instead of ${b![place]}`,
      );
  }
}
