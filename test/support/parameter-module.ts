/** A module with these parameters only, for tests of optimizers: gradients are set, not computed. */

import { type Device, type Dtype, nn, type Tensor, tensor } from "holdfast";

export class ParameterModule extends nn.Module {
  readonly list: nn.Parameter[];

  constructor(shapes: readonly (readonly number[])[], values: readonly ArrayLike<number>[]) {
    super();
    this.list = shapes.map((shape, index) => new nn.Parameter(shape, () => values[index]!));
  }
}

export function placeParameters(
  cpu: Device,
  dtype: Dtype,
  shapes: readonly (readonly number[])[],
  values: readonly ArrayLike<number>[],
): nn.Parameter[] {
  return new ParameterModule(shapes, values).to(cpu, dtype).list;
}

/** Gives a leaf its gradient through backward: the gradient of Σ p·g is g. */
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
