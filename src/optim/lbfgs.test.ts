/** LBFGS against PyTorch; exact resume, half floats, and wrong uses. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { openStrictDevice } from "../../test/support/devices.js";
import { placeParameters } from "../../test/support/parameter-module.js";
import { rejects } from "../../test/support/rejects.js";
import { readRepositoryFile } from "../../test/support/repository.js";
import { cat, type Tensor, tensor } from "../tensor/index.js";
import { LBFGS, type LBFGSOptions } from "./index.js";

interface Case {
  readonly name: string;
  readonly options: Readonly<Record<string, unknown>>;
  readonly shapes: readonly (readonly number[])[];
  readonly initial: readonly (readonly number[])[];
  readonly steps: readonly { readonly loss: number; readonly parameters: readonly (readonly number[])[] }[];
}

const { lbfgs: cases } = JSON.parse(readRepositoryFile("test/oracle/optimizers.json")) as {
  lbfgs: readonly Case[];
};
const cpu = openStrictDevice();

function optionsOf({ options }: Case): LBFGSOptions {
  const rename = (name: string): string =>
    name.replace(/_(\w)/g, (_, letter: string) => letter.toUpperCase());
  return Object.fromEntries(Object.entries(options).map(([name, value]) => [rename(name), value]));
}

/** The oracle's quartic. */
function closureOf(parameters: readonly Tensor[], optimizer: LBFGS): () => Tensor {
  return () => {
    optimizer.zeroGrad();
    const x = cat(
      parameters.map((parameter) => parameter.reshape([-1])),
      0,
    );
    const changes = x.slice([1, null]).sub(x.slice([null, -1]).square());
    const loss = changes.square().sum().add(x.sub(1).square().sum());
    loss.backward();
    return loss;
  };
}

for (const oracleCase of cases) {
  test(`five steps are PyTorch's: ${oracleCase.name}; also from a saved state after two`, () => {
    let parameters: readonly Tensor[] = placeParameters(
      cpu,
      "f64",
      oracleCase.shapes,
      oracleCase.initial as number[][],
    );
    let optimizer = new LBFGS(parameters, optionsOf(oracleCase));
    for (const [step, { loss, parameters: expected }] of oracleCase.steps.entries()) {
      if (step === 2) {
        const state = optimizer.stateDict();
        parameters = placeParameters(
          cpu,
          "f64",
          oracleCase.shapes,
          parameters.map((parameter) => [...parameter.dataSync()]),
        );
        const resumed = new LBFGS(parameters, optionsOf(oracleCase));
        resumed.loadStateDict(state);
        optimizer.release();
        optimizer = resumed;
      }
      const found = optimizer.step(closureOf(parameters, optimizer));
      assert.ok(Math.abs(found - loss) <= 1e-10 * Math.max(1, loss), `loss ${found}, PyTorch has ${loss}`);
      for (const [index, parameter] of parameters.entries()) {
        for (const [element, value] of parameter.dataSync().entries())
          assert.ok(Math.abs(value - expected[index]![element]!) <= 1e-8, `step ${step}, ${value}`);
      }
    }
  });
}

test("half floats converge to their precision, inside a step of the device too, and memory does not grow", () => {
  const parameters = placeParameters(cpu, "bf16", [[2], [1]], [[3, -2], [0.5]]);
  const optimizer = new LBFGS(parameters, { lineSearchFn: "strong_wolfe" });
  const closure = (): Tensor => {
    optimizer.zeroGrad();
    const losses = parameters.map((parameter) => parameter.to("f32").sub(2).square().sum());
    const loss = losses.reduce((sum, one) => sum.add(one));
    loss.backward();
    return loss;
  };
  optimizer.step(closure);
  const { live } = cpu.runtime.arena.figures;
  optimizer.step(closure);
  assert.equal(cpu.runtime.arena.figures.live, live);
  cpu.step(() => optimizer.step(closure));
  for (const parameter of parameters)
    for (const value of parameter.dataSync()) assert.ok(Math.abs(value - 2) < 0.02, `${value}`);
});

test("wrong uses are errors: no closure, a compiled step, invalid options, a state that does not fit", () => {
  const w = tensor([1, 2], { device: cpu, requiresGrad: true });
  const optimizer = new LBFGS([w]);
  rejects("BAD_ARGUMENT", () => optimizer.step(), /needs a closure/);
  assert.throws(
    cpu.compile(() => void optimizer.step(closureOf([w], optimizer))),
    /outside compiled steps/,
  );
  rejects("BAD_ARGUMENT", () => new LBFGS([w], { historySize: 0 }), /historySize is 0/);
  rejects("BAD_ARGUMENT", () => new LBFGS([w], { lineSearchFn: "other" as "strong_wolfe" }), /strong_wolfe/);
  const { "lbfgs.direction": _, ...state } = optimizer.stateDict();
  rejects("BAD_STATE", () => optimizer.loadStateDict(state), /lbfgs.direction is missing/);
});
