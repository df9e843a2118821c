/** The thread's end of the outside process: starts it, sends heartbeats and reports, and notices when it is lost. */

import { type ChildProcessByStdio, spawn } from "node:child_process";
import type { Readable, Writable } from "node:stream";
import { fileURLToPath } from "node:url";
import { formatDuration } from "../../../units/index.js";
import { type FromOutside, receive, send, type WatchdogSettings } from "./messages.js";
import type { Reading } from "./reading.js";
import type { StallReport } from "./report.js";

type Child = ChildProcessByStdio<Writable, Readable, null>;

export interface OutsideListeners {
  /** The run must end. */
  readonly leave: () => void;
  /** The last report has been published. */
  readonly reported: () => void;
}

export interface OutsideOptions {
  /** Time limit for the start. */
  readonly startTimeoutMs?: number;
  readonly start?: (settings: WatchdogSettings) => Child;
  /** Holds its process id while it starts, so that the main thread can kill it on exit. */
  readonly starting?: Int32Array;
}

/** Replaces that id once the main thread is exiting and has killed the outside process. */
export const unwanted = -1;

/** Node takes 50 ms to start, and a hundred times that on a crowded machine. */
const startTimeoutMs = 10_000;

export class OutsideProcess {
  /** Resolves when it watches, or is lost. */
  readonly settled: Promise<void>;
  readonly #starting: Int32Array;
  #child: Child | undefined;
  #isWatching = false;
  #lost: string | undefined;

  constructor(
    settings: WatchdogSettings,
    { leave, reported }: OutsideListeners,
    { startTimeoutMs: limitMs = startTimeoutMs, start = startOutside, starting }: OutsideOptions = {},
  ) {
    this.#starting = starting ?? new Int32Array(1);
    this.settled = new Promise((settle) => {
      const timer = setTimeout(() => {
        lose(`the outside process was not up after ${formatDuration(limitMs)}`);
        this.#child?.kill("SIGKILL");
      }, limitMs);
      const finish = (): void => {
        clearTimeout(timer);
        Atomics.compareExchange(this.#starting, 0, this.#child?.pid ?? 0, 0);
        settle();
      };
      const lose = (reason: string): void => {
        this.#lost ??= reason;
        finish();
      };
      const failed = (error: unknown): void =>
        lose(
          `the outside process could not be started: ${error instanceof Error ? error.message : String(error)}`,
        );
      try {
        const child = start(settings);
        this.#child = child;
        Atomics.store(this.#starting, 0, child.pid ?? 0);
        child.on("error", failed);
        child.on("exit", (code, signal) =>
          lose(`the outside process ended early (${signal ?? `code ${code}`})`),
        );
        // A broken pipe: the "exit" event handles it.
        child.stdin.on("error", () => {});
        receive<FromOutside>(child.stdout, ({ type }) => {
          if (type === "leave") leave();
          else if (type === "reported") reported();
          else {
            this.#isWatching = true;
            finish();
          }
        });
      } catch (error) {
        failed(error);
      }
    });
  }

  /** Why it is not available; undefined if it is. */
  get missing(): string | undefined {
    return this.#lost ?? (this.#isWatching ? undefined : "the outside process is not up yet");
  }

  /** Why it was lost; undefined while it runs. */
  get lost(): string | undefined {
    return this.#lost;
  }

  get isUnwanted(): boolean {
    return Atomics.load(this.#starting, 0) === unwanted;
  }

  beat(reading: Reading): void {
    // Heartbeats to a process that does not read would pile up in this process's memory.
    if (this.#child && !this.#child.stdin.writableNeedDrain)
      send(this.#child.stdin, { type: "beat", reading });
  }

  report(report: StallReport): void {
    if (this.#child) send(this.#child.stdin, { type: "stall", report });
  }

  /** Dismisses it without waiting. One that is still starting may never read the message. */
  dismiss(): void {
    if (!this.#child) return;
    send(this.#child.stdin, { type: "goodbye" });
    this.#child.stdin.end();
    if (!this.#isWatching) this.#child.kill("SIGKILL");
    this.#child.unref();
  }
}

function startOutside(settings: WatchdogSettings): Child {
  // NODE_OPTIONS is for the user's program: its hooks would slow this process down, and its inspector port is taken.
  const { NODE_OPTIONS: _, ...env } = process.env;
  const script = fileURLToPath(new URL("./watchdog-process.js", import.meta.url));
  // Few threads, because a container may allow few. Two for libuv, so that a stuck file does not block stderr.
  return spawn(process.execPath, ["--v8-pool-size=1", script, JSON.stringify(settings)], {
    stdio: ["pipe", "pipe", "inherit"],
    env: { ...env, UV_THREADPOOL_SIZE: "2" },
  });
}
