/**
 * An optimizer's state is exact: after saving it to bytes and loading it into a fresh optimizer, training
 * continues bit for bit.
 */

import assert from "node:assert/strict";
import { test } from "node:test";
import {
  type Device,
  fromTyped,
  optim,
  readSafetensors,
  type StoredTensor,
  type Tensor,
  viewElements,
  writeSafetensors,
} from "holdfast";
import { openStrictDevice } from "./support/devices.js";
import { placeParameters, setGradient } from "./support/parameter-module.js";
import { rejects } from "./support/rejects.js";
import { sameBytes } from "./support/same-bytes.js";

const cpu = openStrictDevice();

const shapes = [[3, 5], [7], [1], [2, 130]];
const numbers = (seed: number, length: number): number[] =>
  Array.from({ length }, (_, index) => Math.sin(seed * 37.1 + index * 1.7));
const firstValues = shapes.map((shape, index) =>
  numbers(
    index,
    shape.reduce((a, b) => a * b, 1),
  ),
);

/** Gradients that depend only on the step; in every third step the second parameter has none. */
function trainSteps(
  parameters: readonly Tensor[],
  optimizer: optim.Optimizer,
  from: number,
  to: number,
): void {
  const schedule = new optim.CosineSchedule(optimizer, { tMax: 10 });
  schedule.loadStateDict({ steps: from, baseLrs: optimizer.groups.map(() => 0.05) });
  for (let step = from; step < to; step++) {
    optimizer.zeroGrad();
    for (const [index, parameter] of parameters.entries()) {
      if (index === 1 && step % 3 === 0) continue;
      setGradient(cpu, parameter, numbers(100 + step * 10 + index, parameter.numel));
    }
    optimizer.step();
    schedule.step();
  }
}

/** Through the bytes of a file and back: as loaded, or copied into new tensors. */
function throughFile(
  target: Device,
  state: Readonly<Record<string, Tensor>>,
  asTensors: boolean,
): Record<string, Tensor | StoredTensor> {
  const stored = Object.entries(state).map(([name, { shape, dtype, array }]) => ({
    name,
    dtype,
    shape,
    bytes: array.storage ? target.runtime.read(array.storage) : new Uint8Array(0),
  }));
  const { tensors } = readSafetensors(writeSafetensors(stored));
  if (!asTensors) return Object.fromEntries(tensors);
  return Object.fromEntries(
    [...tensors.values()].map(({ name, dtype, shape, bytes }) => {
      const values = viewElements(dtype as "f32", bytes.slice());
      return [name, fromTyped(values, shape, { dtype, device: target })];
    }),
  );
}

const makers: Readonly<Record<string, (parameters: readonly Tensor[]) => optim.Optimizer>> = {
  "SGD with momentum": (parameters) => new optim.SGD(parameters, { lr: 0.05, momentum: 0.9, dampening: 0.3 }),
  Adam: (parameters) => new optim.Adam(parameters, { lr: 0.05, weightDecay: 0.1 }),
  AdamW: ([a, b, ...rest]) =>
    new optim.AdamW([{ params: [a!, b!] }, { params: rest, weightDecay: 0.2 }], { lr: 0.05 }),
  SparseAdam: (parameters) => new optim.SparseAdam(parameters, { lr: 0.05 }),
  "NAdam, which carries a product": (parameters) => new optim.NAdam(parameters, { lr: 0.05 }),
  "Rprop, whose first step differs": (parameters) => new optim.Rprop(parameters, { lr: 0.05 }),
};

for (const [name, make] of Object.entries(makers)) {
  for (const [dtype, asTensors] of [
    ["f32", false],
    ["f32", true],
    ["f64", false],
    ["bf16", false],
    ["bf16", true],
  ] as const) {
    test(`${name} in ${dtype}${asTensors ? " by tensors" : ""}: three steps, a file, a fresh optimizer and three more equal six steps, bit for bit`, () => {
      const straight = placeParameters(cpu, dtype, shapes, firstValues);
      trainSteps(straight, make(straight), 0, 6);

      const first = placeParameters(cpu, dtype, shapes, firstValues);
      const optimizer = make(first);
      trainSteps(first, optimizer, 0, 3);
      const saved = throughFile(cpu, optimizer.stateDict(), asTensors);
      const second = placeParameters(
        cpu,
        dtype,
        shapes,
        first.map((parameter) => parameter.dataSync()),
      );
      const resumed = make(second);
      resumed.lr = 7;
      resumed.loadStateDict(saved);
      assert.equal(resumed.lr, optimizer.lr);
      trainSteps(second, resumed, 3, 6);
      for (const [index, parameter] of second.entries()) {
        sameBytes(parameter.dataSync(), straight[index]!.dataSync(), `parameter ${index}`);
      }
    });
  }
}

test("stored elements whose size does not match their shape are rejected", () => {
  const [parameter] = placeParameters(cpu, "f32", [[2]], [[1, 2]]);
  const optimizer = new optim.Adam([parameter!]);
  const state = throughFile(cpu, optimizer.stateDict(), false);
  const short = { dtype: "f32" as const, shape: [2], bytes: new Uint8Array(4) };
  rejects(
    "BAD_STATE",
    () => optimizer.loadStateDict({ ...state, "0.firstMoment": short }),
    /0\.firstMoment has 4 bytes in the state where f32 \[2\] takes 8/,
  );
});
