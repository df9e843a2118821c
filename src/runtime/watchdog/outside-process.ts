/** The thread's end of the outside process: starts it, beats, hands over reports, and knows when it is lost. */

import { type ChildProcessByStdio, spawn } from "node:child_process";
import type { Readable, Writable } from "node:stream";
import { fileURLToPath } from "node:url";
import { type FromOutside, receive, send, type WatchdogSettings } from "./messages.js";
import type { Reading } from "./reading.js";
import type { StallReport } from "./report.js";

export class OutsideProcess {
  /** It watches, or it is lost already: either way nothing more is to be waited for. */
  readonly settled: Promise<void>;
  #child: ChildProcessByStdio<Writable, Readable, null> | undefined;
  #lost: string | undefined;

  constructor(settings: WatchdogSettings, leave: () => void) {
    this.settled = new Promise((settle) => {
      const lose = (reason: string) => {
        this.#lost ??= reason;
        settle();
      };
      try {
        const child = start(settings);
        this.#child = child;
        child.on("error", (error) => lose(`the outside process could not be started: ${error.message}`));
        child.on("exit", (code, signal) =>
          lose(`the outside process ended early (${signal ?? `code ${code}`})`),
        );
        // A broken pipe: "exit" tells the rest.
        child.stdin.on("error", () => {});
        receive<FromOutside>(child.stdout, ({ type }) => (type === "leave" ? leave() : settle()));
      } catch (error) {
        lose(`the outside process could not be started: ${error instanceof Error ? error.message : error}`);
      }
    });
  }

  /** Why it is no longer there; undefined while it is. */
  get lost(): string | undefined {
    return this.#lost;
  }

  beat(reading: Reading): void {
    // A process that does not read gets no more to read: beats would pile up in this one's memory.
    if (this.#child && !this.#child.stdin.writableNeedDrain)
      send(this.#child.stdin, { type: "beat", reading });
  }

  report(report: StallReport): void {
    if (this.#child) send(this.#child.stdin, { type: "stall", report });
  }

  /** Lets it go without a word from it. */
  dismiss(): void {
    if (!this.#child) return;
    send(this.#child.stdin, { type: "goodbye" });
    this.#child.stdin.end();
    this.#child.unref();
  }
}

function start(settings: WatchdogSettings): ChildProcessByStdio<Writable, Readable, null> {
  // NODE_OPTIONS is for the user's program: its hooks would only slow this one down, its inspector port is taken.
  const { NODE_OPTIONS: _, ...env } = process.env;
  const script = fileURLToPath(new URL("./outside.js", import.meta.url));
  return spawn(process.execPath, [script, JSON.stringify(settings)], {
    stdio: ["pipe", "pipe", "inherit"],
    env,
  });
}
