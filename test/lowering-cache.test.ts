/**
 * Every op twice, forward and backward: the second call, on other values with the same layout, replays the
 * lowering of the first. It has the same bits as on a device without a lowering cache.
 */

import assert from "node:assert/strict";
import { after, describe, test } from "node:test";
import { Device } from "holdfast";
import { strict } from "holdfast/internals";
import {
  contiguous,
  type DeviceArray,
  functions,
  type KernelOp,
  type Op,
  opTable,
} from "../src/ops/index.js";
import { loweringCacheOf } from "../src/ops/lowering-cache.js";
import { effort, isThorough } from "./support/effort.js";
import { drawCalls } from "./support/op-cases/draw-calls.js";
import { opCases } from "./support/op-cases/index.js";
import type { CaseCall, CaseOperand } from "./support/op-cases/op-case.js";
import { sampleCases } from "./support/op-cases/sample.js";
import { describeCall, runCase } from "./support/op-runs.js";
import { sameNamedBytes } from "./support/same-bytes.js";
import { openTestDriver, testDeviceKind, testEnvironment } from "./support/test-device.js";
import type { FloatDtype } from "./tolerances.js";

const seed = 20_261_115;
const callsOfACase = effort({ quick: 1, thorough: 4 });
const testedCases = effort({ quick: sampleCases(), thorough: opCases });
const elements = 60;
const floats = ["f32", "bf16", "f64", "f16"] as const satisfies readonly FloatDtype[];

const driver = openTestDriver();
const [following, plain] = [open(), open()];
after(() => {
  for (const device of [following, plain]) {
    device.close();
  }
  driver.close();
});
loweringCacheOf(plain.runtime).isOn = false;

function open(): Device {
  const quiet = { stallAfter: "off", environment: testEnvironment, print: () => {} } as const;
  return new Device(testDeviceKind, {
    driver: strict(driver),
    memory: "64MiB",
    staging: "1MiB",
    poison: true,
    ...quiet,
  });
}

interface Work {
  readonly op: Op;
  readonly call: CaseCall;
  readonly requiresGrad: readonly number[];
  readonly float: FloatDtype;
}

/** The ops, and the cases of an op, begin with different dtypes. */
function workOf(op: Op): readonly Work[] {
  const shift = Object.values(opTable).indexOf(op);
  return testedCases
    .filter((opCase) => opCase.op === op)
    .flatMap((opCase, first) =>
      drawCalls(opCase, { elements, seed, count: callsOfACase })
        // The last call has no elements. A quick run keeps it for some ops.
        .slice(0, isThorough || shift % 4 === 0 ? undefined : callsOfACase)
        .map((call, index) => ({
          op,
          call,
          requiresGrad: opCase.gradients === "none" ? [] : opCase.gradients,
          float: floats[(shift + first + index) % floats.length]!,
        })),
    );
}

/** Other values of the same kind: the same ones in reverse order. */
function reversed({ operands, attributes }: CaseCall): CaseCall {
  const reverse = (operand: CaseOperand): CaseOperand =>
    typeof operand === "object" ? { ...operand, values: operand.values.toReversed() } : operand;
  return { operands: operands.map(reverse), attributes };
}

/** The device that runs now. */
let current = following;

function run(device: Device, { op, call, requiresGrad, float }: Work): Record<string, ArrayBufferView> {
  current = device;
  return device.step(() => {
    const { outputs, gradients } = runCase(device, op, call, { float, wanted: requiresGrad });
    const named = gradients.flatMap((gradient, index) =>
      gradient ? [[`gradient ${index}`, gradient] as const] : [],
    );
    return Object.fromEntries([
      ...outputs.map((output, index) => [`output ${index}`, output] as const),
      ...named,
    ]);
  });
}

/** Counts all lowerings of all ops while a function runs. */
function countLowerings(body: () => void): Readonly<Record<string, number>> {
  const counts: Record<string, number> = {};
  const kernelOps = Object.values(opTable).filter((op): op is KernelOp => op.kind === "kernel");
  const originals = kernelOps.map((op) => op.lower);
  for (const [index, op] of kernelOps.entries()) {
    Object.assign(op, {
      lower: (...args: Parameters<KernelOp["lower"]>) => {
        counts[op.name] = (counts[op.name] ?? 0) + 1;
        originals[index]!.call(op, ...args);
      },
    });
  }
  try {
    body();
  } finally {
    for (const [index, op] of kernelOps.entries()) Object.assign(op, { lower: originals[index] });
  }
  return counts;
}

/** Runs a call and then a similar one on both devices. */
function compare(work: Work): void {
  const text = `${describeCall(work.op, work.call)} in ${work.float}`;
  const again = { ...work, call: reversed(work.call) };
  sameNamedBytes(run(following, work), run(plain, work), `${text}, the first time`);
  const expected = run(plain, again);
  const lowered = countLowerings(() => sameNamedBytes(run(following, again), expected, `${text}, again`));
  assert.deepEqual(lowered, {}, `${text} was lowered again`);
}

describe("with the lowering cache and without", () => {
  for (const [name, op] of Object.entries(opTable)) {
    test(`${name} gives the same bits, the first time and the second`, () => {
      for (const work of workOf(op)) compare(work);
    });
  }

  test("lowerings are counted: a call with a new shape is one", () => {
    const shape = [3, 1, 7, 1];
    const operand = {
      shape,
      values: new Array<number>(21).fill(1),
      dtype: "f32",
      layout: "contiguous",
    } as const;
    const call: CaseCall = { operands: [operand], attributes: {} };
    const work: Work = { op: functions.exp as Op, call, requiresGrad: [], float: "f32" };
    assert.deepEqual(
      countLowerings(() => void run(following, work)),
      { exp: 1 },
    );
    assert.deepEqual(
      countLowerings(() => void run(following, work)),
      {},
    );
    assert.deepEqual(
      countLowerings(() => void run(plain, work)),
      { exp: 1 },
    );
  });

  test("red proof: a lowering that depends on values is detected", () => {
    const peeking: KernelOp = {
      ...(contiguous as KernelOp),
      name: "peeking",
      lower(lowering, [x], [out]) {
        const { storage } = x as DeviceArray;
        if (storage && out?.storage) lowering.fill(out.storage, current.runtime.read(storage)[0]!);
      },
    };
    const call: CaseCall = {
      operands: [{ shape: [2], values: [1, 2], dtype: "i32", layout: "contiguous" }],
      attributes: {},
    };
    assert.throws(
      () => compare({ op: peeking as Op, call, requiresGrad: [], float: "f32" }),
      assert.AssertionError,
    );
  });
});
