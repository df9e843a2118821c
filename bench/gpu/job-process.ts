/**
 * `holdfast train crossasset` in its own process, as a user runs it: every line that it prints, with the time
 * of its arrival.
 */

import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { mkdirSync, readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import type { crossasset } from "holdfast";
import { repositoryRoot } from "../../test/support/repository.js";
import { type CommonOptions, cudaEnvironment } from "./options.js";

type JobEvent = crossasset.JobEvent;

export interface HeardEvent {
  /** Since the process was started. */
  readonly atMs: number;
  readonly event: JobEvent;
}

export interface JobProcess {
  readonly heard: readonly HeardEvent[];
  readonly wallMs: number;
  readonly code: number | null;
  readonly signal: string | null;
  /** The end of its stderr. */
  readonly errors: string;
  /** The peak memory of the process on the host, by sampling. */
  readonly hostBytes: number;
}

/** A signal to send this long after an event. */
export interface Cut {
  readonly signal: "SIGTERM" | "SIGKILL";
  readonly afterMs: number;
  readonly isAt: (event: JobEvent) => boolean;
}

export interface JobProcessOptions {
  readonly common: CommonOptions;
  readonly device: string;
  readonly args: readonly string[];
  /** The process is ended after this time. */
  readonly limitMs: number;
  readonly cut?: Cut;
}

export async function runJobProcess(options: JobProcessOptions): Promise<JobProcess> {
  const { common, device, args, limitMs, cut } = options;
  mkdirSync(common.cache, { recursive: true, mode: 0o700 });
  // The emulator runs a step in seconds, which would look like a stall.
  const patience = common["emulator"] ? ["--stall-after", "off"] : [];
  const main = join(repositoryRoot, "dist/lib/main.js");
  const startedAt = performance.now();
  const child = spawn(
    process.execPath,
    [main, "train", "crossasset", "--device", device, "--json", ...patience, ...args],
    { stdio: ["ignore", "pipe", "pipe"], env: { ...cudaEnvironment, HOLDFAST_CACHE: common.cache } },
  );
  const timer = setTimeout(() => child.kill("SIGKILL"), limitMs);
  const heard: HeardEvent[] = [];
  let [errors, hostBytes, isCut] = ["", 0, false];
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    errors = (errors + text).slice(-2000);
  });
  const closed = once(child, "close");
  createInterface({ input: child.stdout }).on("line", (line) => {
    const event = parse(line);
    if (!event) return;
    heard.push({ atMs: performance.now() - startedAt, event });
    if (cut && !isCut && cut.isAt(event)) {
      isCut = true;
      if (cut.afterMs === 0) child.kill(cut.signal);
      else setTimeout(() => child.kill(cut.signal), cut.afterMs);
    }
    if (event.kind !== "step") hostBytes = Math.max(hostBytes, peakOf(child.pid));
  });
  const [code, signal] = (await closed) as [number | null, string | null];
  clearTimeout(timer);
  return { heard, wallMs: performance.now() - startedAt, code, signal, errors: errors.trim(), hostBytes };
}

/** A line that a kill has cut off does not count. */
function parse(line: string): JobEvent | undefined {
  try {
    return JSON.parse(line) as JobEvent;
  } catch {
    return undefined;
  }
}

function peakOf(pid: number | undefined): number {
  try {
    const status = readFileSync(`/proc/${pid}/status`, "utf8");
    return 1024 * Number(/^VmHWM:\s+(\d+) kB/m.exec(status)?.[1] ?? 0);
  } catch {
    return 0;
  }
}

/** The events of one kind. */
export function eventsOf<Kind extends JobEvent["kind"]>(
  { heard }: Pick<JobProcess, "heard">,
  kind: Kind,
): readonly Extract<JobEvent, { kind: Kind }>[] {
  return heard.flatMap(({ event }) =>
    event.kind === kind ? [event as Extract<JobEvent, { kind: Kind }>] : [],
  );
}

/** Milliseconds from each event of one kind to the next event of another kind. */
export function timeBetween(
  { heard }: Pick<JobProcess, "heard">,
  from: JobEvent["kind"],
  to: JobEvent["kind"],
): number {
  let [sum, since] = [0, Number.NaN];
  for (const { atMs, event } of heard) {
    if (event.kind === from) since = atMs;
    else if (event.kind === to && !Number.isNaN(since)) [sum, since] = [sum + atMs - since, Number.NaN];
    else if (event.kind !== "step") since = Number.NaN;
  }
  return sum;
}

export interface KeptCheckpoints {
  readonly count: number;
  readonly bytes: number;
  readonly last: string;
  /**
   * The hash of the last checkpoint's tensors: weights, moments, random state, normaliser. Its header
   * contains times.
   */
  readonly sha256: string;
}

export function checkpointsOf(run: string): KeptCheckpoints {
  const folder = join(run, "checkpoints");
  const names = readdirSync(folder)
    .filter((name) => name.endsWith(".safetensors"))
    .sort();
  const last = names.at(-1);
  if (last === undefined) throw new Error(`${run} has no checkpoint.`);
  const bytes = readFileSync(join(folder, last));
  const tensors = bytes.subarray(8 + Number(bytes.readBigUInt64LE(0)));
  return {
    ...{ count: names.length, last },
    bytes: names.reduce((sum, name) => sum + statSync(join(folder, name)).size, 0),
    sha256: createHash("sha256").update(tensors).digest("hex"),
  };
}
