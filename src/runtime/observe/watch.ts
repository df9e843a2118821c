/** A watchdog for work without a runtime, such as probing a machine: a driver can hang there too. */

import { runAll } from "../../units/index.js";
import { openWatchdog } from "../open.js";
import type { Settings } from "../settings.js";
import { Phases } from "./phases.js";
import { Recorder } from "./recorder.js";
import { SharedStatus } from "./shared-status.js";

export interface Watch {
  /** Runs a synchronous function as a phase; a stall is reported, and ends the process if the settings say so. */
  run<T>(label: string, work: () => T): T;
  close(): void;
}

export function startWatch(settings: Pick<Settings, "stallAfter" | "reports" | "onStall">): Watch {
  const sharedStatus = new SharedStatus();
  const recorder = new Recorder();
  const phases = new Phases({ sharedStatus, recorder, log: () => undefined });
  const closing: (() => void)[] = [];
  openWatchdog(settings, sharedStatus, recorder, closing);
  return {
    run: (label, work) => phases.run("init", work, { label }),
    close: () => runAll(closing.splice(0)),
  };
}
