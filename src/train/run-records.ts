/** What stands in a run's folder: the names of its files and the records in them. */

import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { withFileError } from "../data/index.js";
import type { JsonRecord } from "./files/json.js";
import type { RunPhase } from "./run-phases.js";

export const runFiles = {
  run: "run.json",
  status: "status.json",
  metrics: "metrics.jsonl",
  results: "results.json",
  recorder: "recorder.log",
  checkpoints: "checkpoints",
} as const;

/** run.json: what was started, with what, where. */
export interface RunRecord {
  readonly settings: JsonRecord;
  /** The device's name, as it tells it. */
  readonly device: string;
  readonly holdfast: string;
  readonly node: string;
  /** The system and the processor, as `linux x64`. */
  readonly platform: string;
  readonly host: string;
  /** When it was first started, in ISO 8601. */
  readonly started: string;
}

export const runStates = ["running", "finished", "stopped", "diverged", "failed"] as const;

/**
 * "stopped": it was asked to end before its time, and can be resumed. "diverged": its loss or its gradients were not finite any
 * more; to resume it would not help.
 */
export type RunState = (typeof runStates)[number];

/** How far a run is. */
export interface RunProgress {
  /** Steps that were made. */
  readonly step: number;
  /** Steps in all. */
  readonly of?: number | undefined;
  readonly epoch?: number | undefined;
  readonly fold?: number | undefined;
  /** What it does where it makes no steps; of a run that has failed, where it did. */
  readonly phase?: RunPhase | undefined;
  readonly figures?: RunFigures | undefined;
}

/** What a run measures of itself as it goes; each as far as it is known. */
export interface RunFigures {
  /** The loss that came to the host last. */
  readonly loss?: number | undefined;
  /** Samples that were trained on since the process began, one as often as it was. */
  readonly samples?: number | undefined;
  readonly samplesPerSecond?: number | undefined;
  /** Bytes that are taken out of the memory budget, and all that it has. */
  readonly usedBytes?: number | undefined;
  readonly budgetBytes?: number | undefined;
  /** Steps of the run that the device skipped because a gradient was not finite; told at the ends of epochs. */
  readonly skipped?: number | undefined;
}

/** status.json: where a run stands. It is replaced as a whole, every second or so while the run goes on. */
export interface RunStatus extends RunProgress {
  readonly state: RunState;
  /** The heartbeat: when this was written, in ISO 8601. */
  readonly updated: string;
  /** When the step or the phase was last another one. */
  readonly progressed: string;
  /** Why it has ended; of a run that goes on, undefined. */
  readonly reason?: string | undefined;
  readonly exitCode?: number | undefined;
  readonly pid: number;
  readonly host: string;
  readonly startTicks?: number | undefined;
  readonly boot?: string | undefined;
  readonly pidNamespace?: string | undefined;
}

/** The version of this Holdfast. */
export function packageVersion(): string {
  const path = fileURLToPath(new URL("../../../package.json", import.meta.url));
  const text = withFileError(`${path} can't be read`, path, () => readFileSync(path, "utf8"));
  const manifest: unknown = JSON.parse(text);
  const isManifest = typeof manifest === "object" && manifest !== null && "version" in manifest;
  return isManifest ? String(manifest.version) : "unknown";
}
