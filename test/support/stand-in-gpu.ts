/** A device on the stand-in of CUDA, closed when the file's tests are done. */

import { after } from "node:test";
import { Device, strict } from "holdfast";
import { openStandIn } from "./stand-in.js";
import { openStandInDriver } from "./stand-in-driver.js";

export interface StandInGpuOptions {
  readonly precision?: "f32" | "tf32" | "bf16";
  /** As many as the stand-in has otherwise, unless given; with one, a small product is worth tiles. */
  readonly multiprocessors?: number;
  readonly capture?: "on" | "off" | "auto";
}

export function openStandInGpu({
  precision = "f32",
  multiprocessors,
  capture = "auto",
}: StandInGpuOptions = {}): Device {
  // Launches that begin early see what they would at worst on a card.
  openStandIn().set("early", 1);
  if (multiprocessors !== undefined) openStandIn().set("multiprocessors", multiprocessors);
  const driver = openStandInDriver({});
  const device = new Device("cuda", {
    ...{
      driver: strict(driver),
      memory: "1GiB",
      poison: true,
      stallAfter: "off",
      environment: {},
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
