/** Wraps a driver so that every call passes through one function, for wrappers that treat all calls the same. */

import { type Driver, type DriverCall, driverCalls } from "./driver.js";

/** Runs instead of a driver call; `proceed` makes the call. Return without it to skip the call; throw to reject it. */
export type CallInterceptor = (call: DriverCall, args: readonly unknown[], proceed: () => unknown) => unknown;

export function interceptCalls(inner: Driver, intercept: CallInterceptor): Driver {
  const wrapper: Partial<Record<DriverCall, unknown>> = {};
  for (const call of driverCalls) {
    const method = inner[call] as ((...args: unknown[]) => unknown) | undefined;
    if (!method) continue;
    wrapper[call] = (...args: unknown[]) => intercept(call, args, () => method.apply(inner, args));
  }
  return wrapper as unknown as Driver;
}
