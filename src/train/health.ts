/** Whether a run is well, from outside: what a liveness probe asks. Only its folder is looked at, and its process's number. */

import type { RunStatus } from "../records/index.js";
import { formatDuration } from "../units/index.js";
import { stateOfProcess } from "./files/process-identity.js";
import { readStatus } from "./read-run.js";
import { limitsIn } from "./run-phases.js";

export interface HealthOptions {
  /** Milliseconds since 1970; the system's clock unless given. */
  readonly now?: number;
  /** How long a run may be silent, or at the same step, in milliseconds; two minutes unless given. Some phases may be longer. */
  readonly limitMs?: number;
}

export interface RunHealth {
  /**
   * "stalled": the process is there and the steps don't go on. "diverged": its loss or its gradients were not finite any more.
   * "failed": it ended badly, or is gone without a word.
   */
  readonly state: "alive" | "stalled" | "finished" | "stopped" | "diverged" | "failed";
  /** One line. */
  readonly reason: string;
  /** What a probe should end with: 0 where all is well, 1 where not. */
  readonly exitCode: 0 | 1;
}

const defaultLimitMs = 120_000;

/** Looks at a run's folder and says how the run is. */
export function healthOf(
  path: string,
  { now = Date.now(), limitMs = defaultLimitMs }: HealthOptions = {},
): RunHealth {
  let status: RunStatus | undefined;
  try {
    status = readStatus(path);
  } catch (error) {
    return unwell("failed", error instanceof Error ? error.message : String(error));
  }
  if (!status) return unwell("failed", `${path} has no status: no run was begun there.`);
  return status.state === "running" ? healthOfRunning(status, now, limitMs) : healthOfEnded(status);
}

function healthOfEnded({ state, step, phase, reason, exitCode }: RunStatus): RunHealth {
  const why = reason === undefined ? "" : `: ${reason}`;
  const at = `at step ${step}${phase === undefined ? "" : `, ${phase},`}`;
  if (state === "finished") return { state, reason: `It finished ${at}${why}.`, exitCode: 0 };
  if (state === "stopped")
    return { state, reason: `It was stopped ${at}${why}; it can be resumed.`, exitCode: 0 };
  if (state === "diverged") return unwell(state, `It diverged ${at}${why}`);
  return unwell(
    "failed",
    `It failed ${at}${exitCode === undefined ? "" : ` with exit code ${exitCode}`}${why}.`,
  );
}

function healthOfRunning(status: RunStatus, nowMs: number, limitMs: number): RunHealth {
  const { step, of, phase, updated, progressed, pid } = status;
  const at = `step ${step}${of === undefined ? "" : ` of ${of}`}${phase === undefined ? "" : `, ${phase}`}`;
  if (stateOfProcess(status) === "gone") {
    return unwell(
      "failed",
      `Process ${pid} is gone, and said nothing of an end; the last it told was ${at}. Resume the run from its last checkpoint.`,
    );
  }
  const silentMs = nowMs - Date.parse(updated);
  const limits = limitsIn(phase, limitMs);
  if (silentMs > limits.silentMs) {
    return unwell(
      "stalled",
      `Nothing was heard for ${formatDuration(silentMs)}, since ${at}; the limit is ${formatDuration(limits.silentMs)}.`,
    );
  }
  const emulatorgMs = nowMs - Date.parse(progressed);
  if (emulatorgMs > limits.lastingMs) {
    return unwell(
      "stalled",
      `It has been at ${at} for ${formatDuration(emulatorgMs)}; the limit is ${formatDuration(limits.lastingMs)}.`,
    );
  }
  const reason = `It is at ${at}; heard of ${formatDuration(Math.max(0, silentMs))} ago.`;
  return { state: "alive", reason, exitCode: 0 };
}

function unwell(state: "stalled" | "diverged" | "failed", reason: string): RunHealth {
  return { state, reason, exitCode: 1 };
}
