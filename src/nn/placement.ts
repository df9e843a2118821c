/** Places a module's parameters on a device: weights contiguously in one region, and gradients in another. */

import { type Dtype, dtypes } from "../ir/index.js";
import type { Region } from "../runtime/index.js";
import { type Device, encodeElements } from "../tensor/index.js";
import type { Parameter } from "./parameter.js";

/** The regions of a parameter, and how many parameters share them: the last one to leave releases them. */
interface Home {
  readonly device: Device;
  readonly regions: readonly Region[];
  parameters: number;
}

const homes = new WeakMap<Parameter, Home>();

/**
 * Moves parameters to a device, all at once, so that an optimizer can update them in one pass. Parameters with values
 * keep them; the others are initialized.
 */
export function placeParameters(
  device: Device,
  name: string,
  parameters: readonly Parameter[],
  dtype?: Dtype,
): void {
  const moving = parameters.filter(
    (parameter) =>
      !parameter.isPlaced ||
      parameter.device !== device ||
      (dtype !== undefined && parameter.dtype !== dtype),
  );
  const sized = moving.filter(({ numel }) => numel > 0);
  if (sized.length === 0) return;
  const sizes = sized.map((parameter) => ({
    name: parameter.name,
    size: parameter.numel * dtypes[dtype ?? parameter.dtype].bytes,
  }));
  const values = sized.map((parameter) =>
    parameter.isPlaced ? parameter.dataSync() : parameter.initialValues(),
  );
  const { persistent } = device.runtime;
  const weights = persistent.place("weights", name, sizes);
  let gradients: Region;
  try {
    gradients = persistent.place("gradients", `${name} gradients`, sizes);
  } catch (rejection) {
    persistent.release(weights);
    throw rejection;
  }
  const home: Home = { device, regions: [weights, gradients], parameters: sized.length };
  // Passes over a whole region include the padding, so it must be zero.
  device.runtime.fill(weights.whole, 0);
  device.runtime.fill(gradients.whole, 0);
  const uploads = sized.flatMap((parameter, index) => {
    const [weight, gradient, initialValues] = [
      weights.storages[index],
      gradients.storages[index],
      values[index],
    ];
    if (!weight || !gradient || !initialValues) return [];
    const target = dtype ?? parameter.dtype;
    leaveHome(parameter);
    parameter.settleIn(device, { weight, gradient }, target);
    homes.set(parameter, home);
    return [{ source: encodeElements(initialValues, target), target: weight }];
  });
  device.runtime.upload(uploads);
}

function leaveHome(parameter: Parameter): void {
  const home = homes.get(parameter);
  if (!home) return;
  home.parameters -= 1;
  if (home.parameters > 0 || !home.device.isOpen) return;
  for (const region of home.regions) home.device.runtime.persistent.release(region);
}
