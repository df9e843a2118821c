/** What is left of a run of the CrossAsset job, for tests that compare two of them bit for bit. */

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { crossasset } from "holdfast";
import { repositoryRoot } from "./repository.js";

/** The program, as it is installed. */
export const holdfastProgram = join(repositoryRoot, "dist/src/cli/main.js");

/** All that was measured and follows from the weights; times are not the same twice. */
export function measuredIn(run: string): string {
  const { folds } = JSON.parse(readFileSync(join(run, "results.json"), "utf8")) as crossasset.JobResults;
  return JSON.stringify(
    folds.map(({ test: figures, perScale, epochs }) => [figures, perScale, epochs.map(({ loss }) => loss)]),
  );
}

/** The bytes of all tensors in the latest checkpoint: weights, moments, random numbers, normaliser. */
export function tensorsIn(run: string): string {
  const checkpoints = join(run, "checkpoints");
  const last = readdirSync(checkpoints)
    .filter((name) => name.endsWith(".safetensors"))
    .sort()
    .at(-1);
  const bytes = readFileSync(join(checkpoints, last ?? "none"));
  const header = Number(bytes.readBigUInt64LE(0));
  return bytes.subarray(8 + header).toString("latin1");
}
