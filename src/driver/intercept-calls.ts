/** Wraps a driver so that every call passes through one function. Wrappers that treat all calls alike build on it. */

import { type Driver, type DriverCall, driverCalls } from "./driver.js";

/** Runs around a driver call. Return without calling `proceed` to skip the call; throw to reject it. */
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
