/** Every driver call stands on the board while it lasts. */

import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { type Driver, driverCalls } from "../../driver/index.js";
import { bytes, FakeClock, span } from "../../units/index.js";
import { Board } from "./shared-status.js";
import { watched } from "./watched-driver.js";

/** A driver whose every call runs `during`, with the call's name and arguments. */
function stubDriver(during: (call: string, args: unknown[]) => unknown): Driver {
  const calls = driverCalls.map((call) => [call, (...args: unknown[]) => during(call, args)]);
  return Object.fromEntries(calls) as Driver;
}

describe("a watched driver", () => {
  it("stands on the board with each call while it runs, and with none after", () => {
    const board = new Board();
    const clock = new FakeClock();
    clock.advance(500);
    const open: unknown[] = [];
    const driver = watched(
      stubDriver(() => open.push(board.openCall())),
      board,
      clock,
    );
    for (const call of driverCalls) {
      (driver[call] as () => void)();
      assert.equal(board.openCall(), undefined);
    }
    assert.deepEqual(
      open,
      driverCalls.map((call) => ({ call, enteredMs: 500 })),
    );
    assert.equal(board.driverCallsMade, driverCalls.length);
  });

  it("passes arguments in and results out unchanged", () => {
    const stub = stubDriver((call, args) => [call, ...args]);
    const driver = watched(stub, new Board(), new FakeClock());
    const stream = { type: "stream", id: 4 } as const;
    const host = {
      memory: { type: "host", id: 1, size: bytes(4) },
      offset: bytes(0),
      size: bytes(4),
    } as const;
    const [call, ...given] = driver.copyToDevice(stream, span(16, 4), host) as unknown as unknown[];
    assert.deepEqual([call, ...given], ["copyToDevice", stream, span(16, 4), host]);
  });

  it("is off the board again when the call throws", () => {
    const board = new Board();
    const clock = new FakeClock();
    const refuse = () => {
      clock.advance(70);
      throw new Error("refused");
    };
    assert.throws(() => watched(stubDriver(refuse), board, clock).memory(), /refused/);
    assert.equal(board.openCall(), undefined);
    assert.equal(board.movedMs, 70);
  });

  it("moves with every call but the one that only asks", () => {
    const board = new Board();
    const clock = new FakeClock();
    const driver = watched(
      stubDriver(() => clock.advance(10)),
      board,
      clock,
    );
    driver.createStream();
    assert.equal(board.movedMs, 10);
    driver.isReached({ type: "event", id: 0 });
    assert.equal(board.movedMs, 10);
    driver.createEvent();
    assert.equal(board.movedMs, 30);
  });
});
