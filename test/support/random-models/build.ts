/** Builds the module of a model program. */

import { cat, nn, type Tensor } from "holdfast";
import type { LayerStep, ModelStep } from "./program.js";

export type Inputs = ReadonlyMap<string, Tensor>;
/** Called with the value at each join with another input, before the two are combined. */
export type JoinNote = (input: string, value: Tensor) => void;

/** A layer of the program, which may read other inputs. */
abstract class GeneratedModule extends nn.Module {
  abstract forward(x: Tensor, inputs: Inputs, note: JoinNote): Tensor;
}

type Constructor = new (...args: readonly unknown[]) => nn.Module;

class RandomLayer extends GeneratedModule {
  readonly layer: nn.Module;
  readonly #step: LayerStep;

  constructor(step: LayerStep) {
    super();
    const Layer = (nn as unknown as Readonly<Record<string, Constructor>>)[step.layer]!;
    this.layer = new Layer(...step.args);
    this.#step = step;
  }

  forward(x: Tensor, inputs: Inputs): Tensor {
    const { layer } = this;
    const { isCausal = false, mask, keys } = this.#step;
    const options = { isCausal, mask: mask === undefined ? null : inputs.get(mask)! };
    if (layer instanceof nn.MultiheadAttention) {
      const key = keys === undefined ? x : inputs.get(keys)!;
      return layer.forward(x, key, key, options);
    }
    if (layer instanceof nn.TransformerEncoderLayer) return layer.forward(x, options);
    return (layer as nn.Layer).forward(x);
  }
}

/** Equal layers. If no other input is read, each is a Sequential of nn's own layers. */
class RandomRepeat extends GeneratedModule {
  readonly list: nn.ModuleList;
  readonly #isResidual: boolean;

  constructor({ count, steps, isResidual }: Extract<ModelStep, { kind: "repeat" }>) {
    super();
    const isPlain = steps.every(
      (step) => step.kind === "layer" && !step.isCausal && step.mask === undefined && step.keys === undefined,
    );
    this.list = new nn.ModuleList(
      Array.from({ length: count }, () => {
        if (!isPlain) return new RandomModel(steps);
        return new nn.Sequential(
          ...steps.map((step) => new RandomLayer(step as LayerStep).layer as unknown as nn.Layer),
        );
      }),
    );
    this.#isResidual = isResidual;
  }

  forward(x: Tensor, inputs: Inputs, note: JoinNote): Tensor {
    let value = x;
    for (const layer of this.list) {
      const branch =
        layer instanceof nn.Sequential
          ? layer.forward(value)
          : (layer as RandomModel).forward(value, inputs, note);
      value = this.#isResidual ? value.add(branch) : branch;
    }
    return value;
  }
}

class RandomJoin extends GeneratedModule {
  readonly through: RandomModel;
  readonly #step: Extract<ModelStep, { kind: "join" }>;

  constructor(step: Extract<ModelStep, { kind: "join" }>) {
    super();
    this.through = new RandomModel(step.steps);
    this.#step = step;
  }

  forward(x: Tensor, inputs: Inputs, note: JoinNote): Tensor {
    const { how, input } = this.#step;
    note(input, x);
    const other = this.through.forward(inputs.get(input)!, inputs, note);
    if (how === "cat") return cat([x, other], -1);
    return how === "add" ? x.add(other) : x.mul(other);
  }
}

class RandomOp extends GeneratedModule {
  readonly #step: Extract<ModelStep, { kind: "reshape" | "mean" | "number" }>;

  constructor(step: Extract<ModelStep, { kind: "reshape" | "mean" | "number" }>) {
    super();
    this.#step = step;
  }

  forward(x: Tensor): Tensor {
    const step = this.#step;
    if (step.kind === "reshape") return x.reshape([x.shape[0]!, ...step.sizes]);
    if (step.kind === "mean") return x.mean(step.axis);
    return x[step.op](step.value);
  }
}

function build(step: ModelStep): GeneratedModule {
  if (step.kind === "layer") return new RandomLayer(step);
  if (step.kind === "repeat") return new RandomRepeat(step);
  return step.kind === "join" ? new RandomJoin(step) : new RandomOp(step);
}

export class RandomModel extends GeneratedModule {
  readonly steps: readonly GeneratedModule[];

  constructor(steps: readonly ModelStep[]) {
    super();
    this.steps = steps.map(build);
  }

  forward(x: Tensor, inputs: Inputs, note: JoinNote): Tensor {
    return this.steps.reduce((value, step) => step.forward(value, inputs, note), x);
  }
}
