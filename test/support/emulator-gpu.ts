/** A device on the emulator of CUDA, closed when the file's tests are done. */

import { after } from "node:test";
import { Device } from "holdfast";
import { strict } from "holdfast/internals";
import { emulatorMissing, openEmulator } from "./emulator.js";
import { openEmulatorDriver } from "./emulator-driver.js";
import { fixDraws } from "./fixed-seed.js";
import { testDevice, testEnvironment } from "./test-device.js";

/** Why a file that opens the device under test can't open the emulated GPU next to it. */
export const emulatorGpuMissing: string | false =
  testDevice === "cuda" ? "a process has one CUDA driver: that of the GPU under test" : emulatorMissing;

export interface EmulatorGpuOptions {
  readonly precision?: "f32" | "tf32" | "bf16";
  /** Default: as many as the emulator has; with one, even a small GEMM is worth tiles. */
  readonly multiprocessors?: number;
  /** `auto` tries many candidates of a step, which takes long here; default: one graph. */
  readonly capture?: "on" | "off" | "auto";
  /** True if PDL launches see the worst case of a real GPU. Default: true; slow with much memory. */
  readonly seesSnapshots?: boolean;
  /** The library's algorithms for a GEMM, each of which autotuning runs a hundred times. Default: one. */
  readonly gemmAlgorithms?: number;
}

export function openEmulatorGpu({
  precision = "f32",
  multiprocessors,
  capture = "on",
  seesSnapshots = true,
  gemmAlgorithms = 1,
}: EmulatorGpuOptions = {}): Device {
  fixDraws();
  openEmulator().set("early", seesSnapshots ? 1 : 0);
  openEmulator().set("gemmAlgorithms", gemmAlgorithms);
  if (multiprocessors !== undefined) openEmulator().set("multiprocessors", multiprocessors);
  const driver = openEmulatorDriver({});
  const device = new Device("cuda", {
    ...{
      driver: strict(driver),
      memory: "1GiB",
      staging: "2MiB",
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
    // The next file in this process starts with the emulator's defaults.
    openEmulator().reset();
  });
  return device;
}
