/** Devices for tests: quiet, small, and closed after the file's last test. */

import { after } from "node:test";
import { Device, type DeviceOptions, openCpuDriver, strict } from "holdfast";

const quiet: DeviceOptions = { memory: "256MiB", stallAfter: "off", environment: {}, print: () => {} };

/** A CPU device as users have it. */
export function openDevice(options: DeviceOptions = {}): Device {
  const device = new Device("cpu", { ...quiet, ...options });
  after(() => device.close());
  return device;
}

/** A CPU device whose driver enforces CUDA's rules, and whose dead memory is NaN. */
export function openStrictDevice(options: DeviceOptions = {}): Device {
  const driver = openCpuDriver({ threads: 2 });
  const device = openDevice({ driver: strict(driver), poison: true, ...options });
  after(() => driver.close());
  return device;
}
