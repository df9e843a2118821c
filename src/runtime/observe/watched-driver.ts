/**
 * Wraps a driver so that the shared status shows every call while it runs: the watchdog can then name a call that never
 * returns. It is on the path of every launch, so it makes only four stores and two clock reads.
 */

import { type Driver, type DriverCall, driverCalls } from "../../driver/index.js";
import type { Clock } from "../../units/index.js";
import type { SharedStatus } from "./shared-status.js";

const callIndex = Object.fromEntries(driverCalls.map((call, index) => [call, index])) as Readonly<
  Record<DriverCall, number>
>;

type Method = (...args: unknown[]) => unknown;

/** Calls that return when the device has done its work, and the launch of a graph, which is a step's only call. */
const waitingCalls: ReadonlySet<DriverCall> = new Set([
  ...(["synchronize", "synchronizeEvent", "isReached", "launchGraph"] as const),
]);

/** `onWaited` is called after each call that waits for the device. It may throw. */
export function watched(
  driver: Driver,
  sharedStatus: SharedStatus,
  clock: Clock,
  onWaited: () => void = () => undefined,
): Driver {
  const wrapper: Partial<Record<DriverCall, Method>> = {};
  for (const call of driverCalls) {
    const method = (driver[call] as Method | undefined)?.bind(driver);
    if (!method) continue;
    const index = callIndex[call];
    const show: Method = (...args) => {
      sharedStatus.enterCall(index, clock.nowMs());
      try {
        return method(...args);
      } finally {
        sharedStatus.exitCall(clock.nowMs());
      }
    };
    wrapper[call] = waitingCalls.has(call)
      ? (...args) => {
          const result = show(...args);
          onWaited();
          return result;
        }
      : show;
  }
  return wrapper as unknown as Driver;
}
