/** Devices for tests: quiet, small, of the kind under test, and closed after the file's last test. */

import { after } from "node:test";
import { Device, type DeviceOptions, HoldfastError } from "holdfast";
import { bytes, type Driver, strict } from "holdfast/internals";
import {
  openTestDriver,
  type TestDriver,
  testDevice,
  testDeviceKind,
  testEnvironment,
} from "./test-device.js";

/**
 * On a GPU every module's weights take 2 MiB or more; the chunk size is the CPU's, which fits into the budget
 * of every test.
 */
const quiet: DeviceOptions = {
  memory: testDeviceKind === "cuda" ? "2GiB" : "256MiB",
  chunk: bytes(4 * 1024 * 1024),
  // The default is cleared at each opening, which takes longer than most tests.
  staging: "2MiB",
  stallAfter: "off",
  environment: testEnvironment,
  print: () => {},
};

/** A device with a user's settings. */
export function openDevice(options: DeviceOptions = {}): Device {
  if (options.driver || testDevice === "cpu") return open(options);
  const driver = openTestDriver();
  const device = open({ ...options, driver });
  after(() => driver.close());
  return device;
}

/** A CPU, whatever device is under test, for what only the CPU computes. */
export function openCpuDevice(options: DeviceOptions = {}): Device {
  const device = new Device("cpu", { ...quiet, ...options });
  after(() => device.close());
  return device;
}

/** True for the error of a decomposition of matrices on a GPU: only the CPU computes it. */
export const isLeftToCpu = (error: unknown): boolean =>
  testDeviceKind !== "cpu" && error instanceof HoldfastError && error.code === "UNSUPPORTED";

/** A device whose driver enforces CUDA's rules, and whose dead memory is NaN. */
export function openStrictDevice(options: DeviceOptions = {}): Device {
  const driver = openTestDriver({ threads: 2 });
  const device = open({ driver: strict(driver), poison: true, ...options });
  after(() => driver.close());
  return device;
}

function open(options: DeviceOptions): Device {
  const device = new Device(testDeviceKind, { ...quiet, ...options });
  after(() => device.close());
  return device;
}

/** Runs `use` on a fresh device, which is always closed. `wrap` wraps its driver. */
export function withDevice<T>(
  options: DeviceOptions,
  use: (device: Device) => T,
  wrap: (driver: TestDriver) => Driver = (driver) => driver,
): T {
  const driver = openTestDriver();
  try {
    const device = new Device(testDeviceKind, { ...quiet, ...options, driver: wrap(driver) });
    try {
      return use(device);
    } finally {
      device.close();
    }
  } finally {
    driver.close();
  }
}
