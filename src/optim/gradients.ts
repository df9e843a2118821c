/** The gradients that have arrived at parameters, for passes over all of them at once. */

import { HoldfastError } from "../errors/index.js";
import { contiguousStrides, type DeviceArray, sizeOf } from "../ops/index.js";
import type { Runtime } from "../runtime/index.js";
import { type Device, defaultDevice, type Tensor } from "../tensor/index.js";
import { flattenSpans } from "./spans.js";

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

interface KnownRuns {
  readonly gradients: readonly DeviceArray[];
  readonly runs: readonly DeviceArray[];
}

/** By the first gradient: a model's stay where they are, so that its runs are found once. */
const knownRuns = new WeakMap<DeviceArray, KnownRuns>();

/** The gradients as vectors, neighbours in memory as one. */
export function gradientSpans(runtime: Runtime, arrived: readonly Arrived[]): readonly DeviceArray[] {
  const [first] = arrived;
  if (!first) return [];
  const known = knownRuns.get(first.gradient);
  const isKnown =
    known?.gradients.length === arrived.length &&
    arrived.every(({ gradient }, index) => known.gradients[index] === gradient);
  if (isKnown) return known.runs;
  const runs = findRuns(runtime, arrived);
  // Gradients in step memory end with their step, and the parts of it with them.
  if (arrived.every(({ gradient }) => gradient.storage?.kind === "persistent")) {
    knownRuns.set(first.gradient, { gradients: arrived.map(({ gradient }) => gradient), runs });
  }
  return runs;
}

function findRuns(runtime: Runtime, arrived: readonly Arrived[]): DeviceArray[] {
  const vectors = arrived.map(({ gradient }) => {
    const shape = [sizeOf(gradient.shape)];
    return [{ ...gradient, shape, strides: contiguousStrides(shape) }];
  });
  return flattenSpans(runtime, vectors).flat();
}
