/** Every driver call is in the shared status while it lasts. */

import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { type Driver, driverCalls } from "../../driver/index.js";
import { bytes, FakeClock, span } from "../../units/index.js";
import { SharedStatus } from "./shared-status.js";
import { watched } from "./watched-driver.js";

/** A driver whose every call runs `during`, with the call's name and arguments. */
function stubDriver(during: (call: string, args: unknown[]) => unknown): Driver {
  const calls = driverCalls.map((call) => [call, (...args: unknown[]) => during(call, args)]);
  return Object.fromEntries(calls) as Driver;
}

describe("a watched driver", () => {
  it("shows each call in the shared status while it runs, and none afterwards", () => {
    const sharedStatus = new SharedStatus();
    const clock = new FakeClock();
    clock.advance(500);
    const open: unknown[] = [];
    const driver = watched(
      stubDriver(() => open.push(sharedStatus.openCall())),
      sharedStatus,
      clock,
    );
    for (const call of driverCalls) {
      (driver[call] as () => void)();
      assert.equal(sharedStatus.openCall(), undefined);
    }
    assert.deepEqual(
      open,
      driverCalls.map((call) => ({ call, enteredMs: 500 })),
    );
    assert.equal(sharedStatus.driverCallsMade, driverCalls.length);
  });

  it("passes arguments in and results out unchanged", () => {
    const stub = stubDriver((call, args) => [call, ...args]);
    const driver = watched(stub, new SharedStatus(), new FakeClock());
    const stream = { type: "stream", id: 4 } as const;
    const host = {
      memory: { type: "host", id: 1, size: bytes(4) },
      offset: bytes(0),
      size: bytes(4),
    } as const;
    const [call, ...given] = driver.copyToDevice(stream, span(16, 4), host) as unknown as unknown[];
    assert.deepEqual([call, ...given], ["copyToDevice", stream, span(16, 4), host]);
  });

  it("shows no call after one has thrown", () => {
    const sharedStatus = new SharedStatus();
    const clock = new FakeClock();
    const reject = () => {
      clock.advance(70);
      throw new Error("rejected");
    };
    assert.throws(() => watched(stubDriver(reject), sharedStatus, clock).memory(), /rejected/);
    assert.equal(sharedStatus.openCall(), undefined);
    assert.equal(sharedStatus.movedMs, 70);
  });

  it("counts every call as progress, except polling", () => {
    const sharedStatus = new SharedStatus();
    const clock = new FakeClock();
    const driver = watched(
      stubDriver(() => clock.advance(10)),
      sharedStatus,
      clock,
    );
    driver.createStream();
    assert.equal(sharedStatus.movedMs, 10);
    driver.isReached({ type: "event", id: 0 });
    assert.equal(sharedStatus.movedMs, 10);
    driver.createEvent();
    assert.equal(sharedStatus.movedMs, 30);
  });
});
