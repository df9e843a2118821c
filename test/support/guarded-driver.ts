/** Wraps a driver so that a kernel which writes outside its outputs is found at once, by its name. */

import assert from "node:assert/strict";
import { HoldfastError } from "holdfast";
import type { Driver, Launch, Span, Stream } from "holdfast/internals";
import { interceptCalls } from "../../src/driver/index.js";
import { span } from "../../src/units/index.js";
import type { TestDriver } from "./test-device.js";

/** More than the widest store of any kernel: a tile of a GEMM is four vectors wide. */
const guardBytes = 64;

/** Every launch must leave the bytes on both sides of each output unchanged. */
export function guarded(device: TestDriver): Driver {
  return interceptCalls(device, (call, args, proceed) => {
    if (call !== "launch") return proceed();
    const [stream, launch] = args as [Stream, Launch];
    const written = writtenSpans(launch);
    device.synchronize(stream);
    const guards = written.flatMap((span) => [
      ...copyGuard(device, span.address - guardBytes, span.address),
      ...copyGuard(device, span.address + span.size, span.address + span.size + guardBytes),
    ]);
    const result = proceed();
    device.synchronize(stream);
    for (const { address, before } of guards) {
      const now = device.deviceBytes(span(address, before.length));
      for (const [index, byte] of before.entries()) {
        const at = address + index;
        if (now[index] === byte || written.some((span) => holds(span, at))) continue;
        const [nearest] = written;
        assert.fail(
          `${launch.kernel.name} wrote byte ${at}, outside its outputs, of which one is ${nearest?.size} bytes at ${nearest?.address}`,
        );
      }
    }
    return result;
  });
}

function writtenSpans({ kernel, arguments: args }: Launch): readonly Span[] {
  return kernel.parameters.flatMap((parameter, index) => {
    const value = args[index];
    return (parameter === "out" || parameter === "inout") && typeof value === "object" ? [value] : [];
  });
}

function holds({ address, size }: Span, at: number): boolean {
  return at >= address && at < address + size;
}

/** The current bytes; empty if no memory is committed. */
function copyGuard(device: TestDriver, from: number, to: number): { address: number; before: Uint8Array }[] {
  try {
    return [{ address: from, before: device.deviceBytes(span(from, to - from)).slice() }];
  } catch (error) {
    if (error instanceof HoldfastError) return [];
    throw error;
  }
}
