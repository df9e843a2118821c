/** Muon against its formulas in f64: matrices by Newton–Schulz, everything else by AdamW, eager and compiled. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { openStrictDevice } from "../../test/support/devices.js";
import { placeParameters } from "../../test/support/parameter-module.js";
import { rejects } from "../../test/support/rejects.js";
import { type Tensor, tensor } from "../tensor/index.js";
import { AdamW, Muon, type MuonOptions } from "./index.js";

const cpu = openStrictDevice();
type Matrix = number[][];

const multiply = (a: Matrix, b: Matrix): Matrix =>
  a.map((row) => b[0]!.map((_, column) => row.reduce((sum, value, k) => sum + value * b[k]![column]!, 0)));
const transpose = (a: Matrix): Matrix => a[0]!.map((_, column) => a.map((row) => row[column]!));
const combine = (a: Matrix, x: number, b: Matrix, y: number): Matrix =>
  a.map((row, i) => row.map((value, j) => value * x + b[i]![j]! * y));

/** The odd polynomial of the singular values, five times. */
function orthogonalize(matrix: Matrix): Matrix {
  const isTall = matrix.length > matrix[0]!.length;
  const norm = Math.sqrt(matrix.flat().reduce((sum, value) => sum + value ** 2, 0));
  let x = combine(isTall ? transpose(matrix) : matrix, 1 / norm, isTall ? transpose(matrix) : matrix, 0);
  for (let step = 0; step < 5; step++) {
    const gram = multiply(x, transpose(x));
    x = combine(x, 3.4445, multiply(combine(gram, -4.775, multiply(gram, gram), 2.0315), x), 1);
  }
  return isTall ? transpose(x) : x;
}

const shapes = [[3, 5], [6, 2], [4], [2, 2, 2]];
const initial = shapes.map((shape, index) =>
  Array.from({ length: shape.reduce((a, b) => a * b, 1) }, (_, element) =>
    Math.sin(index * 9 + element * 1.7),
  ),
);

const cases: Readonly<Record<string, MuonOptions>> = {
  defaults: {},
  "without nesterov, with AdamW's scale": {
    ...{ nesterov: false, momentum: 0.8, lr: 0.05, weightDecay: 0.3, adjustLrFn: "match_rms_adamw" },
    adamw: { lr: 0.02, betas: [0.8, 0.9], weightDecay: 0.1 },
  },
};

/** Four steps with gradients 2p, by tensors. */
function train(options: MuonOptions, dtype: "f64" | "f32" | "bf16", isCompiled: boolean) {
  const parameters = placeParameters(cpu, dtype, shapes, initial);
  const optimizer = new Muon(parameters, options);
  const body = (): void => {
    optimizer.zeroGrad();
    for (const parameter of parameters) parameter.square().sum().backward();
    optimizer.step();
  };
  const step = isCompiled ? cpu.compile(body, { passes: { autotune: false } }) : body;
  for (let times = 0; times < 4; times++) step();
  return { parameters, optimizer };
}

for (const [name, options] of Object.entries(cases)) {
  test(`matrices have the values of the formulas in f64: ${name}`, () => {
    const {
      lr = 1e-3,
      weightDecay = 0.1,
      momentum = 0.95,
      nesterov = true,
      adjustLrFn = "original",
    } = options;
    const { parameters } = train(options, "f64", false);
    for (const index of [0, 1]) {
      const [rows, columns] = shapes[index]! as [number, number];
      let p: Matrix = Array.from({ length: rows }, (_, row) =>
        initial[index]!.slice(row * columns, (row + 1) * columns),
      );
      let buffer: Matrix = combine(p, 0, p, 0);
      const factor =
        adjustLrFn === "original"
          ? Math.sqrt(Math.max(1, rows / columns))
          : 0.2 * Math.sqrt(Math.max(rows, columns));
      for (let step = 0; step < 4; step++) {
        const gradient = combine(p, 2, p, 0);
        buffer = combine(buffer, momentum, gradient, 1 - momentum);
        const update = nesterov ? combine(gradient, 1 - momentum, buffer, momentum) : buffer;
        p = combine(p, 1 - lr * weightDecay, orthogonalize(update), -lr * factor);
      }
      for (const [element, value] of parameters[index]!.dataSync().entries())
        assert.ok(Math.abs(value - p.flat()[element]!) <= 1e-12, `${value}, ${p.flat()[element]}`);
    }
  });

  test(`other parameters have AdamW's values: ${name}`, () => {
    const { parameters } = train(options, "f64", false);
    const others = placeParameters(cpu, "f64", shapes.slice(2), initial.slice(2));
    const adamw = new AdamW(others, { lr: options.lr ?? 1e-3, ...options.adamw });
    for (let times = 0; times < 4; times++) {
      adamw.zeroGrad();
      for (const parameter of others) parameter.square().sum().backward();
      adamw.step();
    }
    for (const [index, parameter] of others.entries())
      assert.deepEqual(parameters[index + 2]!.dataSync(), parameter.dataSync());
  });
}

for (const dtype of ["f32", "bf16"] as const) {
  test(`compiled steps of ${dtype} are close to eager ones, and their state continues`, () => {
    const options = { lr: 0.05 };
    const [eager, compiled] = [train(options, dtype, false), train(options, dtype, true)];
    const tolerance = dtype === "f32" ? 1e-5 : 0.02;
    for (const [index, parameter] of eager.parameters.entries()) {
      const values = compiled.parameters[index]!.dataSync();
      for (const [element, value] of parameter.dataSync().entries())
        assert.ok(Math.abs(value - values[element]!) <= tolerance, `${value}, ${values[element]}`);
    }
    const state = compiled.optimizer.stateDict();
    assert.equal(state["0.step"]!.item(), 4);
    assert.deepEqual(
      Object.keys(state).filter((key) => key.includes(".momentum")),
      ["0.momentum", "1.momentum"],
    );
  });
}

test("eager steps outside a step of the device leave no memory behind", () => {
  const w = tensor(
    [
      [1, 2],
      [3, 5],
    ],
    { device: cpu, requiresGrad: true },
  );
  const optimizer = new Muon([w]);
  const step = (): void => {
    optimizer.zeroGrad();
    cpu.step(() => w.square().sum().backward());
    optimizer.step();
  };
  step();
  const { live } = cpu.runtime.arena.figures;
  step();
  assert.equal(cpu.runtime.arena.figures.live, live);
});

test("groups are split into matrices and others, also later; options are checked", () => {
  const [a, b, c] = [[2, 2], [3, 2], [5]].map((shape) =>
    placeParameters(cpu, "f32", [shape], [Array(shape.reduce((x, y) => x * y, 1)).fill(1)]),
  ) as unknown as [Tensor[], Tensor[], Tensor[]];
  const optimizer = new Muon([{ params: a, lr: 0.1 }], { adamw: { lr: 0.01 } });
  optimizer.addParamGroup({ params: [...b, ...c] });
  optimizer.addParamGroup({ params: placeParameters(cpu, "f32", [[1, 1]], [[1]]), useMuon: false });
  assert.deepEqual(
    optimizer.groups.map(({ rule, lr }) => [rule.name, lr]),
    [
      ["Muon", 0.1],
      ["Muon", 1e-3],
      ["AdamW", 0.01],
      ["AdamW", 0.01],
    ],
  );
  rejects("BAD_ARGUMENT", () => new Muon(a, { momentum: 1 }), /momentum is 1/);
  rejects("BAD_ARGUMENT", () => new Muon(a, { adjustLrFn: "x" as "original" }), /adjustLrFn is x/);
});
