/** faulty: a wrapper that makes calls fail, slow down, stall or run late, following a script. */

export { type FaultyOptions, faulty } from "./faulty.js";
export { type Effect, type Fault, parseFault } from "./script.js";
