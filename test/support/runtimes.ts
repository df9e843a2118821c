/**
 * Runtimes for tests: quiet, unwatched, on the device under test and under `strict`, every upload checked by
 * its checksum, and always closed.
 */

import type { RuntimeOptions } from "holdfast";
import { bytes, type Driver, openRuntime, type Runtime, type Storage, strict } from "holdfast/internals";
import { openTestCpu, openTestDriver, type TestDriver, testEnvironment } from "./test-device.js";

export interface TestRuntime {
  readonly runtime: Runtime;
  /** The device under the wrappers, for reading its bytes. */
  readonly device: TestDriver;
}

/** Runs `use` on a fresh runtime. `wrap` wraps the device; default: `strict`. */
export function withRuntime<T>(
  options: RuntimeOptions,
  use: (opened: TestRuntime) => T,
  wrap: (device: TestDriver) => Driver = strict,
): T {
  return withRuntimeOn(openTestDriver(), options, use, wrap);
}

/** The same on the CPU, whatever device is under test: for tests of the CPU's memory. */
export function withCpuRuntime<T>(
  options: RuntimeOptions,
  use: (opened: TestRuntime) => T,
  wrap: (device: TestDriver) => Driver = strict,
): T {
  return withRuntimeOn(openTestCpu(), options, use, wrap);
}

function withRuntimeOn<T>(
  device: TestDriver,
  options: RuntimeOptions,
  use: (opened: TestRuntime) => T,
  wrap: (device: TestDriver) => Driver,
): T {
  try {
    const driver = wrap(device);
    const runtime = openRuntime({
      driver,
      stallAfter: "off",
      environment: testEnvironment,
      print: () => {},
      verifyUploads: true,
      // The CPU's chunk size: a GPU's would be as large as the budget of some tests.
      chunk: bytes(4 * 1024 * 1024),
      // The default is cleared at each opening.
      staging: "2MiB",
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

/** Uploads float32 values to a storage of their exact size. */
export function writeF32(runtime: Runtime, storage: Storage, values: readonly number[] | Float32Array): void {
  runtime.upload([{ source: Float32Array.from(values), target: storage }]);
}
