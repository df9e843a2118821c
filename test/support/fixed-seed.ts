/**
 * Random values that are the same in every `npm test`, for tests on the emulator: the values determine
 * kernels, so a kernel is compiled once on a machine. `npm run test:long` uses new seeds.
 */

import { after } from "node:test";
import fc from "fast-check";
import { isThorough } from "./effort.js";

/** For the rest of the file, or of the calling suite; a test's own seed stays. */
export function fixDraws(): void {
  if (isThorough) return;
  fc.configureGlobal({ ...fc.readConfigureGlobal(), seed: 20_251_117 });
  after(() => fc.resetConfigureGlobal());
}
