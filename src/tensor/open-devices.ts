/** The open devices. The first one is the default for new tensors. */

import { HoldfastError } from "../errors/index.js";
import type { Device } from "./device.js";

const openDevices = new Set<Device>();

export function noteOpened(device: Device): void {
  openDevices.add(device);
}

export function noteClosed(device: Device): void {
  openDevices.delete(device);
}

/** The device for tensors that name none: the one opened first of those still open. */
export function defaultDevice(): Device {
  for (const first of openDevices) return first;
  throw new HoldfastError("NO_DEVICE", 'No device is open. Open one first: const cpu = await device("cpu").');
}
