/**
 * A training step to compile, its batches, and its whole state: the regression tests compare it with eager
 * code.
 */

import { type Device, manualSeed, nn, optim, randn, type Tensor, tensor } from "holdfast";

export type StepBody = (x: Tensor, y: Tensor) => { readonly loss: Tensor };

export interface Training {
  readonly model: nn.Module;
  readonly optimizer: optim.AdamW;
  /** Clears the gradients, and computes them and the loss. */
  readonly backward: StepBody;
  /** The same, then clips and updates; the gradients can still be read. */
  readonly step: StepBody;
  /** The state of the step by name: weights, gradients, moments, counts, random state. */
  read(): Record<string, Uint8Array>;
}

/** The library's default GEMM algorithms, as in eager code: other algorithms may round differently. */
export const nativeGemms = { passes: { autotune: false } } as const;

export type Batch = readonly [x: Tensor, y: Tensor];

const [rows, features, width, classes] = [8, 6, 16, 3] as const;

const models = {
  /** With dropout and normalisation. */
  deep: () =>
    new nn.Sequential(
      new nn.Linear(features, width),
      new nn.LayerNorm(width),
      new nn.GELU(),
      new nn.Dropout(0.3),
      new nn.Linear(width, classes),
    ),
  /** The fewest layers whose step changes weights, gradients, moments, counts and the random state. */
  flat: () => new nn.Sequential(new nn.Dropout(0.3), new nn.Linear(features, classes)),
  /** With running statistics, which a step changes too. */
  running: () =>
    new nn.Sequential(
      new nn.Linear(features, width),
      new nn.BatchNorm1d(width),
      new nn.Linear(width, classes),
    ),
};

/** A model and AdamW. */
export function prepareTraining(device: Device, kind: keyof typeof models = "deep"): Training {
  manualSeed(5);
  const model = models[kind]().to(device);
  const optimizer = new optim.AdamW(model.parameters(), { lr: 0.02 });
  const backward: StepBody = (x, y) => {
    optimizer.zeroGrad();
    const loss = nn.functional.crossEntropy(model.forward(x), y);
    loss.backward();
    return { loss };
  };
  return {
    model,
    optimizer,
    backward,
    step(x, y) {
      const { loss } = backward(x, y);
      optim.clipGradNorm(model.parameters(), 0.5, { errorIfNonfinite: false });
      optimizer.step();
      return { loss };
    },
    read() {
      const tensors = {
        ...model.stateDict(),
        ...optimizer.stateDict(),
        "random state": device.randomState,
      };
      const bytes = Object.entries(tensors).flatMap(([name, { array }]) =>
        array.storage ? [[name, device.runtime.read(array.storage)] as const] : [],
      );
      return { ...Object.fromEntries(bytes), ...gradientsOf(model) };
    },
  };
}

/** The existing gradients. */
export function gradientsOf(model: nn.Module): Record<string, Uint8Array> {
  const gradients: Record<string, Uint8Array> = {};
  for (const [name, { grad }] of model.namedParameters())
    if (grad) gradients[`gradient of ${name}`] = new Uint8Array(grad.dataSync().slice().buffer);
  return gradients;
}

/** A batch that outlives steps and resets. */
export function keepBatch(device: Device, seed: number): Batch {
  manualSeed(seed);
  const labels = Int32Array.from({ length: rows }, (_, row) => (row * 7 + seed) % classes);
  const batch = [randn([rows, features], { device }), tensor(labels, { device })] as const; // [B, F], [B]
  for (const input of batch) device.keep(input);
  return batch;
}
