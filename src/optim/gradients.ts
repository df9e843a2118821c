/** The gradients that have arrived at parameters, for passes over all of them. */

import { HoldfastError } from "../errors/index.js";
import { contiguousStrides, type DeviceArray, sizeOf } from "../ops/index.js";
import type { Runtime } from "../runtime/index.js";
import { type Device, defaultDevice, type Tensor } from "../tensor/index.js";
import { flattenSpans } from "./spans.js";

export interface Arrived {
  readonly parameter: Tensor;
  readonly gradient: DeviceArray;
}

/** The gradient that has arrived at a parameter; undefined if it is frozen or has none. */
export function arrivedGradient(parameter: Tensor): DeviceArray | undefined {
  return parameter.requiresGrad ? parameter.gradientHolder?.gradient : undefined;
}

/** The gradients of the parameters that have one, in their order; all on one device. */
export function arrivedGradients(
  caller: string,
  parameters: Iterable<Tensor>,
): { readonly device: Device; readonly arrived: readonly Arrived[] } {
  const list = [...parameters];
  const [first] = list;
  const device = first?.device ?? defaultDevice();
  const arrived = list.flatMap((parameter): Arrived[] => {
    const gradient = arrivedGradient(parameter);
    if (!gradient?.storage) return [];
    if (parameter.device === device) return [{ parameter, gradient }];
    throw new HoldfastError(
      "OTHER_DEVICE",
      `${caller}: "${parameter.name}" is on another device than "${first?.name}". Clip each device separately.`,
    );
  });
  return { device, arrived };
}

interface CachedSpans {
  readonly gradients: readonly DeviceArray[];
  readonly spans: readonly DeviceArray[];
}

/** Keyed by the first gradient: a model's gradients stay at their addresses, so its spans are computed once. */
const cachedSpans = new WeakMap<DeviceArray, CachedSpans>();

/** The gradients as contiguous spans: adjacent ones are merged. */
export function gradientSpans(runtime: Runtime, arrived: readonly Arrived[]): readonly DeviceArray[] {
  const [first] = arrived;
  if (!first) return [];
  const cached = cachedSpans.get(first.gradient);
  const isValid =
    cached?.gradients.length === arrived.length &&
    arrived.every(({ gradient }, index) => cached.gradients[index] === gradient);
  if (isValid) return cached.spans;
  const spans = findSpans(runtime, arrived);
  // Gradients in step memory end with their step, and so do their views.
  if (arrived.every(({ gradient }) => gradient.storage?.kind === "persistent")) {
    cachedSpans.set(first.gradient, { gradients: arrived.map(({ gradient }) => gradient), spans: spans });
  }
  return spans;
}

function findSpans(runtime: Runtime, arrived: readonly Arrived[]): DeviceArray[] {
  const vectors = arrived.map(({ gradient }) => {
    const shape = [sizeOf(gradient.shape)];
    return [{ ...gradient, shape, strides: contiguousStrides(shape) }];
  });
  return flattenSpans(runtime, vectors).flat();
}
