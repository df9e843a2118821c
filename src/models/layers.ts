/** Linear layers as Hugging Face's models start them: normal weights, and biases of 0. */

import { init, Linear } from "../nn/index.js";

export interface LinearStart {
  readonly bias: boolean;
  /** The standard deviation of the weights. */
  readonly std: number;
}

export function linear(inputs: number, outputs: number, { bias, std }: LinearStart): Linear {
  const layer = new Linear(inputs, outputs, { bias });
  layer.weight.initialize(init.normal(0, std));
  layer.bias?.initialize(init.zeros());
  return layer;
}
