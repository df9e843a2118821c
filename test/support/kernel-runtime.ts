/** A runtime for a file of kernel tests: strict, poisoned, quiet, and closed after the file's last test. */

import { after } from "node:test";
import { openCpuDriver, openRuntime, type Runtime, type Storage, strict } from "holdfast";

export function openKernelRuntime(threads = 2): Runtime {
  const device = openCpuDriver({ threads });
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
