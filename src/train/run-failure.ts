/** The end of a run after an error: its final state, and the incident to record. */

import { HoldfastError } from "../errors/index.js";
import type { RunRecorder } from "./inspection/run-recorder.js";

/** Errors of memory. Their messages contain the table of holders. */
const memoryErrors: ReadonlySet<string> = new Set(["OUT_OF_BUDGET", "OUT_OF_MEMORY", "ARENA_FULL"]);

export function finalStateAfter(error: unknown): "failed" | "diverged" {
  return error instanceof HoldfastError && error.code === "DIVERGED" ? "diverged" : "failed";
}

export function incidentOf(error: unknown): Parameters<RunRecorder["noteIncident"]> {
  if (error instanceof HoldfastError) {
    const kind = memoryErrors.has(error.code) ? "over budget" : "failure";
    return [error.code === "DIVERGED" ? "steps not finite" : kind, `${error.code}: ${error.message}`];
  }
  return ["failure", error instanceof Error ? (error.stack ?? error.message) : String(error)];
}
