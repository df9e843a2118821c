/**
 * Changes in a run's folder as server-sent events. The folder is polled twice a second while there are listeners: file system
 * notifications do not work on network folders.
 */

import { stat } from "node:fs/promises";
import type { ServerResponse } from "node:http";
import { join } from "node:path";
import { countSteps, inspectionFiles, rankFiles, readStatus, runFiles } from "../train/index.js";
import { MiB } from "../units/index.js";
import { safeHeaders } from "./responses.js";

export interface LiveOptions {
  /** The polling interval in milliseconds; default: 500. */
  readonly pollMs?: number | undefined;
  /** Max. listeners; default: 64. */
  readonly maxListeners?: number | undefined;
}

/** Files of which only the change is sent; the page then requests the data. */
const announced = {
  metrics: runFiles.metrics,
  plans: inspectionFiles.plans,
  memory: inspectionFiles.memory,
  incidents: inspectionFiles.incidents,
  results: runFiles.results,
  // As often as those of the other ranks.
  ranks: rankFiles.steps(0),
} as const;

/** The interval of comments that keep proxies from closing the connection. */
const commentMs = 15_000;
/** A listener with more unread bytes is disconnected. */
const maxUnread = MiB;

/** The listeners of all runs. */
export class LiveRuns {
  readonly #runs = new Map<string, LiveRun>();
  readonly #pollMs: number;
  readonly #maxListeners: number;

  constructor({ pollMs = 500, maxListeners = 64 }: LiveOptions = {}) {
    this.#pollMs = pollMs;
    this.#maxListeners = maxListeners;
  }

  get listeners(): number {
    let count = 0;
    for (const run of this.#runs.values()) count += run.listeners.size;
    return count;
  }

  /** Returns false if there are too many listeners. */
  listen(path: string, response: ServerResponse): boolean {
    if (this.listeners >= this.#maxListeners) return false;
    response.writeHead(200, { ...safeHeaders, "Content-Type": "text/event-stream; charset=utf-8" });
    if (response.req.method === "HEAD") {
      response.end();
      return true;
    }
    response.write("retry: 2000\n\n");
    const run = this.#runs.get(path) ?? new LiveRun(path, this.#pollMs);
    this.#runs.set(path, run);
    run.add(response);
    response.once("close", () => {
      run.remove(response);
      if (run.listeners.size === 0) this.#runs.delete(path);
    });
    return true;
  }

  close(): void {
    for (const run of this.#runs.values()) for (const response of run.listeners) response.destroy();
  }
}

/** One run's folder while it has listeners. */
class LiveRun {
  readonly listeners = new Set<ServerResponse>();
  readonly #path: string;
  readonly #pollMs: number;
  #signatures: ReadonlyMap<string, string> = new Map();
  #timer: NodeJS.Timeout | undefined;
  #sentMs = Date.now();
  /** The first event for a new listener. */
  #status = "";
  #rows = "";

  constructor(path: string, pollMs: number) {
    this.#path = path;
    this.#pollMs = pollMs;
  }

  add(response: ServerResponse): void {
    this.listeners.add(response);
    if (this.listeners.size > 1) {
      response.write(this.#status + this.#rows);
      return;
    }
    void this.#poll(true);
  }

  remove(response: ServerResponse): void {
    this.listeners.delete(response);
    if (this.listeners.size === 0) clearTimeout(this.#timer);
  }

  async #poll(isFirst: boolean): Promise<void> {
    const current = await signatures(this.#path);
    const changed = (name: string): boolean => current.get(name) !== this.#signatures.get(name);
    let text = "";
    if (changed(runFiles.status)) text += this.#status = this.#statusEvent();
    if (isFirst || changed(inspectionFiles.steps)) text += this.#rows = this.#rowsEvent();
    for (const [what, name] of Object.entries(announced))
      if (!isFirst && changed(name)) text += event("changed", { what });
    this.#signatures = current;
    this.#send(text);
    // All listeners may be gone by now.
    if (this.listeners.size > 0) this.#timer = setTimeout(() => void this.#poll(false), this.#pollMs);
  }

  #statusEvent(): string {
    try {
      const status = readStatus(this.#path);
      return status ? event("status", status) : "";
    } catch {
      // A damaged status is reported by the run's page; here the next one is enough.
      return "";
    }
  }

  #rowsEvent(): string {
    try {
      return event("rows", { rows: countSteps(join(this.#path, inspectionFiles.steps)) });
    } catch {
      return event("rows", { rows: 0 });
    }
  }

  #send(text: string): void {
    const nowMs = Date.now();
    const isDue = nowMs - this.#sentMs >= commentMs;
    if (text === "" && !isDue) return;
    this.#sentMs = nowMs;
    for (const response of this.listeners) {
      if (response.writableLength > maxUnread) response.destroy();
      else response.write(text === "" ? ": keep-alive\n\n" : text);
    }
  }
}

function event(name: string, data: unknown): string {
  return `event: ${name}\ndata: ${JSON.stringify(data)}\n\n`;
}

/** A signature of each watched file that changes with every write. */
async function signatures(path: string): Promise<ReadonlyMap<string, string>> {
  const names = [runFiles.status, inspectionFiles.steps, ...Object.values(announced)];
  const entries = await Promise.all(
    names.map(async (name): Promise<[string, string]> => {
      try {
        const { ino, size, mtimeMs } = await stat(join(path, name));
        return [name, `${ino} ${size} ${mtimeMs}`];
      } catch {
        return [name, "none"];
      }
    }),
  );
  return new Map(entries);
}
