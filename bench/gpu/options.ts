/** The command line options that all programs of this folder share, and the GPU that they open. */

import "../source-modules.js";
import { mkdirSync } from "node:fs";
import { Device, type DeviceOptions } from "holdfast";
import { type CudaDriver, type CudaDriverOptions, type Driver, openCudaDriver } from "holdfast/internals";
import { defaultCacheFolder } from "../../src/driver/index.js";

/**
 * `--out FOLDER` is the folder of results (default: bench/results). `--cache FOLDER` is the folder of
 * compiled kernels (default: the user's cache). `--emulator` runs on the emulator of CUDA's libraries: a
 * trial without a GPU.
 */
export const commonOptions = {
  out: { type: "string", default: "bench/results" },
  cache: { type: "string", default: defaultCacheFolder(process.env) },
  emulator: { type: "boolean", default: false },
} as const;

/** With the emulator's folder if the options ask for it; building the emulator takes time. */
export const cudaEnvironment: NodeJS.ProcessEnv = process.argv.includes("--emulator")
  ? {
      ...process.env,
      HOLDFAST_CUDA_PATH: (await import("../../test/support/emulator.js")).buildEmulator(),
    }
  : process.env;

export interface CommonOptions {
  readonly out: string;
  readonly cache: string;
  readonly emulator: boolean;
}

/** The same options as words, for a child process. */
export function commonArguments({ out, cache, emulator: isEmulator }: CommonOptions): string[] {
  return ["--out", out, "--cache", cache, ...(isEmulator ? ["--emulator"] : [])];
}

/** Parses a positive integer. */
export function count(name: string, text: string): number {
  const value = Number(text);
  if (Number.isSafeInteger(value) && value > 0) return value;
  throw new Error(`--${name} takes a positive integer; this is "${text}".`);
}

export interface Gpu {
  readonly device: Device;
  /** The driver itself, without wrappers. */
  readonly driver: CudaDriver;
  close(): void;
}

export interface GpuOptions {
  readonly driver?: CudaDriverOptions;
  readonly device?: DeviceOptions;
  /** Wraps the driver before the runtime gets it. */
  readonly wrap?: (driver: Driver) => Driver;
}

/** Opens the GPU as users do, with the watchdog; only the lines printed at the start are omitted. */
export function openGpu(common: CommonOptions, options: GpuOptions = {}): Gpu {
  const { wrap = (driver) => driver } = options;
  mkdirSync(common.cache, { recursive: true, mode: 0o700 });
  const environment = cudaEnvironment;
  const driver = openCudaDriver({ cacheFolder: common.cache, environment, ...options.driver });
  try {
    const device = new Device("cuda", {
      driver: wrap(driver),
      print: () => {},
      // The emulator runs a step in minutes, which would look like a stall.
      ...(common["emulator"] && { stallAfter: "off" }),
      ...options.device,
    });
    const close = (): void => {
      device.close();
      driver.close();
    };
    return { device, driver, close };
  } catch (error) {
    driver.close();
    throw error;
  }
}
