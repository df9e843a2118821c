/** A driver that counts its calls and measures how long the host spends in them. */

import type { Driver, DriverCall, Kernel, KernelSource } from "holdfast/internals";
import { type HostSpan, interceptCalls, type Launch } from "../../src/driver/index.js";
import type { Span } from "../../src/units/index.js";

export interface Counts {
  /** Launches of native kernels, and of the library's GEMMs. */
  launches: number;
  gemms: number;
  copiesUp: number;
  bytesUp: number;
  copiesDown: number;
  bytesDown: number;
  copiesOnDevice: number;
  fills: number;
  /** Times that the host waited for the device. */
  waits: number;
  /** Kernels that were loaded: compiled from code, and selected by the library. */
  loads: number;
  algorithms: number;
  waitMs: number;
  launchMs: number;
  loadMs: number;
  algorithmMs: number;
  copyMs: number;
  /** All other calls of the driver. */
  otherMs: number;
}

export function noCounts(): Counts {
  return {
    launches: 0,
    gemms: 0,
    copiesUp: 0,
    bytesUp: 0,
    copiesDown: 0,
    bytesDown: 0,
    copiesOnDevice: 0,
    fills: 0,
    waits: 0,
    loads: 0,
    algorithms: 0,
    waitMs: 0,
    launchMs: 0,
    loadMs: 0,
    algorithmMs: 0,
    copyMs: 0,
    otherMs: 0,
  };
}

export interface CountedDriver {
  readonly driver: Driver;
  readonly counts: Counts;
  reset(): void;
}

const waits: ReadonlySet<DriverCall> = new Set(["synchronize", "synchronizeEvent", "isReached"]);

export function countCalls(inner: Driver): CountedDriver {
  const counts = noCounts();
  const gemmKernels = new WeakSet<Kernel>();

  function note(call: DriverCall, args: readonly unknown[], ms: number, result: unknown): void {
    if (call === "launch") {
      if (gemmKernels.has((args[1] as Launch).kernel)) counts.gemms++;
      else counts.launches++;
      counts.launchMs += ms;
    } else if (waits.has(call)) {
      if (call !== "isReached") counts.waits++;
      counts.waitMs += ms;
    } else if (call === "copyToDevice") {
      counts.copiesUp++;
      counts.bytesUp += (args[1] as Span).size;
      counts.copyMs += ms;
    } else if (call === "copyToHost") {
      counts.copiesDown++;
      counts.bytesDown += (args[1] as HostSpan).size;
      counts.copyMs += ms;
    } else if (call === "loadKernel") {
      if ((args[0] as KernelSource).gemm) {
        gemmKernels.add(result as Kernel);
        counts.algorithms++;
        counts.algorithmMs += ms;
      } else {
        counts.loads++;
        counts.loadMs += ms;
      }
    } else {
      if (call === "copyOnDevice") counts.copiesOnDevice++;
      if (call === "fill") counts.fills++;
      counts.otherMs += ms;
    }
  }

  const driver = interceptCalls(inner, (call, args, proceed) => {
    const startedAt = performance.now();
    const result = proceed();
    note(call, args, performance.now() - startedAt, result);
    return result;
  });
  return { driver, counts, reset: () => void Object.assign(counts, noCounts()) };
}
