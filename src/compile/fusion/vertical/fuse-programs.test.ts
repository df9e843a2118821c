/** Fused programs against the same programs unfused: random ones, bit for bit, and proof that the comparison sees faults. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { effort } from "../../../../test/support/effort.js";
import { kernelDevices, put } from "../../../../test/support/kernel-runtime.js";
import {
  bytesOf,
  callsOf,
  type RandomProgram,
  randomPrograms,
  valuesOf,
} from "../../../../test/support/random-program.js";
import { withMethods } from "../../../../test/support/replaced-methods.js";
import { onCalls } from "../../../../test/support/rewritten.js";
import { runProgram } from "../../../../test/support/run-program.js";
import { sameBytes } from "../../../../test/support/same-bytes.js";
import type { Runtime } from "../../../runtime/index.js";
import { type Buffer, Program } from "../../program/program.js";
import { fuse as fuseIn } from "./fuse.js";

const fuse = onCalls(fuseIn);

/** Runs a program as it is and fused, and compares what is to be read of it; returns how many calls there were and are. */
function requireSameBits(runtime: Runtime, program: RandomProgram): { before: number; after: number } {
  return runtime.step(() => {
    const values = program.buffers.map((one, index) => valuesOf(one, program.sizes, index));
    const storages = values.map((own, index) => put(runtime, own, `buffer ${index}`));
    const buffers = program.buffers.map((one, id): Buffer => {
      const buffer = { id, bytes: bytesOf(one, program.sizes), label: `buffer ${id}` };
      return one.stays === "persistent" ? { ...buffer, storage: storages[id]! } : buffer;
    });
    const places = new Map(buffers.map((buffer, index) => [buffer, storages[index]!]));
    const calls = callsOf(program, buffers);
    const isRead = ({ id }: Buffer): boolean => program.buffers[id]?.stays === "kept";
    const fused = fuse(runtime, calls, { isRead });
    const read = (): Uint8Array[] => storages.map((storage) => runtime.read(storage));
    runProgram(runtime, calls, places);
    const expected = read();
    runtime.upload(values.map((source, index) => ({ source, target: storages[index]! })));
    runProgram(runtime, fused, places);
    const found = read();
    for (const [index, { stays }] of program.buffers.entries()) {
      if (stays !== "step") sameBytes(found[index]!, expected[index]!, `buffer ${index}`);
    }
    return { before: calls.length, after: fused.length };
  });
}

for (const { device, skip, open } of kernelDevices) {
  describe(`on ${device}`, { skip }, () => {
    const runtime = open();
    // A compiler for GPUs takes its time for each kernel.
    const numRuns =
      runtime.device.kind === "cpu"
        ? effort({ quick: 30, thorough: 250 })
        : effort({ quick: 2, thorough: 8 });

    test("fused programs leave the very bits of the unfused ones, whatever they are made of", () => {
      let [before, after] = [0, 0];
      const compare = (program: RandomProgram): void => {
        const counts = requireSameBits(runtime, program);
        before += counts.before;
        after += counts.after;
      };
      // Some that are the same every time, and can be fused: a few random ones may have nothing to fuse.
      const examples = fc
        .sample(randomPrograms, { seed: 3, numRuns: 4 })
        .map((one): [RandomProgram] => [one]);
      fc.assert(fc.property(randomPrograms, compare), { numRuns: numRuns + examples.length, examples });
      assert.ok(after < before, `${before} calls became ${after}`);
    });
  });
}

describe("that comparison", () => {
  const runtime = kernelDevices[0].open();

  /** Does some program give other bits while methods are exchanged? */
  function isCaught<Instance extends object>(prototype: Instance, methods: Partial<Instance>): boolean {
    const property = fc.property(randomPrograms, (program) => void requireSameBits(runtime, program));
    const settings = { seed: 8, numRuns: 300, endOnFailure: true };
    return withMethods(prototype, methods, () => fc.check(property, settings)).failed;
  }

  test("catches a fusion that lets calls pass each other unasked", () => {
    const fusionAnchor: Program["fusionAnchor"] = (a, b) => (a.isBefore(b) ? a : b);
    assert.ok(isCaught(Program.prototype, { fusionAnchor }));
  });
});
