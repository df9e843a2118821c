/**
 * Large GEMMs on a GPU whose operands have unaligned rows: the operands are copied to aligned rows, unless
 * they are large themselves.
 */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { Device, manualSeed, randn, type Tensor, zeros } from "holdfast";
import { emulatorMissing } from "./support/emulator.js";
import { openEmulatorGpu } from "./support/emulator-gpu.js";
import { withNullGpu } from "./support/null-gpu.js";
import { testEnvironment } from "./support/test-device.js";

describe("a GEMM on a GPU", { skip: emulatorMissing }, () => {
  const device = emulatorMissing ? undefined! : openEmulatorGpu({ precision: "tf32" });

  /** The description of the compiled GEMM of [rows, length] and [length, 256], without running it. */
  const explain = (rows: number, length: number): string =>
    withNullGpu("tf32", (device) => {
      const weight = zeros([length, 256], { device });
      const step = device.compile((x) => x.matmul(weight));
      step.memory(zeros([rows, length], { device }));
      const text = step.explain();
      step.close();
      return text;
    });

  const copies = /^ *\d+ +matmul +copy/m;

  test("copies rows of an odd length to aligned memory, where it reads them faster", () => {
    assert.match(explain(2000, 193), copies);
    assert.doesNotMatch(explain(2000, 192), copies, "these are aligned");
    assert.doesNotMatch(explain(200, 193), copies, "too small a GEMM to gain by it");
    assert.doesNotMatch(explain(25_000, 193), copies, "too large an operand to copy");
  });

  test("has the same result after the copy, normal and transposed", () => {
    const cpu = new Device("cpu", { memory: "64MiB", environment: testEnvironment, print: () => {} });
    try {
      const resultsOn = (on: Device): number[] => {
        manualSeed(8);
        const [x, weight] = [randn([360, 193], { device: on }), randn([193, 256], { device: on })];
        const other = randn([360, 256], { device: on });
        const columnSums = (of: Tensor): number[] => of.square().sum(0).tolist() as number[];
        return on.step(() => [...columnSums(x.matmul(weight)), ...columnSums(x.t().matmul(other))]);
      };
      const [expected, actual] = [resultsOn(cpu), resultsOn(device)];
      for (const [index, value] of expected.entries())
        assert.ok(
          Math.abs(actual[index]! - value) <= 0.01 * value,
          `sum ${index}: ${actual[index]}, ${value}`,
        );
    } finally {
      cpu.close();
    }
  });
});
