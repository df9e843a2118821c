/**
 * Every op again, forward and backward, in hostile memory: under the strict driver with poison, in an arena
 * with no byte to spare, and in memory with old values. The results equal the plain run's, bit for bit.
 */

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { Device, type DeviceOptions, HoldfastError } from "holdfast";
import { basicKernels, bytes, type Driver, strict } from "holdfast/internals";
import { contiguous, type KernelOp, type Op, opTable } from "../src/ops/index.js";
import { Arena } from "../src/runtime/index.js";
import { GiB } from "../src/units/index.js";
import { effort, isThorough } from "./support/effort.js";
import { fakeHost } from "./support/fake-host.js";
import { guarded } from "./support/guarded-driver.js";
import { drawCalls } from "./support/op-cases/draw-calls.js";
import { opCases, testedOps } from "./support/op-cases/index.js";
import type { CaseCall } from "./support/op-cases/op-case.js";
import { sampleCases } from "./support/op-cases/sample.js";
import { describeCall, runCase } from "./support/op-runs.js";
import { withMethods } from "./support/replaced-methods.js";
import { sameNamedBytes } from "./support/same-bytes.js";
import { openTestDriver, type TestDriver, testDeviceKind, testEnvironment } from "./support/test-device.js";
import type { FloatDtype } from "./tolerances.js";

const seed = 20_240_611;
const callsOfACase = effort({ quick: 1, thorough: 5 });
const testedCases = effort({ quick: sampleCases(), thorough: opCases });
const elements = 150;
/** Each call in one of these dtypes: they differ in how elements are loaded, stored and grouped into vectors. */
const floats = ["f32", "f64", "bf16", "f32", "f16"] as const satisfies readonly FloatDtype[];
/** As a float about 0.75: a stale read would look like a value. */
const dirt = 0x3f;
const dirtyArenaBytes = 2 ** 20;

// A device reads the size of the host's memory when it opens. This fake host makes that fast.
const host = fakeHost(4 * GiB, 4 * GiB);
const driver = openTestDriver();
const plain = open(driver, (device) => device, {});
const dirty = open(driver, strict, { arena: bytes(dirtyArenaBytes) });
after(() => {
  plain.close();
  dirty.close();
  driver.close();
  host.remove();
});

interface Work {
  readonly op: Op;
  readonly call: CaseCall;
  readonly requiresGrad: readonly number[];
  readonly float: FloatDtype;
}

for (const [name, op] of testedOps) {
  test(`${name}: poison, an arena without a byte to spare and dirty memory change no bit`, () => {
    const work = workOf(op);
    assert.ok(work.length > 0, `no case generates operands for ${name}: add a case to its family's file`);
    checkMemory(work);
  });
}

/** Copies like `contiguous`, with one fault. */
const careless: Readonly<Record<string, KernelOp["lower"]>> = {
  "an output is left unwritten": () => {},
  "memory is read before it was written": (lowering, _, outputs, attributes) => {
    const [output] = outputs;
    const unwritten = lowering.scratchArray(output!.shape, output!.dtype);
    contiguous.lower(lowering, [unwritten], outputs, attributes);
  },
  "an element after the output is written": (lowering, operands, outputs, attributes) => {
    const [output] = outputs;
    if (!output?.storage) return;
    const tooMany = Math.ceil(output.storage.span.size / 4) + 1;
    const source = basicKernels.fill;
    lowering.launch({ op: "fill", source, blocks: 1, arguments: [output.storage, 1, tooMany] });
    contiguous.lower(lowering, operands, outputs, attributes);
  },
};

for (const [fault, lower] of Object.entries(careless)) {
  test(`red proof: ${fault}, and the check detects it`, () => {
    const op: Op = { ...contiguous, name: "careless", lower };
    const work = workOf(contiguous).map((item) => ({ ...item, op }));
    assert.throws(() => checkMemory(work), assert.AssertionError);
  });
}

test("the arena has no byte to spare: with 256 bytes less, the op that needs the most is rejected", () => {
  const work = workOf(opTable["matmul"]!);
  const { arenaBytes } = runPlain(work);
  withDevice(strict, { arena: bytes(arenaBytes - 256) }, (tight) => {
    assert.throws(
      () => {
        for (const item of work) run(tight, item);
      },
      (error) => error instanceof HoldfastError && error.code === "ARENA_FULL",
    );
  });
});

/**
 * Does the same work three times: plain; poisoned, in a tight arena under the strict driver; and in dirty memory. A quick run makes only
 * one call in dirty memory.
 */
function checkMemory(work: readonly Work[]): void {
  const expected = runPlain(work);
  // The smallest arena has one storage.
  const arena = bytes(Math.max(256, expected.arenaBytes));
  const hostile = (device: TestDriver): Driver => strict(guarded(device));
  withDevice(hostile, { poison: true, arena }, (tight) => {
    for (const [index, item] of work.entries()) {
      sameNamedBytes(run(tight, item), expected.results[index]!, `${describe(item)}, poisoned and tight`);
    }
  });
  for (const [index, item] of work.slice(0, isThorough ? undefined : 1).entries()) {
    dirty.step(() => {
      const { arena: memory } = dirty.runtime;
      dirty.runtime.fill(memory.allocate(dirtyArenaBytes, "dirt"), dirt);
    });
    sameNamedBytes(run(dirty, item), expected.results[index]!, `${describe(item)}, in dirty memory`);
  }
}

/** On the plain driver, with free space; and the bytes that it took of the arena. */
function runPlain(work: readonly Work[]): { results: Record<string, ArrayBufferView>[]; arenaBytes: number } {
  const { allocate } = Arena.prototype;
  let arenaBytes = 0;
  const noting: Pick<Arena, "allocate"> = {
    allocate(this: Arena, ...request) {
      const storage = allocate.apply(this, request);
      arenaBytes = Math.max(arenaBytes, this.figures.offset);
      return storage;
    },
  };
  const results: Record<string, ArrayBufferView>[] = [];
  withMethods(Arena.prototype, noting, () => {
    for (const item of work) results.push(run(plain, item));
  });
  return { results, arenaBytes };
}

/**
 * Each op starts with a different dtype. In a thorough run, so does each case of an op. In a quick run, all cases of an op use one dtype
 * and share kernels.
 */
function workOf(op: Op): readonly Work[] {
  const shift = Object.values(opTable).indexOf(op);
  const cases = testedCases.filter((opCase) => opCase.op === op);
  return cases.flatMap((opCase, first) =>
    drawCalls(opCase, { elements, seed, count: callsOfACase })
      // The last call has no elements. A quick run keeps it for the first case of some ops.
      .slice(0, isThorough || (first === 0 && shift % 4 === 0) ? undefined : callsOfACase)
      .map((call, index) => ({
        op,
        call,
        requiresGrad: opCase.gradients === "none" ? [] : opCase.gradients,
        float: floats[(shift + (isThorough ? first + index : 0)) % floats.length]!,
      })),
  );
}

/** Outputs and gradients of one step, as bytes. */
function run(device: Device, { op, call, requiresGrad, float }: Work): Record<string, ArrayBufferView> {
  return device.step(() => {
    const { outputs, gradients } = runCase(device, op, call, { float, wanted: requiresGrad });
    const named = gradients.map((gradient, index) => [`gradient ${index}`, gradient] as const);
    return Object.fromEntries([
      ...outputs.map((output, index) => [`output ${index}`, output] as const),
      ...named.flatMap(([name, gradient]) => (gradient ? [[name, gradient] as const] : [])),
    ]);
  });
}

function describe({ op, call, float }: Work): string {
  return `${describeCall(op, call)} in ${float}`;
}

function open(device: TestDriver, wrap: (device: TestDriver) => Driver, options: DeviceOptions): Device {
  return new Device(testDeviceKind, {
    driver: wrap(device),
    memory: "64MiB",
    hostRoot: host.root,
    chunk: bytes(4 * 2 ** 20),
    staging: "1MiB",
    stallAfter: "off",
    environment: testEnvironment,
    print: () => {},
    ...options,
  });
}

/** A fresh device: each has its whole arena. */
function withDevice<T>(
  wrap: (device: TestDriver) => Driver,
  options: DeviceOptions,
  use: (device: Device) => T,
): T {
  const device = open(driver, wrap, options);
  try {
    return use(device);
  } finally {
    device.close();
  }
}
