/** The GPU under test with faults in its kernels: a red proof shows that a check detects them. */

import assert from "node:assert/strict";
import { openRuntime, type Runtime, strict } from "holdfast/internals";
import { interceptCalls, type KernelSource } from "../../src/driver/index.js";
import type { Precision } from "./null-gpu.js";
import { openTestGpu } from "./test-device.js";

interface Fault {
  /** The text in a kernel's code, and what stands there instead. */
  readonly from: string;
  readonly to: string;
  readonly precision?: Precision;
}

/** Passes `use` a runtime whose kernels are altered. At least one of them must have the text. */
export function withAlteredKernels(
  { from, to, precision = "f32" }: Fault,
  use: (runtime: Runtime) => void,
): void {
  let isAltered = false;
  const gpu = openTestGpu();
  const driver = interceptCalls(strict(gpu), (call, args, proceed) => {
    const source = call === "loadKernel" ? (args[0] as KernelSource) : undefined;
    if (source?.cuda) {
      isAltered ||= source.cuda.code.includes(from);
      const code = source.cuda.code.replaceAll(from, to);
      Object.assign(args, [{ ...source, cuda: { ...source.cuda, code } }]);
    }
    return proceed();
  });
  const runtime = openRuntime({
    ...{ driver, precision, memory: "256MiB", stallAfter: "off", environment: {}, print: () => {} },
  });
  try {
    use(runtime);
  } finally {
    runtime.close();
    gpu.close();
  }
  assert.ok(isAltered, `no kernel has "${from}"`);
}
