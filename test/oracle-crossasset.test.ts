/**
 * CrossAsset compared with PyTorch: ten steps of AdamW with clipping, from the same weights over the same
 * batches.
 */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import {
  crossasset,
  type Device,
  nn,
  optim,
  readSafetensors,
  type StoredTensor,
  type Tensor,
  viewElements,
} from "holdfast";
import { openDevice } from "./support/devices.js";
import type { Trajectory } from "./support/oracle-records.js";
import { repositoryRoot } from "./support/repository.js";
import { isNear, tolerances } from "./tolerances.js";

const oracle = join(repositoryRoot, "test/oracle");
const { trajectories } = JSON.parse(readFileSync(join(oracle, "crossasset.json"), "utf8")) as {
  trajectories: readonly Trajectory[];
};
const { tensors } = readSafetensors(readFileSync(join(oracle, "crossasset.safetensors")));

function stored(name: string): StoredTensor {
  const tensor = tensors.get(name);
  assert.ok(tensor, `the oracle has no ${name}`);
  return tensor;
}

const valuesOf = (name: string): ArrayLike<number> => {
  const { dtype, bytes } = stored(name);
  return viewElements(dtype, bytes) as ArrayLike<number>;
};

function load(device: Device, name: string, dtype: "f32" | "f64" | "i32"): Tensor {
  return device.fromHost(valuesOf(name), stored(name).shape, dtype, name);
}

/** Checks every element against the trajectories' tolerance. */
function requireNear(
  actual: ArrayLike<number>,
  expected: ArrayLike<number>,
  dtype: "f32" | "f64",
  what: string,
): void {
  assert.equal(actual.length, expected.length, what);
  for (let index = 0; index < expected.length; index++) {
    const [value, target] = [actual[index] ?? Number.NaN, expected[index] ?? Number.NaN];
    if (isNear(value, target, tolerances.trajectory[dtype])) continue;
    assert.fail(`${what}[${index}] is ${value}, PyTorch's is ${target}`);
  }
}

for (const trajectory of trajectories) {
  for (const dtype of ["f32", "f64"] as const) {
    test(`${trajectory.name} in ${dtype}: gradients, losses, norms and final weights are PyTorch's`, () => {
      const { name, config, lr, betas, eps, weight_decay: weightDecay, clip, steps } = trajectory;
      const device = openDevice();
      const { S: sources, F: features, D: width, H: heads, L: layers, qkNorm } = config;
      const model = new crossasset.CrossAsset({ sources, features, width, heads, layers, qkNorm }).to(
        device,
        dtype,
      );
      const parameters = [...model.namedParameters()];
      for (const [path, parameter] of parameters) device.write(parameter, valuesOf(`${name}.init.${path}`));
      const optimizer = new optim.AdamW(model.parameters(), { lr, betas, eps, weightDecay });
      for (let step = 0; step < steps; step++) {
        device.step(() => {
          const x = load(device, `${name}.x${step}`, dtype); // [B, S, F]
          const y = load(device, `${name}.y${step}`, "i32"); // [B, S]
          const logits = model.forward(x); // [B, S, C]
          const loss = nn.functional.crossEntropy(logits.reshape([-1, 3]), y.reshape([-1]), {
            ignoreIndex: -1,
          });
          loss.backward();
          requireNear([loss.item()], trajectory.loss.slice(step, step + 1), dtype, `loss ${step}`);
          const norm = optim.clipGradNorm(model.parameters(), clip);
          requireNear([norm.item()], trajectory.grad_norm.slice(step, step + 1), dtype, `norm ${step}`);
          // The bundle's grad0 is the last step's gradient, clipped; see oracle/README.md.
          if (step === steps - 1) {
            for (const [path, parameter] of parameters) {
              const expected = valuesOf(`${name}.grad0.${path}`);
              requireNear(parameter.grad?.dataSync() ?? [], expected, dtype, `gradient of ${path}`);
            }
          }
          optimizer.step();
          optimizer.zeroGrad();
        });
      }
      for (const [path, parameter] of parameters) {
        requireNear(parameter.dataSync(), valuesOf(`${name}.final.${path}`), dtype, `final ${path}`);
      }
    });
  }
}
