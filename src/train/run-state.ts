/** Reads the state and the settings of a run before its folder is opened. Writes nothing. */

import { join } from "node:path";
import { isThere } from "../data/index.js";
import type { JsonRecord, RunRecord } from "../records/index.js";
import { requireSameSettings } from "./compatibility.js";
import { readRun, readRunRecord } from "./read-run.js";
import { runFiles } from "./run-files.js";

/**
 * The state of the run in a folder. A finished or diverged run can't be resumed.
 *
 * @example
 * ```ts
 * import { crossasset } from "holdfast";
 * console.log(crossasset.stateOfRun("runs/that/never/were")); // → none
 * ```
 */
export function stateOfRun(path: string): "none" | "unfinished" | "finished" | "diverged" {
  if (!isThere(join(path, runFiles.run))) return "none";
  const state = readRun(path).status?.state;
  return state === "finished" || state === "diverged" ? state : "unfinished";
}

/**
 * Throws if settings differ from those of the run in a folder. Compares the passed settings only, and writes nothing.
 *
 * @example
 * ```ts
 * import { mkdtempSync } from "node:fs";
 * import { tmpdir } from "node:os";
 * import { join } from "node:path";
 * import { crossasset } from "holdfast";
 * const path = join(mkdtempSync(join(tmpdir(), "run-")), "first");
 * crossasset.openJobRun({ path, settings: { epochs: 3 }, device: "CPU" }).end(undefined, 3);
 * try {
 *   crossasset.requireRunSettings(path, { epochs: 4 });
 * } catch (error) {
 *   console.log(String(error).includes("epochs was 3 and is now 4")); // → true
 * }
 * ```
 */
export function requireRunSettings(path: string, settings: JsonRecord): void {
  const run = readRunRecord(path);
  if (run) requireSameSettings(`The run in ${path}`, run.settings, settings);
}

/** Throws if any setting of the run differs. */
export function requireEqualSettings(path: string, run: RunRecord, settings: JsonRecord): void {
  const names = Object.keys({ ...run.settings, ...settings });
  requireSameSettings(`The run in ${path}`, run.settings, settings, names);
}
