/**
 * What changes in a run's folder, as server-sent events. The folder is looked at twice a second, and only while somebody listens:
 * being told by the system does not work on network folders.
 */

import { stat } from "node:fs/promises";
import type { ServerResponse } from "node:http";
import { join } from "node:path";
import { countSteps, inspectionFiles, readStatus, runFiles } from "../train/index.js";
import { MiB } from "../units/index.js";
import { safeHeaders } from "./answers.js";

export interface LiveOptions {
  /** From look to look, in milliseconds; 500 unless given. */
  readonly pollMs?: number | undefined;
  /** How many may listen at once; 64 unless given. */
  readonly maxListeners?: number | undefined;
}

/** What is told only by its name, so that who shows it asks for it. */
const told = {
  metrics: runFiles.metrics,
  plans: inspectionFiles.plans,
  memory: inspectionFiles.memory,
  incidents: inspectionFiles.incidents,
  results: runFiles.results,
} as const;

/** A word now and then keeps what lies between from closing the connection. */
const commentMs = 15_000;
/** Who has not read so much of what was sent does not listen. */
const maxUnread = MiB;

/** All who listen, to all runs. */
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

  /** False where too many listen already. */
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

/** One run's folder, while somebody listens. */
class LiveRun {
  readonly listeners = new Set<ServerResponse>();
  readonly #path: string;
  readonly #pollMs: number;
  #seen: ReadonlyMap<string, string> = new Map();
  #timer: NodeJS.Timeout | undefined;
  #saidMs = Date.now();
  /** What a new listener is told first. */
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
    void this.#look(true);
  }

  remove(response: ServerResponse): void {
    this.listeners.delete(response);
    if (this.listeners.size === 0) clearTimeout(this.#timer);
  }

  async #look(isFirst: boolean): Promise<void> {
    const seen = await signatures(this.#path);
    const changed = (name: string): boolean => seen.get(name) !== this.#seen.get(name);
    let text = "";
    if (changed(runFiles.status)) text += this.#status = this.#statusEvent();
    if (isFirst || changed(inspectionFiles.steps)) text += this.#rows = this.#rowsEvent();
    for (const [what, name] of Object.entries(told))
      if (!isFirst && changed(name)) text += event("changed", { what });
    this.#seen = seen;
    this.#send(text);
    // Nobody may be left by now.
    if (this.listeners.size > 0) this.#timer = setTimeout(() => void this.#look(false), this.#pollMs);
  }

  #statusEvent(): string {
    try {
      const status = readStatus(this.#path);
      return status ? event("status", status) : "";
    } catch {
      // Half of a status is told by the run's page; here the next one will do.
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
    const isDue = nowMs - this.#saidMs >= commentMs;
    if (text === "" && !isDue) return;
    this.#saidMs = nowMs;
    for (const response of this.listeners) {
      if (response.writableLength > maxUnread) response.destroy();
      else response.write(text === "" ? ": still here\n\n" : text);
    }
  }
}

function event(name: string, data: unknown): string {
  return `event: ${name}\ndata: ${JSON.stringify(data)}\n\n`;
}

/** Of each file of a run that is looked at: what changes when it is written. */
async function signatures(path: string): Promise<ReadonlyMap<string, string>> {
  const names = [runFiles.status, inspectionFiles.steps, ...Object.values(told)];
  const found = await Promise.all(
    names.map(async (name): Promise<[string, string]> => {
      try {
        const { ino, size, mtimeMs } = await stat(join(path, name));
        return [name, `${ino} ${size} ${mtimeMs}`];
      } catch {
        return [name, "none"];
      }
    }),
  );
  return new Map(found);
}
