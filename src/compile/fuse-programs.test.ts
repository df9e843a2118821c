/** Fused programs against the same programs unfused: random ones, bit for bit, and proof that the comparison sees faults. */

import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import {
  bytesOf,
  callsOf,
  type DrawnProgram,
  drawnPrograms,
  valuesOf,
} from "../../test/support/drawn-programs.js";
import { openCpuKernelRuntime, put } from "../../test/support/kernel-runtime.js";
import { withMethods } from "../../test/support/replaced-methods.js";
import { runProgram } from "../../test/support/run-program.js";
import { sameBytes } from "../../test/support/same-bytes.js";
import { Order } from "./fuse/order.js";
import { fuse } from "./fuse.js";
import type { Buffer } from "./program.js";

const runtime = openCpuKernelRuntime(1);

let [before, after] = [0, 0];

/** Runs a program as it is and fused, and compares what is to be read of it. */
function requireSameBits(program: DrawnProgram): void {
  runtime.step(() => {
    const values = program.buffers.map((one, index) => valuesOf(one, program.sizes, index));
    const storages = values.map((own, index) => put(runtime, own, `buffer ${index}`));
    const buffers = program.buffers.map((one, id): Buffer => {
      const buffer = { id, bytes: bytesOf(one, program.sizes), label: `buffer ${id}` };
      return one.stays === "persistent" ? { ...buffer, storage: storages[id]! } : buffer;
    });
    const places = new Map(buffers.map((buffer, index) => [buffer, storages[index]!]));
    const calls = callsOf(program, buffers);
    const fused = fuse(calls, ({ id }) => program.buffers[id]?.stays === "kept");
    const read = (): Uint8Array[] => storages.map((storage) => runtime.read(storage));
    runProgram(runtime, calls, places);
    const expected = read();
    runtime.upload(values.map((source, index) => ({ source, target: storages[index]! })));
    runProgram(runtime, fused, places);
    const found = read();
    for (const [index, { stays }] of program.buffers.entries()) {
      if (stays !== "step") sameBytes(found[index]!, expected[index]!, `buffer ${index}`);
    }
    before += calls.length;
    after += fused.length;
  });
}

test("fused programs leave the very bits of the unfused ones, whatever they are made of", () => {
  fc.assert(fc.property(drawnPrograms, requireSameBits), { numRuns: 300 });
  assert.ok(after < before * 0.9, `${before} calls became ${after}`);
});

test("a fusion that lets calls pass each other unasked is caught by that", () => {
  const careless = {
    placeFor: (a: { position: number }, b: { position: number }) => Math.min(a.position, b.position),
  };
  const outcome = withMethods(Order.prototype, careless, () =>
    fc.check(fc.property(drawnPrograms, requireSameBits), { numRuns: 300, endOnFailure: true }),
  );
  assert.ok(outcome.failed);
});
