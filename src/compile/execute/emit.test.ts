/** Emission: the kernels of a program are compiled in one call. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { emulatorMissing } from "../../../test/support/emulator.js";
import { openEmulatorDriver } from "../../../test/support/emulator-driver.js";
import { type DriverCall, interceptCalls, type KernelSource } from "../../driver/index.js";
import { iterateElements, type RowKernel, term } from "../../ir/index.js";
import { openRuntime } from "../../runtime/index.js";
import type { Buffer, Call } from "../program/program.js";
import { emitCommands } from "./emit.js";

const buffer: Buffer = { id: 0, bytes: 64, label: "x" };
const whole = { buffer, offset: 0, size: 64 };

/** Adds a number to 16 elements in place. */
function addCall(number: number): Call {
  const kernel: RowKernel = {
    ...{ name: `add${number}`, inputs: ["f32"], outputs: [{ dtype: "f32", per: "element" }], scalars: [] },
    stages: [{ kind: "store", output: 0, value: term.add(term.load(0, "f32"), number) }],
  };
  const iteration = iterateElements([16], [[1], [1]]);
  return { op: "add", work: { kind: "row", kernel, iteration, scalars: [], operands: [whole, whole] } };
}

describe("emission", { skip: emulatorMissing }, () => {
  test("compiles the kernels of all calls at once, each once, before it loads the first", () => {
    const device = openEmulatorDriver();
    const seen: [DriverCall, string][] = [];
    const driver = interceptCalls(device, (call, args, proceed) => {
      const [given] = args as [KernelSource | readonly KernelSource[]];
      if (call === "compileKernels" || call === "loadKernel")
        seen.push([call, [given].flat().length.toString()]);
      return proceed();
    });
    const runtime = openRuntime({
      ...{ driver, memory: "64MiB", stallAfter: "off", environment: {}, print: () => {} },
    });
    try {
      const x = runtime.arena.allocate(64, "x");
      const calls = [addCall(1), addCall(2), addCall(1), addCall(3)];
      const commands = emitCommands(runtime, calls, () => x);
      assert.deepEqual(
        commands.map(({ call, command }) => [call, command.kind]),
        calls.map((_, index) => [index, "launch"]),
      );
      const load = ["loadKernel", "1"];
      assert.deepEqual(seen, [["compileKernels", "3"], load, load, load]);
      emitCommands(runtime, calls, () => x);
      assert.equal(seen.length, 4);
    } finally {
      runtime.close();
      device.close();
    }
  });
});
