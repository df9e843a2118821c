/**
 * Random draws that are the same in every `npm test`, for tests on the emulator: what is drawn becomes kernels, and a kernel is then
 * compiled once on a machine. `npm run test:long` draws anew.
 */

import { after } from "node:test";
import fc from "fast-check";
import { isThorough } from "./effort.js";

/** For the rest of the file, or of the suite that calls it; a seed that a test gives itself stays. */
export function fixDraws(): void {
  if (isThorough) return;
  fc.configureGlobal({ ...fc.readConfigureGlobal(), seed: 20_251_117 });
  after(() => fc.resetConfigureGlobal());
}
