/** The health of a run, for liveness probes. It is read from the run's folder and the state of its process. */

import type { RunStatus } from "../records/index.js";
import { formatDuration } from "../units/index.js";
import { stateOfProcess } from "./files/process-identity.js";
import { readStatus } from "./read-run.js";
import { limitsIn } from "./run-phases.js";

export interface HealthOptions {
  /** Milliseconds since 1970; default: the system's clock. */
  readonly now?: number;
  /** Max. time without a heartbeat or without progress, in milliseconds; default: two minutes. Some phases have a longer limit. */
  readonly limitMs?: number;
}

export interface RunHealth {
  /**
   * "stalled": the process is alive, but makes no progress. "diverged": its loss or its gradients became not finite. "failed": it
   * ended with an error, or the process died silently.
   */
  readonly state: "alive" | "stalled" | "finished" | "stopped" | "diverged" | "failed";
  /** One line. */
  readonly reason: string;
  /** The probe's exit code: 0 if the run is healthy, else 1. */
  readonly exitCode: 0 | 1;
}

const defaultLimitMs = 120_000;

/** Reads a run's folder and returns the run's health. */
export function healthOf(
  path: string,
  { now = Date.now(), limitMs = defaultLimitMs }: HealthOptions = {},
): RunHealth {
  let status: RunStatus | undefined;
  try {
    status = readStatus(path);
  } catch (error) {
    return unhealthy("failed", error instanceof Error ? error.message : String(error));
  }
  if (!status) return unhealthy("failed", `${path} has no status: no run was started there.`);
  return status.state === "running" ? healthOfRunning(status, now, limitMs) : healthOfEnded(status);
}

function healthOfEnded({ state, step, phase, reason, exitCode }: RunStatus): RunHealth {
  const why = reason === undefined ? "" : `: ${reason}`;
  const at = `at step ${step}${phase === undefined ? "" : `, ${phase},`}`;
  if (state === "finished") return { state, reason: `It finished ${at}${why}.`, exitCode: 0 };
  if (state === "stopped")
    return { state, reason: `It was stopped ${at}${why}; it can be resumed.`, exitCode: 0 };
  if (state === "diverged") return unhealthy(state, `It diverged ${at}${why}`);
  return unhealthy(
    "failed",
    `It failed ${at}${exitCode === undefined ? "" : ` with exit code ${exitCode}`}${why}.`,
  );
}

function healthOfRunning(status: RunStatus, nowMs: number, limitMs: number): RunHealth {
  const { step, of, phase, updated, progressed, pid } = status;
  const at = `step ${step}${of === undefined ? "" : ` of ${of}`}${phase === undefined ? "" : `, ${phase}`}`;
  if (stateOfProcess(status) === "gone") {
    return unhealthy(
      "failed",
      `Process ${pid} ended without a message; its last position was ${at}. Resume the run from its last checkpoint.`,
    );
  }
  const silentMs = nowMs - Date.parse(updated);
  const limits = limitsIn(phase, limitMs);
  if (silentMs > limits.maxSilenceMs) {
    return unhealthy(
      "stalled",
      `There was no heartbeat for ${formatDuration(silentMs)}, since ${at}; the limit is ${formatDuration(limits.maxSilenceMs)}.`,
    );
  }
  const stuckMs = nowMs - Date.parse(progressed);
  if (stuckMs > limits.maxDurationMs) {
    return unhealthy(
      "stalled",
      `It has been at ${at} for ${formatDuration(stuckMs)}; the limit is ${formatDuration(limits.maxDurationMs)}.`,
    );
  }
  const reason = `It is at ${at}; last heartbeat ${formatDuration(Math.max(0, silentMs))} ago.`;
  return { state: "alive", reason, exitCode: 0 };
}

function unhealthy(state: "stalled" | "diverged" | "failed", reason: string): RunHealth {
  return { state, reason, exitCode: 1 };
}
