/**
 * The CUDA driver over the emulator, for tests of the driver itself, and the resources that the emulator
 * counts as held.
 */

import assert from "node:assert/strict";
import {
  bytes,
  type CudaDriver,
  type CudaDriverOptions,
  openCudaDriver,
  type Span,
  type Stream,
} from "holdfast/internals";
import { buildEmulator, compilingTogether, type EmulatorFigure, openEmulator } from "./emulator.js";

const figures = [
  "usedMemory",
  "reservations",
  "allocations",
  "hostAllocations",
  "streams",
  "events",
  "graphs",
  "executables",
  "modules",
] as const satisfies readonly EmulatorFigure[];

export type Held = Readonly<Record<(typeof figures)[number], number>>;

/** The emulator's resources that this process holds now. */
export function heldOnEmulator(): Held {
  const emulator = openEmulator();
  return Object.fromEntries(figures.map((figure) => [figure, emulator.get(figure)])) as Held;
}

/** One thread compiles by default: other test processes have the other processors. */
export function openEmulatorDriver(options: Omit<CudaDriverOptions, "environment"> = {}): CudaDriver {
  const environment = { HOLDFAST_CUDA_PATH: buildEmulator() };
  return compilingTogether(openCudaDriver({ environment, threads: 1, ...options }));
}

/** Runs `use` on a fresh driver, and checks that it frees everything when it is closed. */
export function withEmulatorDriver<T>(
  options: Omit<CudaDriverOptions, "environment">,
  use: (driver: CudaDriver) => T,
): T {
  const before = heldOnEmulator();
  const driver = openEmulatorDriver(options);
  let result: T;
  try {
    result = use(driver);
  } finally {
    driver.close();
  }
  assert.deepEqual(heldOnEmulator(), before, "what is held after close");
  return result;
}

/** Committed memory, a stream, and transfers in both directions. */
export function openBench(driver: CudaDriver, size = 65_536) {
  const memory = driver.reserve(bytes(size));
  driver.commit(memory);
  const stream = driver.createStream();
  const host = driver.allocateHost(memory.size);

  function write(target: Span, values: ArrayBufferView): void {
    const range = { memory: host, offset: bytes(0), size: target.size };
    driver.hostBytes(range).set(new Uint8Array(values.buffer, values.byteOffset, values.byteLength));
    driver.copyToDevice(stream, target, range);
    driver.synchronize(stream);
  }

  function read(source: Span, on: Stream = stream): Uint8Array<ArrayBuffer> {
    const range = { memory: host, offset: bytes(0), size: source.size };
    driver.copyToHost(on, range, source);
    driver.synchronize(on);
    return Uint8Array.from(driver.hostBytes(range));
  }

  return { memory, stream, host, write, read };
}
