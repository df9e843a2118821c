/** Reports that a folder holds no run, and suggests runs near it. */

import { existsSync, readdirSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import { HoldfastError } from "../errors/index.js";
import type { RunRecord } from "../records/index.js";
import { readRunRecord } from "./read-run.js";
import { runFiles } from "./run-files.js";

/** Max. runs in a message; the others are only counted. */
const maxNamed = 5;

/** The record of a run. Throws if the folder holds no run. */
export function requireRun(path: string): RunRecord {
  const run = readRunRecord(path);
  if (run) return run;
  const reason = existsSync(path) ? `it has no ${runFiles.run}` : "the folder does not exist";
  throw new HoldfastError("BAD_FILE", `${path} holds no run: ${reason}. ${adviceFor(path)}`, {
    numbers: { path },
  });
}

/** Suggests runs in the folder, next to it, or in the default folder. */
function adviceFor(path: string): string {
  for (const folder of [path, dirname(path), "runs"]) {
    const runs = runsIn(folder);
    if (runs.length === 0) continue;
    const more = runs.length - maxNamed;
    const rest = more > 0 ? ` and ${more} more` : "";
    return `Runs found in ${folder.replace(/\/$/, "")}/: ${runs.slice(0, maxNamed).join(", ")}${rest}.`;
  }
  return "Pass the folder of a run.";
}

/** The run folders in a folder, the latest first. */
function runsIn(folder: string): readonly string[] {
  let names: readonly string[];
  try {
    names = readdirSync(folder);
  } catch {
    // Missing, not a folder, or not readable: there is nothing to suggest.
    return [];
  }
  return names
    .filter((name) => existsSync(join(folder, name, runFiles.run)))
    .map((name) => ({
      path: join(folder, name),
      startedMs: statSync(join(folder, name, runFiles.run)).mtimeMs,
    }))
    .sort((a, b) => b.startedMs - a.startedMs || (a.path < b.path ? -1 : 1))
    .map(({ path }) => path);
}
