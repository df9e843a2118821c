/** Says that a folder holds no run, and which runs there are near it. */

import { existsSync, readdirSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import { HoldfastError } from "../errors/index.js";
import type { RunRecord } from "../records/index.js";
import { readRunRecord } from "./read-run.js";
import { runFiles } from "./run-files.js";

/** Runs that a message names before it only counts them. */
const namedRuns = 5;

/** What was started in a run's folder; an error where it holds no run. */
export function requireRun(path: string): RunRecord {
  const run = readRunRecord(path);
  if (run) return run;
  const what = existsSync(path) ? `it has no ${runFiles.run}` : "there is no such folder";
  throw new HoldfastError("BAD_FILE", `${path} holds no run: ${what}. ${adviceFor(path)}`, {
    numbers: { path },
  });
}

/** The runs that may have been meant: those in the folder itself, beside it, or in the usual place. */
function adviceFor(path: string): string {
  for (const folder of [path, dirname(path), "runs"]) {
    const runs = runsIn(folder);
    if (runs.length === 0) continue;
    const more = runs.length - namedRuns;
    const rest = more > 0 ? ` and ${more} more` : "";
    return `Runs found in ${folder.replace(/\/$/, "")}/: ${runs.slice(0, namedRuns).join(", ")}${rest}.`;
  }
  return "Give the folder of a run.";
}

/** Folders that hold a run, the latest first. */
function runsIn(folder: string): readonly string[] {
  let names: readonly string[];
  try {
    names = readdirSync(folder);
  } catch {
    // Not there, no folder, or not ours to read: nothing to name.
    return [];
  }
  return names
    .filter((name) => existsSync(join(folder, name, runFiles.run)))
    .map((name) => ({
      path: join(folder, name),
      beganMs: statSync(join(folder, name, runFiles.run)).mtimeMs,
    }))
    .sort((one, other) => other.beganMs - one.beganMs || (one.path < other.path ? -1 : 1))
    .map(({ path }) => path);
}
