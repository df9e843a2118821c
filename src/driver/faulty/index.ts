/** faulty: a wrapper that fails, delays, stalls or holds back given calls, by a script. */

export { type FaultyOptions, faulty } from "./faulty.js";
export { type Effect, type Fault, parseFault } from "./script.js";
