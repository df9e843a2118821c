/** The messages between the watchdog's thread and the outside process: JSON, one per line. */

import { createInterface } from "node:readline";
import type { Readable, Writable } from "node:stream";
import type { Reading } from "./reading.js";
import type { StallReport } from "./report.js";

/** `end`: a stall ends the run. `report`: it is only reported. */
export type OnStall = "end" | "report";

export interface WatchdogSettings {
  /** The watched process. */
  readonly pid: number;
  readonly stallAfterMs: number;
  readonly reportDir: string;
  readonly onStall: OnStall;
  /** The system's id of the watchdog's thread; undefined if unknown. */
  readonly threadId?: number | undefined;
}

export type ToOutside =
  | { readonly type: "beat"; readonly reading: Reading }
  | { readonly type: "stall"; readonly report: StallReport }
  | { readonly type: "goodbye" };

/** `reported`: a stall's report has been published. */
export type FromOutside = { readonly type: "watching" | "reported" | "leave" };

export function send<Message extends ToOutside | FromOutside>(stream: Writable, message: Message): void {
  stream.write(`${JSON.stringify(message)}\n`);
}

/** Both ends are the same version of Holdfast, so the lines are trusted. */
export function receive<Message extends ToOutside | FromOutside>(
  stream: Readable,
  handle: (message: Message) => void,
): void {
  createInterface({ input: stream }).on("line", (line) => handle(JSON.parse(line) as Message));
}
