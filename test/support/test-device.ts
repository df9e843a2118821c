/**
 * The device under test, which the variable TEST_DEVICE selects. Default: the CPU; "cuda" for the machine's
 * GPU; "emulator" for the CUDA driver over libraries that run on the CPU. A test holds on all three devices,
 * so its name is the same on all three.
 */

import {
  bytes,
  type CudaDriver,
  type Driver,
  openCpuDriver,
  openCudaDriver,
  type Span,
  type Stream,
} from "holdfast/internals";
import { defaultCacheFolder, type HostMemory } from "../../src/driver/index.js";
import { buildEmulator, compilingTogether } from "./emulator.js";

const names = ["cpu", "emulator", "cuda"] as const;

export type TestDevice = (typeof names)[number];

/** The value of TEST_DEVICE. */
export const testDevice: TestDevice = readName(process.env["TEST_DEVICE"] ?? "cpu");

/** The name of the device under test. */
export const testDeviceKind: "cpu" | "cuda" = testDevice === "cpu" ? "cpu" : "cuda";

/**
 * The variables of test devices instead of the process's: a rejected plan fails the test, where a user's step
 * would only be slower.
 */
export const testEnvironment = { HOLDFAST_ON_REJECTED_PLAN: "error" } as const;

/** A driver that gives tests access to its memory, without wrappers and checks. */
export interface TestDriver extends Driver {
  /** The current bytes, even while work is pending; a copy of a GPU's memory. */
  deviceBytes(range: Span): Uint8Array;
  /** Lets a function change the bytes. */
  alterBytes(range: Span, change: (bytes: Uint8Array) => void): void;
}

export interface TestDriverOptions {
  /** Of the CPU's driver; default: 1. */
  readonly threads?: number;
}

/** Opens the device under test. If that is a GPU and there is none, this throws NO_CUDA: nothing is skipped. */
export function openTestDriver({ threads = 1 }: TestDriverOptions = {}): TestDriver {
  return testDevice === "cpu" ? openTestCpu(threads) : openTestGpu();
}

/** The CPU, whatever device is under test: for comparisons with it. */
export function openTestCpu(threads = 1): TestDriver {
  const driver = openCpuDriver({ threads });
  return Object.assign(driver, {
    alterBytes: (range: Span, change: (bytes: Uint8Array) => void) => change(driver.deviceBytes(range)),
  });
}

/** The GPU under test; the emulator if none is. */
export function openTestGpu(): TestDriver {
  if (testDevice !== "cuda") {
    const environment = { ...process.env, HOLDFAST_CUDA_PATH: buildEmulator() };
    return withLooks(compilingTogether(openCudaDriver({ environment, threads: 1 })));
  }
  const { HOLDFAST_CACHE: cacheFolder = defaultCacheFolder(process.env) } = process.env;
  return withLooks(openCudaDriver({ cacheFolder }));
}

/**
 * The number of runs of a property in which each run compiles a kernel: for a GPU by NVRTC, for the emulator
 * by g++.
 */
export function runsOfKernels(onCpu: number): number {
  return Math.ceil(onCpu / { cpu: 1, emulator: 15, cuda: 4 }[testDevice]);
}

const windowBytes = 64 * 1024;

/** Reads use pinned memory and a separate stream, which end when the driver is closed. */
function withLooks(driver: CudaDriver): TestDriver {
  let transfer: { readonly stream: Stream; readonly memory: HostMemory } | undefined;

  function pass({ address, size }: Span, move: (slice: Span, window: Uint8Array, at: number) => void): void {
    transfer ??= { stream: driver.createStream(), memory: driver.allocateHost(bytes(windowBytes)) };
    const { stream, memory } = transfer;
    for (let at = 0; at < size; at += windowBytes) {
      const slice = { address: address + at, size: Math.min(windowBytes, size - at) } as Span;
      const range = { memory, offset: bytes(0), size: slice.size };
      driver.copyToHost(stream, range, slice);
      driver.synchronize(stream);
      move(slice, driver.hostBytes(range), at);
    }
  }

  return Object.assign(driver, {
    deviceBytes(range: Span): Uint8Array {
      const bytes = new Uint8Array(range.size);
      pass(range, (_, window, at) => bytes.set(window, at));
      return bytes;
    },
    alterBytes(range: Span, change: (bytes: Uint8Array) => void): void {
      const copy = this.deviceBytes(range);
      change(copy);
      pass(range, (slice, window, at) => {
        window.set(copy.subarray(at, at + slice.size));
        const { stream, memory } = transfer!;
        driver.copyToDevice(stream, slice, { memory, offset: bytes(0), size: slice.size });
        driver.synchronize(stream);
      });
    },
  });
}

function readName(text: string): TestDevice {
  const device = names.find((name) => name === text);
  if (device === undefined) throw new Error(`TEST_DEVICE is "${text}"; it takes ${names.join(", ")}.`);
  return device;
}
