/**
 * The training steps of the ten programs in test/programs, at the programs' sizes: weights, batches and optimizers. All contenders start
 * from the same weights and train on the same batches, so their first losses agree. The noise of the autoencoder and of the diffusion
 * model is part of the batch, for the same reason.
 */

import { values, type Weight } from "../workload.js";
import { type Batch, batches } from "./batches.js";

export const names = [
  "gpt",
  "residual-convnet",
  "lstm",
  "vae",
  "diffusion",
  "tabular",
  "fine-tune",
  "service",
  "compiled-variants",
  "custom-parts",
] as const;
export type ProgramName = (typeof names)[number];

export interface OptimizerOptions {
  readonly kind: "adam" | "adamw" | "sgd" | "soft-sign";
  readonly lr: number;
  readonly weightDecay?: number;
  readonly momentum?: number;
}

export interface Workload {
  readonly weights: readonly Weight[];
  /** Arrays that a forward pass updates, such as running statistics. */
  readonly buffers: readonly Weight[];
  readonly optimizer: OptimizerOptions;
  /** The largest norm of all gradients together. */
  readonly clipNorm?: number;
  readonly batches: readonly Batch[];
  /** By how much the first losses of two contenders may differ, relative to the loss. */
  readonly tolerance: number;
}

export function workload(name: ProgramName): Workload {
  const list = new WeightList();
  declare[name](list);
  const { weights, buffers } = list;
  // Each contender draws its own dropout masks.
  const tolerance = name === "tabular" ? 0.1 : 1e-3;
  return { weights, buffers, batches: batches(name), tolerance, ...training[name] };
}

const training: Readonly<Record<ProgramName, Pick<Workload, "optimizer" | "clipNorm">>> = {
  gpt: { optimizer: { kind: "adamw", lr: 4e-3, weightDecay: 0.01 }, clipNorm: 1 },
  "residual-convnet": { optimizer: { kind: "sgd", lr: 0.1, momentum: 0.9, weightDecay: 5e-4 } },
  lstm: { optimizer: { kind: "adam", lr: 1e-2 }, clipNorm: 1 },
  vae: { optimizer: { kind: "adam", lr: 5e-3 } },
  diffusion: { optimizer: { kind: "adamw", lr: 5e-3, weightDecay: 0.01 } },
  tabular: { optimizer: { kind: "adamw", lr: 1e-2, weightDecay: 0.01 }, clipNorm: 1 },
  "fine-tune": { optimizer: { kind: "adamw", lr: 5e-3, weightDecay: 0.01 } },
  service: { optimizer: { kind: "adam", lr: 1e-2 } },
  "compiled-variants": { optimizer: { kind: "adam", lr: 1e-2 } },
  "custom-parts": { optimizer: { kind: "soft-sign", lr: 1e-2, momentum: 0.9 } },
};

/** Collects weights under Holdfast's names, in PyTorch's layouts: a linear layer's weight is [outputs, inputs]. */
class WeightList {
  readonly weights: Weight[] = [];
  readonly buffers: Weight[] = [];

  matrix(name: string, deviation: number, ...shape: number[]): void {
    this.weights.push({ name, shape, data: values(this.weights.length + 1, shape, deviation) });
  }

  linear(name: string, inputs: number, outputs: number): void {
    this.matrix(`${name}.weight`, inputs ** -0.5, outputs, inputs);
    this.weights.push(constant(`${name}.bias`, 0, outputs));
  }

  layerNorm(name: string, width: number): void {
    this.weights.push(constant(`${name}.weight`, 1, width), constant(`${name}.bias`, 0, width));
  }

  batchNorm(name: string, channels: number): void {
    this.layerNorm(name, channels);
    this.buffers.push(
      constant(`${name}.runningMean`, 0, channels),
      constant(`${name}.runningVar`, 1, channels),
    );
  }

  convolution(name: string, inputs: number, outputs: number, side: number): void {
    this.matrix(`${name}.weight`, (2 / (inputs * side ** 2)) ** 0.5, outputs, inputs, side, side);
  }
}

const constant = (name: string, value: number, size: number): Weight => ({
  name,
  shape: [size],
  data: new Float32Array(size).fill(value),
});

const declare: Readonly<Record<ProgramName, (list: WeightList) => void>> = {
  gpt(list) {
    list.matrix("tokens.weight", 0.2, 11, 32);
    list.matrix("positions.weight", 0.2, 8, 32);
    for (const block of ["blocks.0", "blocks.1"]) {
      list.layerNorm(`${block}.norm1`, 32);
      list.matrix(`${block}.attention.inProjWeight`, 32 ** -0.5, 96, 32);
      list.matrix(`${block}.attention.outProj.weight`, 32 ** -0.5, 32, 32);
      list.layerNorm(`${block}.norm2`, 32);
      list.linear(`${block}.mlp.0`, 32, 128);
      list.linear(`${block}.mlp.2`, 128, 32);
    }
    list.layerNorm("norm", 32);
  },
  "residual-convnet"(list) {
    list.convolution("0", 1, 8, 3);
    list.batchNorm("1", 8);
    for (const [name, inputs, outputs] of [
      ["3", 8, 8],
      ["4", 8, 16],
    ] as const) {
      list.convolution(`${name}.conv1`, inputs, outputs, 3);
      list.batchNorm(`${name}.norm1`, outputs);
      list.convolution(`${name}.conv2`, outputs, outputs, 3);
      list.batchNorm(`${name}.norm2`, outputs);
      if (inputs === outputs) continue;
      list.convolution(`${name}.shortcut.0`, inputs, outputs, 1);
      list.batchNorm(`${name}.shortcut.1`, outputs);
    }
    list.linear("7", 16, 4);
  },
  lstm(list) {
    for (const direction of ["", "Reverse"]) {
      list.matrix(`lstm.weightIhL0${direction}`, 24 ** -0.5, 96, 2);
      list.matrix(`lstm.weightHhL0${direction}`, 24 ** -0.5, 96, 24);
      list.weights.push(
        constant(`lstm.biasIhL0${direction}`, 0, 96),
        constant(`lstm.biasHhL0${direction}`, 0, 96),
      );
    }
    list.linear("head", 48, 2);
  },
  vae(list) {
    list.linear("encoder.0", 64, 64);
    list.linear("mean", 64, 2);
    list.linear("logVariance", 64, 2);
    list.linear("decoder.0", 2, 64);
    list.linear("decoder.2", 64, 64);
    list.linear("decoder.4", 64, 64);
  },
  diffusion(list) {
    list.matrix("level.weight", 0.2, 40, 64);
    list.linear("input", 2, 64);
    list.linear("body.1", 64, 64);
    list.linear("body.3", 64, 64);
    list.linear("body.5", 64, 2);
  },
  tabular(list) {
    list.matrix("town.weight", 1, 4, 3);
    list.matrix("plan.weight", 1, 2, 2);
    list.linear("body.0", 7, 32);
    list.linear("body.3", 32, 1);
  },
  "fine-tune"(list) {
    list.linear("body.0", 16, 64);
    list.linear("body.2", 64, 32);
    list.linear("head", 32, 4);
  },
  service(list) {
    list.linear("0", 2, 32);
    list.linear("2", 32, 1);
  },
  "compiled-variants"(list) {
    list.linear("input", 4, 32);
    for (const block of ["blocks.0", "blocks.1"]) {
      list.linear(`${block}.0`, 32, 64);
      list.linear(`${block}.2`, 64, 32);
    }
    list.linear("output", 32, 1);
  },
  "custom-parts"(list) {
    list.linear("input", 2, 64);
    list.buffers.push(constant("scale.square", 1, 64));
    list.linear("hidden", 64, 32);
    list.linear("output", 32, 1);
  },
};
