/** A captured step of eager code: it repeats the step bit for bit, owns its memory and frees it. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { type Device, manualSeed, nn, optim, randn, type Tensor } from "holdfast";
import type { Storage } from "holdfast/internals";
import { captureStep } from "../src/tensor/index.js";
import { KiB, MiB } from "../src/units/index.js";
import { openStrictDevice } from "./support/devices.js";
import { rejects } from "./support/rejects.js";
import { sameBytes } from "./support/same-bytes.js";

const device = openStrictDevice();

/** More than the step needs, with the workspace of the library's GEMMs. */
const memoryBytes = 64 * MiB;

class Model extends nn.Module {
  readonly layers = new nn.Sequential(new nn.Linear(5, 8), new nn.Linear(8, 3));

  /** Dropout reads a counter in memory: a replay with a frozen counter would repeat one mask. */
  forward(x: Tensor): Tensor {
    return this.layers
      .forward(nn.functional.dropout(x, 0.5, this.isTraining))
      .square()
      .mean();
  }
}

/** A model and its whole training step; nothing is read back. */
function prepareStep(on: Device): { readonly step: () => void; readonly states: readonly Storage[] } {
  manualSeed(7);
  const model = new Model().to(on);
  const optimizer = new optim.AdamW(model.parameters(), { lr: 0.01 });
  const x = randn([4, 5], { device: on });
  const step = (): void => {
    optimizer.zeroGrad();
    model.forward(x).backward();
    optimizer.step();
  };
  const tensors = [...model.parameters(), ...Object.values(optimizer.stateDict()), on.randomState];
  return { step, states: tensors.flatMap(({ array }) => array.storage ?? []) };
}

test("replays of a captured step equal eager steps bit for bit", () => {
  const { step, states } = prepareStep(device);
  const read = (): Uint8Array<ArrayBuffer>[] => states.map((storage) => device.runtime.read(storage));
  const start = read();
  for (let count = 0; count < 5; count++) device.step(step);
  const eager = read();
  device.runtime.upload(states.flatMap((target, index) => ({ target, source: start[index]! })));
  const graph = captureStep(device, "step", memoryBytes, step);
  assert.equal(graph.mode, "graph");
  assert.ok(graph.nodes && graph.nodes.kernel > 10);
  for (const [index, actual] of read().entries())
    sameBytes(actual, start[index]!, "the state after the capture");
  for (let count = 0; count < 5; count++) graph.replay();
  for (const [index, actual] of read().entries()) sameBytes(actual, eager[index]!, states[index]!.label);
  graph.close();
});

test("a captured step holds its memory until it is closed, and closing twice is harmless", () => {
  const { step } = prepareStep(device);
  const before = device.runtime.arena.figures.live;
  const graph = captureStep(device, "step", memoryBytes, step);
  assert.equal(device.runtime.arena.figures.live - before, memoryBytes);
  graph.close();
  graph.close();
  assert.equal(device.runtime.arena.figures.live, before);
});

test("a rejected capture keeps no memory and lets the step run eagerly", () => {
  const strictly = openStrictDevice({ capture: "on" });
  const { step } = prepareStep(strictly);
  const before = strictly.runtime.arena.figures.live;
  const looking = (): void => {
    step();
    strictly.randomState.dataSync();
  };
  rejects("CAPTURE_REJECTED", () => captureStep(strictly, "step", memoryBytes, looking), /Read-back of 16 B/);
  assert.equal(strictly.runtime.arena.figures.live, before);
  strictly.step(step);
});

test("a step that needs more memory than its limit is rejected, with the figures", () => {
  const { step } = prepareStep(device);
  const before = device.runtime.arena.figures.live;
  rejects("ARENA_FULL", () => captureStep(device, "step", KiB, step), /1 KiB/);
  assert.equal(device.runtime.arena.figures.live, before);
});
