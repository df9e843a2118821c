/** The runtime as a whole: diagnostics, steps, opening and closing. */

import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { openTestDriver, type TestDriver } from "../../test/support/test-device.js";
import { faulty, strict } from "../driver/index.js";
import { type ErrorCode, HoldfastError } from "../errors/index.js";
import { openRuntime, type Runtime, type RuntimeOptions } from "./runtime.js";

let device: TestDriver;
let printed: string[];

beforeEach(() => {
  device = openTestDriver();
  printed = [];
});
afterEach(() => device.close());

function open(options: RuntimeOptions = {}): Runtime {
  const print = (text: string): void => void printed.push(text);
  return openRuntime({ driver: strict(device), stallAfter: "off", environment: {}, print, ...options });
}

const hasCode = (code: ErrorCode) => (error: unknown) =>
  error instanceof HoldfastError && error.code === code;

test("the diagnostics are printed at the start if phases are logged", () => {
  open({ memory: "64MiB", log: "phases" }).close();
  const { name } = device.describe();
  assert.equal(printed.filter((text) => text.startsWith(`holdfast: memory at the start: ${name}`)).length, 1);
});

test("the diagnostics are printed at the first memory pressure and on demand, and not before", () => {
  const runtime = open({ memory: "1MiB", arena: "256KiB", staging: "64KiB" });
  assert.deepEqual(printed, []);
  assert.throws(() => runtime.arena.allocate(300 * 1024, "matmul"), hasCode("ARENA_FULL"));
  assert.throws(() => runtime.arena.allocate(300 * 1024, "matmul"), hasCode("ARENA_FULL"));
  assert.match(printed[0] ?? "", /^holdfast: memory under pressure/);
  assert.equal(printed.length, 1);
  assert.match(runtime.diagnosticsText(), /^holdfast: memory on demand/);
  runtime.close();
});

test("the diagnostics have every figure, as plain data", () => {
  const runtime = open({ memory: "64MiB" });
  const kept = runtime.step(() => {
    runtime.arena.allocate(1000, "relu");
    const matmul = runtime.arena.allocate(5000, "matmul");
    runtime.arena.pin(matmul, "backward");
    return matmul;
  });
  const state = runtime.diagnostics();
  assert.deepEqual(JSON.parse(JSON.stringify(state)), state);
  assert.equal(state.step, 1);
  assert.equal(state.arena.allocationsThisStep, 2);
  assert.equal(state.arena.bytesThisStep, 6000);
  assert.equal(state.arena.pinned, 5120);
  assert.equal(state.arena.resetsDrivenBy, "a step scope");
  assert.deepEqual(state.arena.holders, [{ label: "matmul", count: 1, size: 5120 }]);
  assert.equal(state.diagnosis, "no pressure");
  runtime.arena.unpin(kept);
  runtime.close();
});

test("memory allocated outside steps that fills the budget is diagnosed as never reset", () => {
  const runtime = open({ memory: "5MiB", arena: "4MiB", staging: "64KiB" });
  for (let index = 0; index < 4; index++) runtime.arena.allocate(1000 * 1024, "forward");
  const { diagnosis } = runtime.diagnostics();
  assert.ok(typeof diagnosis === "object" && diagnosis.cause === "never reset");
  assert.equal(runtime.diagnostics().arena.resetsDrivenBy, "nothing");
  runtime.close();
});

test("a step returns the result of its function, and ends on an exception", () => {
  const runtime = open();
  assert.equal(
    runtime.step((step) => step * 10),
    10,
  );
  assert.throws(
    () =>
      runtime.step(() => {
        runtime.arena.allocate(64, "lost");
        throw new RangeError("user code");
      }),
    RangeError,
  );
  assert.equal(runtime.arena.figures.live, 0);
  assert.equal(
    runtime.step((step) => step),
    3,
  );
  runtime.close();
});

test("an async step is rejected, and its memory is freed", () => {
  const runtime = open();
  const body = async (): Promise<void> => {
    runtime.arena.allocate(64, "async");
    throw new Error("never seen");
  };
  assert.throws(() => runtime.step(body), hasCode("STEP_ASYNC"));
  assert.equal(runtime.arena.figures.live, 0);
  runtime.close();
});

test("close() releases everything, and is idempotent", () => {
  const balance = { reserve: 0, allocateHost: 0, createStream: 0, createEvent: 0 };
  const runtime = open({ driver: counting(device, balance) });
  runtime.persistent.place("weights", "model", [{ name: "w", size: 100_000 }]);
  runtime.arena.allocate(5000, "x");
  runtime.capture("nothing", () => undefined);
  runtime.createStream();
  runtime.close();
  runtime.close();
  // Counted here and not read from the device, which other processes may use too.
  assert.deepEqual(balance, { reserve: 0, allocateHost: 0, createStream: 0, createEvent: 0 });
  assert.throws(() => runtime.step(() => undefined), hasCode("CLOSED"));
});

for (const fault of [
  "the 1st createStream fails with driver-failed",
  "the 1st allocateHost fails with out-of-memory",
  "the 3rd allocateHost fails with out-of-memory",
  "the 2nd createEvent fails with driver-failed",
  "the 1st reserve fails with out-of-memory",
]) {
  test(`a runtime that fails to open because ${fault} releases everything`, () => {
    const balance = { reserve: 0, allocateHost: 0, createStream: 0, createEvent: 0 };
    const counted = counting(device, balance);
    assert.throws(() => open({ driver: faulty(counted, [fault]) }), HoldfastError);
    assert.deepEqual(balance, { reserve: 0, allocateHost: 0, createStream: 0, createEvent: 0 });
  });
}

/** Counts open resources: each allocation adds one, its release subtracts one. */
function counting<Balance extends Record<string, number>>(driver: TestDriver, balance: Balance): TestDriver {
  const opposite: Record<string, string> = {
    release: "reserve",
    freeHost: "allocateHost",
    destroyStream: "createStream",
    destroyEvent: "createEvent",
  };
  return new Proxy(driver, {
    get(target, name: string) {
      const method = target[name as keyof TestDriver] as ((...args: unknown[]) => unknown) | undefined;
      if (!method) return undefined;
      return (...args: unknown[]) => {
        const result = method.apply(target, args);
        const resource = opposite[name] ?? name;
        if (resource in balance) (balance as Record<string, number>)[resource]! += resource === name ? 1 : -1;
        return result;
      };
    },
  });
}

test("phases are logged if the setting says so", () => {
  const runtime = open({ log: "phases" });
  runtime.step(() => undefined);
  runtime.close();
  const lines = printed.filter((text) => !text.startsWith("holdfast: memory"));
  assert.deepEqual(
    lines.map((line) => line.replace(/after \S+,/, "after …,").trim()),
    [
      "init: entered",
      "init: exited after …, done",
      "step 1: entered",
      "step 1: exited after …, done",
      "close: entered",
      "close: exited after …, done",
    ],
  );
});
