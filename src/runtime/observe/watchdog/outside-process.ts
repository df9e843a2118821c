/** The thread's end of the outside process: starts it, beats, hands over reports, and knows when it is lost. */

import { type ChildProcessByStdio, spawn } from "node:child_process";
import type { Readable, Writable } from "node:stream";
import { fileURLToPath } from "node:url";
import { formatDuration } from "../../../units/index.js";
import { type FromOutside, receive, send, type WatchdogSettings } from "./messages.js";
import type { Reading } from "./reading.js";
import type { StallReport } from "./report.js";

type Child = ChildProcessByStdio<Writable, Readable, null>;

export interface OutsideListeners {
  /** The run is to be ended. */
  readonly leave: () => void;
  /** A report that was handed over has been published. */
  readonly reported: () => void;
}

export interface OutsideOptions {
  /** How long it may take to start. */
  readonly startWithinMs?: number;
  readonly start?: (settings: WatchdogSettings) => Child;
  /** Its number stands here while it starts, so that the main thread can end it with the process. */
  readonly starting?: Int32Array;
}

/** In the place of that number: the main thread ends, and has ended the outside process. */
export const unwanted = -1;

/** A process of Node takes 50 ms to start, and a hundred times that on a crowded machine. */
const startWithinMs = 10_000;

export class OutsideProcess {
  /** It watches, or it is lost already: either way nothing more is to be waited for. */
  readonly settled: Promise<void>;
  readonly #starting: Int32Array;
  #child: Child | undefined;
  #isWatching = false;
  #lost: string | undefined;

  constructor(
    settings: WatchdogSettings,
    { leave, reported }: OutsideListeners,
    { startWithinMs: limitMs = startWithinMs, start = startOutside, starting }: OutsideOptions = {},
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
        // A broken pipe: "exit" tells the rest.
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

  /** Why it can't be counted on; undefined where it can. */
  get missing(): string | undefined {
    return this.#lost ?? (this.#isWatching ? undefined : "the outside process is not up yet");
  }

  /** Why it is no longer there; undefined while it is. */
  get lost(): string | undefined {
    return this.#lost;
  }

  get isUnwanted(): boolean {
    return Atomics.load(this.#starting, 0) === unwanted;
  }

  beat(reading: Reading): void {
    // A process that does not read gets no more to read: beats would pile up in this one's memory.
    if (this.#child && !this.#child.stdin.writableNeedDrain)
      send(this.#child.stdin, { type: "beat", reading });
  }

  report(report: StallReport): void {
    if (this.#child) send(this.#child.stdin, { type: "stall", report });
  }

  /** Lets it go without a word from it. One that is not up may never read the goodbye. */
  dismiss(): void {
    if (!this.#child) return;
    send(this.#child.stdin, { type: "goodbye" });
    this.#child.stdin.end();
    if (!this.#isWatching) this.#child.kill("SIGKILL");
    this.#child.unref();
  }
}

function startOutside(settings: WatchdogSettings): Child {
  // NODE_OPTIONS is for the user's program: its hooks would only slow this one down, its inspector port is taken.
  const { NODE_OPTIONS: _, ...env } = process.env;
  const script = fileURLToPath(new URL("./outside.js", import.meta.url));
  // Few threads: a container may allow few. Two of libuv's, so that a stuck file does not hold up stderr.
  return spawn(process.execPath, ["--v8-pool-size=1", script, JSON.stringify(settings)], {
    stdio: ["pipe", "pipe", "inherit"],
    env: { ...env, UV_THREADPOOL_SIZE: "2" },
  });
}
