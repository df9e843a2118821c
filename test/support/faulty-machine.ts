/** Runs the doctor on a faulty machine and checks that it fails in one phase, for one reason. */

import assert from "node:assert/strict";
import { type Driver, openCpuDriver, type Span } from "holdfast/internals";
import { type DoctorOptions, type DoctorReport, runDoctor } from "../../src/cli/doctor/index.js";
import type { DoctorPhase } from "../../src/cli/doctor/phase-log.js";
import { exitCodes } from "../../src/errors/index.js";
import type { Bytes } from "../../src/units/index.js";
import { tinySizes } from "./crossasset-runs.js";
import { withIdleThreads } from "./idle-threads.js";
import { testEnvironment } from "./test-device.js";

/** Sizes with which a run takes a moment, and every phase has something to check. */
export const smallDoctor = {
  device: "cpu",
  rows: 300,
  batch: 2,
  steps: 3,
  model: tinySizes,
  environment: testEnvironment,
  // Processes take time; command.test.ts starts them.
  tryRanks: () => ({ mpi: { problem: "not tried" }, nccl: null }),
} as const satisfies DoctorOptions;

/**
 * `inject` wraps the driver with the fault; the caller replaces methods, around this call. The doctor's
 * watchdogs don't run: they would take half of the time.
 */
export function failsIn(
  phase: DoctorPhase,
  reason: RegExp,
  inject: (driver: Driver) => Driver = (driver) => driver,
): void {
  const machine = openCpuDriver({ threads: 1 });
  let text = "";
  const write = (chunk: string): void => {
    text += chunk;
  };
  try {
    const options = { ...smallDoctor, driver: inject(machine) };
    const code = withIdleThreads(() =>
      runDoctor(options, { version: "1.2.3", columns: 112, json: true, write }),
    );
    const { passed, phases }: DoctorReport = JSON.parse(text);
    const failed = phases.filter(({ outcome }) => outcome === "failed");
    assert.deepEqual(
      failed.map(({ name }) => name),
      [phase],
    );
    assert.match(failed[0]?.failure ?? "", reason);
    assert.equal(passed, false);
    assert.equal(code, exitCodes.failed.code);
  } finally {
    machine.close();
  }
}

/** The first byte of a span. */
export function firstByteOf(span: Span): Span {
  return { address: span.address, size: 1 as Bytes };
}
