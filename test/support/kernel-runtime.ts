/**
 * Runtimes for a file of kernel tests: strict, poisoned, quiet, and closed after the file's last test. One is
 * of the device under test; others are of the CPU, and of a GPU, real or emulated.
 */

import { after } from "node:test";
import { type Driver, openRuntime, type Runtime, type Storage, strict } from "holdfast/internals";
import { emulatorMissing } from "./emulator.js";
import { fixDraws } from "./fixed-seed.js";
import type { Precision } from "./null-gpu.js";
import { openTestCpu, openTestDriver, openTestGpu, testDevice } from "./test-device.js";

/** Of the device under test. */
export function openKernelRuntime(): Runtime {
  return openOn(openTestDriver({ threads: 2 }));
}

/** Of the CPU, whatever device is under test. */
export function openCpuKernelRuntime(threads = 2): Runtime {
  return openOn(openTestCpu(threads));
}

/** Why there is no GPU, for a test's `skip`. */
export const cudaMissing: string | false = testDevice === "cuda" ? false : emulatorMissing;

/** Call it inside a test or a `describe` whose skip is `cudaMissing`. */
export function openCudaKernelRuntime({ precision = "f32" as Precision } = {}): Runtime {
  if (testDevice !== "cuda") fixDraws();
  return openOn(openTestGpu(), precision);
}

/** For tests that hold on every device: a `describe` each, opened inside. */
export const kernelDevices = [
  { device: "the CPU", skip: false, open: () => openCpuKernelRuntime() },
  { device: "CUDA", skip: cudaMissing, open: () => openCudaKernelRuntime() },
] as const;

function openOn(device: Driver, precision: Precision = "f32"): Runtime {
  const runtime = openRuntime({
    driver: strict(device),
    precision,
    memory: "256MiB",
    poison: true,
    stallAfter: "off",
    environment: {},
    print: () => {},
  });
  after(() => {
    runtime.close();
    device.close();
  });
  return runtime;
}

/** Step memory with these values. */
export function put(runtime: Runtime, values: ArrayBufferView, label: string): Storage {
  const storage = runtime.arena.allocate(values.byteLength, label);
  runtime.upload([{ source: values, target: storage }]);
  return storage;
}
