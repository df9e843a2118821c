/** A device on the emulator of CUDA, closed when the file's tests are done. */

import { after } from "node:test";
import { Device } from "holdfast";
import { strict } from "holdfast/internals";
import { openEmulator } from "./emulator.js";
import { openEmulatorDriver } from "./emulator-driver.js";
import { fixDraws } from "./fixed-draws.js";
import { testEnvironment } from "./test-device.js";

export interface EmulatorGpuOptions {
  readonly precision?: "f32" | "tf32" | "bf16";
  /** As many as the emulator has otherwise, unless given; with one, a small product is worth tiles. */
  readonly multiprocessors?: number;
  /** `auto` tries a step in many ways, which takes long here; one graph unless given. */
  readonly capture?: "on" | "off" | "auto";
  /** Do launches that begin early see what they would at worst on a card? Unless this is false; it takes long where there is much memory. */
  readonly isEarlySeen?: boolean;
}

export function openEmulatorGpu({
  precision = "f32",
  multiprocessors,
  capture = "on",
  isEarlySeen = true,
}: EmulatorGpuOptions = {}): Device {
  fixDraws();
  openEmulator().set("early", isEarlySeen ? 1 : 0);
  if (multiprocessors !== undefined) openEmulator().set("multiprocessors", multiprocessors);
  const driver = openEmulatorDriver({});
  const device = new Device("cuda", {
    ...{
      driver: strict(driver),
      memory: "1GiB",
      poison: true,
      stallAfter: "off",
      environment: testEnvironment,
      precision,
      capture,
    },
    print: () => {},
  });
  after(() => {
    device.close();
    driver.close();
  });
  return device;
}
