/** Wraps a driver so that a kernel which writes beside its outputs is found at once, by its name. */

import assert from "node:assert/strict";
import { HoldfastError } from "holdfast";
import type { Driver, Launch, Span, Stream } from "holdfast/internals";
import { interceptCalls } from "../../src/driver/index.js";
import { span } from "../../src/units/index.js";
import type { TestDriver } from "./test-device.js";

/** More than the widest store of any kernel: a tile of a product is four vectors wide. */
const guardBytes = 64;

/** Every launch must leave the bytes on both sides of each array that it writes as they were. */
export function guarded(device: TestDriver): Driver {
  return interceptCalls(device, (call, args, proceed) => {
    if (call !== "launch") return proceed();
    const [stream, launch] = args as [Stream, Launch];
    const written = writtenSpans(launch);
    device.synchronize(stream);
    const guards = written.flatMap((one) => [
      ...copyGuard(device, one.address - guardBytes, one.address),
      ...copyGuard(device, one.address + one.size, one.address + one.size + guardBytes),
    ]);
    const result = proceed();
    device.synchronize(stream);
    for (const { address, before } of guards) {
      const now = device.deviceBytes(span(address, before.length));
      for (const [index, byte] of before.entries()) {
        const place = address + index;
        if (now[index] === byte || written.some((one) => holds(one, place))) continue;
        const [nearest] = written;
        assert.fail(
          `${launch.kernel.name} wrote byte ${place}, outside its outputs, of which one is ${nearest?.size} bytes at ${nearest?.address}`,
        );
      }
    }
    return result;
  });
}

function writtenSpans({ kernel, arguments: given }: Launch): readonly Span[] {
  return kernel.parameters.flatMap((parameter, index) => {
    const value = given[index];
    return (parameter === "out" || parameter === "inout") && typeof value === "object" ? [value] : [];
  });
}

function holds({ address, size }: Span, place: number): boolean {
  return place >= address && place < address + size;
}

/** What stands there now; nothing where no memory is committed. */
function copyGuard(device: TestDriver, from: number, to: number): { address: number; before: Uint8Array }[] {
  try {
    return [{ address: from, before: device.deviceBytes(span(from, to - from)).slice() }];
  } catch (error) {
    if (error instanceof HoldfastError) return [];
    throw error;
  }
}
