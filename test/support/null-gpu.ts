/**
 * A GPU for plans only: it describes itself as an H100 and runs nothing, so that a step can be planned for it
 * on any machine.
 */

import { Device } from "holdfast";
import { Guards } from "../../src/autograd/index.js";
import {
  assignStreams,
  type PassSettings,
  type PlannedStep,
  planStep,
  streamOptions,
  traceStep,
} from "../../src/compile/index.js";
import type { BufferSlice } from "../../src/compile/program/program.js";
import type { Storage } from "../../src/runtime/index.js";
import { span } from "../../src/units/index.js";
import { openPrintingDriver } from "./source-recording-driver.js";
import { testEnvironment } from "./test-device.js";

export type Precision = "f32" | "tf32" | "bf16";

const h100Multiprocessors = 132;

/** Runs `use` on a fresh GPU, which is always closed. A plan that is rejected there is an error. */
export function withNullGpu<T>(
  precision: Precision,
  use: (device: Device) => T,
  { multiprocessors = h100Multiprocessors, memory = "1GiB" } = {},
): T {
  const { driver } = openPrintingDriver({ parallelism: multiprocessors, supportsPdl: true });
  try {
    const device = new Device("cuda", {
      ...{ driver, precision, memory, staging: "4MiB", stallAfter: "off" },
      ...{ environment: testEnvironment, print: () => {} },
    });
    try {
      return use(device);
    } finally {
      device.close();
    }
  } finally {
    driver.close();
  }
}

/** A storage without memory: the sources of kernels depend on the alignment of addresses alone. */
export function storageWithoutMemory({ buffer, offset, size }: BufferSlice): Storage {
  if (buffer.storage) return { ...buffer.storage, span: span(buffer.storage.span.address + offset, size) };
  return {
    ...{ kind: "step", span: span(2 ** 40 + offset, size), generation: 0, label: buffer.label },
    ...{ home: storageWithoutMemory, owner: undefined },
  };
}

/** The plans of a step: without side streams, then with each kind of them that has work. Nothing runs. */
export function planAllSchedules(
  device: Device,
  step: () => unknown,
  passes: PassSettings = {},
): readonly PlannedStep[] {
  const { runtime } = device;
  const guards = new Guards();
  const trace = traceStep(runtime, () => device.inTracedStep(() => guards.watch(device, () => void step())));
  guards.undo();
  const planned = planStep(runtime, trace, passes);
  const streamed = Object.values(streamOptions).flatMap(
    (options) => assignStreams(runtime, planned, options) ?? [],
  );
  return [planned, ...streamed];
}
