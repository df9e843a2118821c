/** Access to a device's runtime for engine builders, who import it from `holdfast/internals`. */

import type { Runtime } from "../runtime/index.js";
import type { Device } from "./device.js";

/**
 * The runtime of an open device: its memory, transfers, launches and captures.
 *
 * @example
 * ```ts
 * import { device } from "holdfast";
 * import { runtimeOf } from "holdfast/internals";
 * const cpu = await device("cpu", { memory: "64MiB" });
 * console.log(runtimeOf(cpu).budget.limit); // → 67108864
 * cpu.close();
 * ```
 */
export function runtimeOf(device: Device): Runtime {
  return device.runtime;
}
