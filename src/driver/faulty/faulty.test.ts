/** Fault scripts: their grammar, the calls that they affect, and the rules of late work. */

import assert from "node:assert/strict";
import { afterEach, beforeEach, describe, test } from "node:test";
import { rejects } from "../../../test/support/rejects.js";
import { HoldfastError } from "../../errors/index.js";
import { bytes, FakeClock, type Span, span } from "../../units/index.js";
import { type CpuDriver, openCpuDriver } from "../cpu/index.js";
import type { Driver } from "../driver.js";
import { faulty } from "./faulty.js";
import { parseFault } from "./script.js";

let device: CpuDriver;

beforeEach(() => {
  device = openCpuDriver({ threads: 1, maximumBytes: 4 * 1024 * 1024 });
});
afterEach(() => device.close());

function memoryOf(driver: Driver): Span {
  const range = driver.reserve(bytes(65536));
  driver.commit(range);
  return range;
}

describe("the script", () => {
  const struck = (sentence: string): number[] => {
    const fault = parseFault(sentence);
    return [1, 2, 3, 4, 5, 6].filter((n) => fault.strikes(n));
  };

  test("counts calls as its sentences say", () => {
    assert.deepEqual(struck("the 3rd commit fails with out-of-memory"), [3]);
    assert.deepEqual(struck("every copy is late"), [1, 2, 3, 4, 5, 6]);
    assert.deepEqual(struck("every 2nd launch stalls"), [2, 4, 6]);
    assert.deepEqual(struck("from the 4th fill on takes 40s of fake time"), [4, 5, 6]);
  });

  for (const sentence of [
    "",
    "the commit fails",
    "the 0th commit stalls",
    "the 1st comit stalls",
    "every copy fails with bad luck",
    "every copy fails with bad-luck",
    "every copy takes long",
    "every copy is late and slow",
  ]) {
    test(`"${sentence}" is rejected`, () => {
      assert.throws(() => parseFault(sentence), HoldfastError);
    });
  }
});

test("the n-th call fails with its code without calling the driver, and the others pass", () => {
  const driver = faulty(device, ["the 2nd reserve fails with out-of-memory"]);
  driver.reserve(bytes(65536));
  rejects("OUT_OF_MEMORY", () => driver.reserve(bytes(65536)), /the 2nd reserve fails/);
  driver.reserve(bytes(65536));
});

test("a slow call advances the fake clock and then does its work", () => {
  const clock = new FakeClock();
  const driver = faulty(device, ["the 2nd synchronize takes 40s of fake time"], { clock });
  const stream = driver.createStream();
  driver.synchronize(stream);
  assert.equal(clock.nowMs(), 0);
  driver.synchronize(stream);
  assert.equal(clock.nowMs(), 40_000);
});

test("a stall on the fake clock ends after a day, as an error", () => {
  const clock = new FakeClock();
  const driver = faulty(device, ["every commit stalls"], { clock });
  rejects("STALLED", () => memoryOf(driver));
  assert.equal(clock.nowMs(), 24 * 3600 * 1000);
});

describe("late work", () => {
  test("runs only when its results are needed, in order, with its original arguments", () => {
    const driver = faulty(device, ["the 1st fill is late"]);
    const range = memoryOf(driver);
    const stream = driver.createStream();
    const target = { ...span(range.address, 16) };
    driver.fill(stream, target, 1);
    Object.assign(target, { address: range.address + 4096 });
    driver.fill(stream, span(range.address, 8), 2);
    device.synchronize(stream);
    assert.equal(device.deviceBytes(span(range.address, 1))[0], 0, "nothing has reached the device");
    driver.synchronize(stream);
    assert.deepEqual(
      [...device.deviceBytes(span(range.address, 16))],
      [...Array(8).fill(2), ...Array(8).fill(1)],
    );
    assert.equal(device.deviceBytes(span(range.address + 4096, 1))[0], 0);
  });

  test("is awaited through events, and an event after it is not reached", () => {
    const driver = faulty(device, ["the 1st fill is late"]);
    const range = memoryOf(driver);
    const [first, second] = [driver.createStream(), driver.createStream()];
    const event = driver.createEvent();
    driver.fill(first, span(range.address, 8), 1);
    driver.recordEvent(event, first);
    assert.equal(driver.isReached(event), false);
    driver.waitEvent(second, event);
    driver.copyOnDevice(second, span(range.address + 256, 8), span(range.address, 8));
    driver.synchronize(second);
    assert.equal(device.deviceBytes(span(range.address + 256, 8))[7], 1);
  });

  test("synchronizing an event runs the work before it and nothing else", () => {
    const driver = faulty(device, ["the 1st fill is late"]);
    const range = memoryOf(driver);
    const stream = driver.createStream();
    const event = driver.createEvent();
    driver.fill(stream, span(range.address, 8), 1);
    driver.recordEvent(event, stream);
    driver.fill(stream, span(range.address + 8, 8), 2);
    driver.synchronizeEvent(event);
    device.synchronize(stream);
    assert.equal(device.deviceBytes(span(range.address, 16))[7], 1);
    assert.equal(device.deviceBytes(span(range.address, 16))[15], 0);
  });
});
