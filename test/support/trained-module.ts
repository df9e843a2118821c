/** A module of given parameters and nothing else, for tests of optimizers: gradients are set, not computed. */

import { type Device, type Dtype, nn, type Tensor, tensor } from "holdfast";

export class GivenParameters extends nn.Module {
  readonly list: nn.Parameter[];
  [name: string]: unknown;

  constructor(shapes: readonly (readonly number[])[], values: readonly ArrayLike<number>[]) {
    super();
    this.list = shapes.map((shape, index) => new nn.Parameter(shape, () => values[index]!));
    // Parameters are found in fields of their own.
    for (const [index, parameter] of this.list.entries()) this[`p${index}`] = parameter;
  }
}

export function placeGiven(
  cpu: Device,
  dtype: Dtype,
  shapes: readonly (readonly number[])[],
  values: readonly ArrayLike<number>[],
): nn.Parameter[] {
  return new GivenParameters(shapes, values).to(cpu, dtype).list;
}

/** Sends a gradient to a leaf, through backward: that of Σ p·g is g. */
export function setGradient(cpu: Device, parameter: Tensor, values: ArrayLike<number>): void {
  parameter.zeroGrad();
  addGradient(cpu, parameter, values);
}

export function addGradient(cpu: Device, parameter: Tensor, values: ArrayLike<number>): void {
  const gradient = tensor(Array.from(values), { dtype: parameter.dtype, device: cpu }).reshape(
    parameter.shape,
  );
  cpu.step(() => parameter.mul(gradient).sum().backward());
  gradient.release();
}
