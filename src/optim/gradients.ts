/** The gradients that have arrived at parameters, for passes over all of them at once. */

import { HoldfastError } from "../errors/index.js";
import { contiguousStrides, type DeviceArray, sizeOf } from "../ops/index.js";
import type { Runtime } from "../runtime/index.js";
import { type Device, defaultDevice, type Tensor } from "../tensor/index.js";
import { joinLanes } from "./runs.js";

export interface Arrived {
  readonly parameter: Tensor;
  readonly gradient: DeviceArray;
}

/** Where the gradient of a parameter has arrived; undefined where it is frozen, or nothing has. */
export function gradientOf(parameter: Tensor): DeviceArray | undefined {
  return parameter.requiresGrad ? parameter.gradientHolder?.gradient : undefined;
}

/** The gradients of parameters that have one, in their order; all on one device. */
export function arrivedGradients(
  caller: string,
  parameters: Iterable<Tensor>,
): { readonly device: Device; readonly arrived: readonly Arrived[] } {
  const all = [...parameters];
  const device = all[0]?.device ?? defaultDevice();
  const arrived = all.flatMap((parameter): Arrived[] => {
    const gradient = gradientOf(parameter);
    if (!gradient?.storage) return [];
    if (parameter.device === device) return [{ parameter, gradient }];
    throw new HoldfastError(
      "OTHER_DEVICE",
      `${caller}: "${parameter.name}" lives on another device than "${all[0]?.name}". Clip each device by itself.`,
    );
  });
  return { device, arrived };
}

/** The gradients as vectors, neighbours in memory as one. */
export function gradientRuns(runtime: Runtime, arrived: readonly Arrived[]): DeviceArray[] {
  const vectors = arrived.map(({ gradient }) => {
    const shape = [sizeOf(gradient.shape)];
    return [{ ...gradient, shape, strides: contiguousStrides(shape) }];
  });
  return joinLanes(runtime, vectors).flat();
}
