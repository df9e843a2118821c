/** The closed table of exit codes of a Holdfast process. */

import { type ErrorCode, type ErrorRow, errorCodes } from "./codes.js";
import { HoldfastError } from "./holdfast-error.js";

interface ExitRow {
  readonly code: number;
  readonly meaning: string;
  /** What happens if the same command runs again. `deploy/kubernetes-job.yaml` follows it. */
  readonly retry: "not needed" | "may succeed" | "fails again" | "resumes";
}

export const exitCodes = {
  ok: {
    code: 0,
    meaning: "The command did its work, or the run had finished before.",
    retry: "not needed",
  },
  failed: {
    code: 1,
    meaning: "An error ended the command; stderr has its code and message.",
    retry: "may succeed",
  },
  usage: {
    code: 2,
    meaning: "The command line is wrong; nothing was started.",
    retry: "fails again",
  },
  stopped: {
    code: 3,
    meaning: "A signal stopped the run; it can be resumed.",
    retry: "resumes",
  },
  rejected: {
    code: 4,
    meaning: "Rejected: change the settings, the data, the run or the machine first.",
    retry: "fails again",
  },
  diverged: {
    code: 5,
    meaning: "Training diverged: start another run with a smaller learning rate.",
    retry: "fails again",
  },
  rankLost: {
    code: 6,
    meaning: "Another process of a distributed run was lost; stderr names it.",
    retry: "may succeed",
  },
  stalled: {
    code: 86,
    meaning: "The watchdog ended a stalled run; stderr has the stall report.",
    retry: "may succeed",
  },
} as const satisfies Record<string, ExitRow>;

export type ExitName = keyof typeof exitCodes;

/** System errors that can pass: a disk is freed, a port becomes free, a node with a bad disk is replaced. */
const passingReasons: ReadonlySet<unknown> = new Set([
  ...["ENOSPC", "EDQUOT", "EROFS", "EIO", "ESTALE"],
  ...["EMFILE", "ENFILE", "ENOMEM", "EAGAIN", "EBUSY", "ETIMEDOUT", "EADDRINUSE"],
  // Node's code when the system rejects a thread.
  "ERR_WORKER_INIT_FAILED",
]);

/** The exit code of a process that an error ends: `rejected` if the same command would fail again, else `failed`. */
export function toExitCode(error: unknown): number {
  if (!(error instanceof HoldfastError) || hasPassingReason(error)) return exitCodes.failed.code;
  return exitCodes[exitForCode(error.code)].code;
}

/** The exit of an error code, if its cause cannot pass. */
export function exitForCode(code: ErrorCode): ExitName {
  const row: ErrorRow = errorCodes[code];
  return row.exit ?? "failed";
}

function hasPassingReason(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  return ("code" in error && passingReasons.has(error.code)) || hasPassingReason(error.cause);
}
