/** Where `to` brings a tensor: another dtype, another device, or both. */

import { isRecording } from "../autograd/index.js";
import { checkOptions, HoldfastError } from "../errors/index.js";
import type { Dtype } from "../ir/index.js";
import { Device, requireDevice } from "./device.js";
import { Tensor } from "./tensor.js";
import { rejectMembers } from "./vmap/dispatch.js";

/** The first argument of `to`: a dtype, a device, a tensor with both, or options. */
export type TensorDestination =
  | Dtype
  | Device
  | Tensor
  | { readonly device?: Device | undefined; readonly dtype?: Dtype | undefined };

interface Target {
  readonly device?: Device | undefined;
  readonly dtype?: Dtype | undefined;
}

/** True for PyTorch's names of devices, which users may pass instead of an open one. */
export function isDeviceName(destination: unknown): boolean {
  return typeof destination === "string" && /^(cpu|cuda|gpu|mps)(:\d+)?$/.test(destination);
}

/** What `to` changes, from its arguments. */
export function destinationOf(destination: TensorDestination, dtype: Dtype | undefined): Target {
  if (destination instanceof Device) return { device: destination, dtype };
  if (isDeviceName(destination)) requireDevice("to: the device", destination);
  if (dtype !== undefined) {
    throw new HoldfastError(
      "BAD_ARGUMENT",
      'to: a second argument is a dtype, and the first one is then an open device: x.to(gpu, "i32"). ' +
        `The first one is ${typeof destination === "string" ? `"${destination}"` : `of type ${typeof destination}`}.`,
    );
  }
  if (typeof destination === "string") return { dtype: destination };
  if (destination instanceof Tensor) return destination;
  if (typeof destination !== "object" || destination === null) {
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `to: the argument is ${String(destination)}. Pass a dtype, an open device, or both: x.to("i32"), x.to(gpu), x.to(gpu, "i32").`,
    );
  }
  const { device, ...rest } = checkOptions("to", destination, { device: true, dtype: true });
  return { ...rest, ...(device !== undefined && { device: requireDevice("to: the device", device) }) };
}

/** A copy by way of the host. */
export function copyToDevice(x: Tensor, device: Device): Tensor {
  rejectMembers([x], "to can't copy to another device", "Copy before vmap.");
  if (x.requiresGrad && isRecording()) {
    throw new HoldfastError(
      "NO_GRADIENT",
      `to: gradients do not pass between devices, and "${x.name}" has one. Copy x.detach() instead.`,
    );
  }
  const values = x.device.readExact(x);
  return device.make(() => values, x.shape, x.dtype, x.name);
}
