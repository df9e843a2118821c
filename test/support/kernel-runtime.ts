/**
 * Runtimes for a file of kernel tests: strict, poisoned, quiet, and closed after the file's last test. One is of the CPU,
 * and one of a GPU that is not there: the CUDA driver over the stand-in.
 */

import { after } from "node:test";
import {
  type Driver,
  openCpuDriver,
  openCudaDriver,
  openRuntime,
  type Runtime,
  type Storage,
  strict,
} from "holdfast";
import { buildStandIn, standInMissing } from "./stand-in.js";

export function openKernelRuntime(threads = 2): Runtime {
  return openOn(openCpuDriver({ threads }));
}

/** Call it inside of a test or a `describe` whose skip is `standInMissing`. */
export function openCudaKernelRuntime(): Runtime {
  return openOn(openCudaDriver({ environment: { ...process.env, HOLDFAST_CUDA_PATH: buildStandIn() } }));
}

/** For tests that hold on every device: a `describe` each, opened inside. */
export const kernelDevices = [
  { device: "the CPU", skip: false, open: () => openKernelRuntime() },
  { device: "CUDA", skip: standInMissing, open: openCudaKernelRuntime },
] as const;

function openOn(device: Driver): Runtime {
  const runtime = openRuntime({
    driver: strict(device),
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

/** Step memory with these values in it. */
export function put(runtime: Runtime, values: ArrayBufferView, label: string): Storage {
  const storage = runtime.arena.allocate(values.byteLength, label);
  runtime.upload([{ source: values, target: storage }]);
  return storage;
}
