/**
 * Places a module's parameters and buffers on a device: weights contiguously in one region, gradients in another, and buffers in a
 * third.
 */

import { HoldfastError } from "../errors/index.js";
import { type Dtype, dtypes } from "../ir/index.js";
import { contiguousStrides, drawArray, type Random, requireDtype, type Shape } from "../ops/index.js";
import type { Placement, Region, Storage, UploadItem } from "../runtime/index.js";
import {
  type Device,
  type Draw,
  encodeElements,
  type HostValues,
  isDeviceName,
  requireDevice,
} from "../tensor/index.js";
import type { Buffer } from "./buffer.js";
import type { ModuleTensor } from "./module-tensor.js";
import type { Parameter } from "./parameter.js";

/** The regions of a tensor, and how many tensors share them: the last one to leave releases them. */
interface Home {
  readonly device: Device;
  readonly regions: Region[];
  tensors: number;
  /** The gradients of the parameters that were trained when they were placed. */
  gradients?: { readonly region: Region; readonly parameters: readonly (readonly [Parameter, Placement])[] };
}

const homes = new WeakMap<ModuleTensor, Home>();

/** Where `Module.to` places a module. A dtype alone leaves it where it is. */
export function destinationOf(
  module: { parameters(): readonly Parameter[]; buffers(): readonly Buffer[] },
  destination: Device | Dtype,
  floats: Dtype | undefined,
): { readonly device: Device; readonly dtype: Dtype | undefined } {
  const name = `${module.constructor.name}.to`;
  const isDtype = typeof destination === "string" && !isDeviceName(destination);
  const dtype = isDtype ? destination : floats;
  if (dtype !== undefined) requireDtype(name, dtype);
  if (!isDtype) return { device: requireDevice(`${name}: the device`, destination), dtype };
  const placed = [...module.parameters(), ...module.buffers()].find(({ isPlaced }) => isPlaced);
  if (placed && floats === undefined) return { device: placed.device, dtype };
  throw new HoldfastError(
    "NO_DEVICE",
    `${name}: "${dtype}" is a dtype, and the module has no device yet. Pass an open device, too: model.to(cpu, "${dtype}").`,
  );
}

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
  const incoming = sized.map((parameter) => valuesFor(parameter, dtype ?? parameter.dtype));
  const { persistent } = device.runtime;
  const sizes = incoming.map(({ name, dtype, numel }) => ({ name, size: numel * dtypes[dtype].bytes }));
  const weights = persistent.place("weights", name, sizes);
  const trained = sizes.filter((_, index) => sized[index]?.requiresGrad);
  let gradients: Region | undefined;
  try {
    // Passes over a whole region include the padding, so it must be zero.
    device.runtime.fill(weights.whole, 0);
    if (trained.length > 0) {
      gradients = persistent.place("gradients", `${name} gradients`, trained);
      device.runtime.fill(gradients.whole, 0);
    }
    writeValues(device, incoming, weights);
  } catch (rejection) {
    for (const region of [weights, gradients]) if (region) persistent.release(region);
    throw rejection;
  }
  const home: Home = {
    device,
    regions: gradients ? [weights, gradients] : [weights],
    tensors: sized.length,
  };
  if (gradients) {
    const parameters = sized.flatMap((parameter, index): (readonly [Parameter, Placement])[] => {
      const size = sizes[index];
      return size && parameter.requiresGrad ? [[parameter, size]] : [];
    });
    home.gradients = { region: gradients, parameters };
  }
  const placedGradients = gradients?.storages.values();
  for (const [index, parameter] of sized.entries()) {
    const [weight, size] = [weights.storages[index], sizes[index]];
    if (!weight || !size) continue;
    const gradient = parameter.requiresGrad ? placedGradients?.next().value : undefined;
    leaveHome(parameter);
    const memory = { weight, gradient: gradient ?? (() => placeGradient(home, size)) };
    parameter.settleIn(device, memory, dtype ?? parameter.dtype);
    homes.set(parameter, home);
  }
}

/** The gradient of a parameter that was frozen when it was placed: it has no memory before it is trained. */
function placeGradient({ device, regions }: Home, size: Placement): Storage {
  const region = device.runtime.persistent.place("gradients", `${size.name} gradient`, [size]);
  regions.push(region);
  device.runtime.fill(region.whole, 0);
  return region.storages[0] ?? region.whole;
}

/**
 * Frees the gradients that were placed together, if all of their parameters are frozen now. They get memory again when they are trained. The
 * gradients that a compiled step uses stay.
 */
export function releaseGradients(parameters: readonly Parameter[]): void {
  const places = new Set(parameters.flatMap((parameter) => homes.get(parameter) ?? []));
  for (const home of places) {
    const { gradients, device, regions } = home;
    if (!gradients || !device.isOpen) continue;
    const { region } = gradients;
    const held = gradients.parameters.filter(([parameter]) => homes.get(parameter) === home);
    if (held.some(([parameter]) => parameter.requiresGrad)) continue;
    try {
      device.runtime.persistent.release(region);
    } catch (rejection) {
      if (rejection instanceof HoldfastError && rejection.code === "PINNED") continue;
      throw rejection;
    }
    regions.splice(regions.indexOf(region), 1);
    delete home.gradients;
    for (const [parameter, size] of held) parameter.loseGradient(() => placeGradient(home, size));
  }
}

/** Moves buffers to a device. Buffers with values keep them; the others are initialized. */
export function placeBuffers(
  device: Device,
  name: string,
  buffers: readonly Buffer[],
  converted?: Dtype,
): void {
  const moving = buffers.filter(
    (buffer) =>
      buffer.numel > 0 &&
      (!buffer.isPlaced || buffer.device !== device || buffer.dtype !== buffer.dtypeAs(converted)),
  );
  if (moving.length === 0) return;
  const incoming = moving.map((buffer) => valuesFor(buffer, buffer.dtypeAs(converted)));
  const { persistent } = device.runtime;
  const sizes = incoming.map(({ name, dtype, numel }) => ({ name, size: numel * dtypes[dtype].bytes }));
  const region = persistent.place("weights", `${name} buffers`, sizes);
  try {
    device.runtime.fill(region.whole, 0);
    writeValues(device, incoming, region);
  } catch (rejection) {
    persistent.release(region);
    throw rejection;
  }
  const home: Home = { device, regions: [region], tensors: moving.length };
  for (const [index, buffer] of moving.entries()) {
    const [storage, values] = [region.storages[index], incoming[index]];
    if (!storage || !values) continue;
    leaveHome(buffer);
    buffer.settleIn(device, storage, values.dtype);
    homes.set(buffer, home);
  }
}

/** The values of a tensor's new memory: on the host, or random values for the device to draw. */
interface IncomingValues {
  readonly name: string;
  readonly shape: Shape;
  readonly numel: number;
  readonly dtype: Dtype;
  readonly draw: Draw;
  /** Undefined for zeros, which new memory has. */
  readonly values: HostValues | Random | undefined;
}

function valuesFor(tensor: ModuleTensor, dtype: Dtype): IncomingValues {
  const { name, shape, numel, draw } = tensor;
  const values = tensor.isPlaced
    ? tensor.device.readExact(tensor)
    : tensor.startsAsZeros
      ? undefined
      : (tensor.initialRandom(dtype) ?? tensor.initialValues());
  return { name, shape, numel, dtype, draw, values };
}

function writeValues(device: Device, incoming: readonly IncomingValues[], weights: Region): void {
  const uploads: UploadItem[] = [];
  for (const [index, { shape, dtype, draw, values }] of incoming.entries()) {
    const storage = weights.storages[index];
    if (!storage || !values) continue;
    if (!("kind" in values)) uploads.push({ source: encodeElements(values, dtype), target: storage });
    else
      drawArray(device.runtime, { shape, strides: contiguousStrides(shape), dtype, storage }, values, draw);
  }
  device.runtime.upload(uploads);
}

function leaveHome(tensor: ModuleTensor): void {
  const home = homes.get(tensor);
  if (!home) return;
  home.tensors -= 1;
  if (home.tensors > 0 || !home.device.isOpen) return;
  for (const region of home.regions) home.device.runtime.persistent.release(region);
}

/** Frees the memory of placed buffers before their module is unreachable. They are dead afterwards. */
export function releaseBuffers(buffers: readonly Buffer[]): void {
  for (const buffer of buffers) {
    leaveHome(buffer);
    homes.delete(buffer);
  }
}
