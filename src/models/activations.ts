/** The activations of Hugging Face's configs by their names. */

import { functional } from "../nn/index.js";
import type { Tensor } from "../tensor/index.js";
import { choice, type Field } from "./configs/fields.js";

const activations = {
  gelu: (x: Tensor): Tensor => functional.gelu(x),
  gelu_new: (x: Tensor): Tensor => functional.gelu(x, "tanh"),
  gelu_pytorch_tanh: (x: Tensor): Tensor => functional.gelu(x, "tanh"),
  relu: (x: Tensor): Tensor => functional.relu(x),
  silu: (x: Tensor): Tensor => functional.silu(x),
  swish: (x: Tensor): Tensor => functional.silu(x),
  tanh: (x: Tensor): Tensor => functional.tanh(x),
} as const;

/** The name of an activation. */
export type ActivationName = keyof typeof activations;

/** A field of a config with the name of an activation. */
export function activationField(fallback: ActivationName): Field<ActivationName> {
  return choice(Object.keys(activations) as ActivationName[], fallback);
}

export function activate(name: ActivationName, x: Tensor): Tensor {
  return activations[name](x);
}
