/**
 * Wraps a driver so that every call stands on the board while it runs: a call that never returns is then named by
 * the watchdog. This is on the path of every launch, so it does four stores and two looks at the clock, no more.
 */

import { around, type Driver, type DriverCall, driverCalls } from "../driver/index.js";
import type { Clock } from "../units/index.js";
import type { Board } from "./board.js";

const callIndex = Object.fromEntries(driverCalls.map((call, index) => [call, index])) as Readonly<
  Record<DriverCall, number>
>;

export function watched(driver: Driver, board: Board, clock: Clock): Driver {
  return around(driver, (call, _args, proceed) => {
    board.enterCall(callIndex[call], clock.nowMs());
    try {
      return proceed();
    } finally {
      board.exitCall(clock.nowMs());
    }
  });
}
