/**
 * Runtimes for tests: quiet, unwatched, on the CPU driver under `strict`, every upload checked by its checksum, and closed
 * whatever the test does.
 */

import {
  type CpuDriver,
  type Driver,
  openCpuDriver,
  openRuntime,
  type Runtime,
  type RuntimeOptions,
  type Storage,
  strict,
} from "holdfast";

export interface TestRuntime {
  readonly runtime: Runtime;
  /** The device under the wrappers, to look at its bytes. */
  readonly device: CpuDriver;
}

/** Runs `use` on a fresh runtime. `wrap` puts wrappers around the device; `strict` unless given. */
export function withRuntime<T>(
  options: RuntimeOptions,
  use: (opened: TestRuntime) => T,
  wrap: (device: CpuDriver) => Driver = strict,
): T {
  const device = openCpuDriver({ threads: 1 });
  const driver = wrap(device);
  try {
    const runtime = openRuntime({
      driver,
      stallAfter: "off",
      environment: {},
      print: () => {},
      verifyUploads: true,
      ...options,
    });
    try {
      return use({ runtime, device });
    } finally {
      runtime.close();
    }
  } finally {
    device.close();
  }
}

/** A storage's values, read back as float32. */
export function readF32(runtime: Runtime, storage: Storage): Float32Array {
  return new Float32Array(runtime.read(storage).buffer);
}

/** Uploads float32 values to a storage of just their size. */
export function writeF32(runtime: Runtime, storage: Storage, values: readonly number[] | Float32Array): void {
  runtime.upload([{ source: Float32Array.from(values), target: storage }]);
}
