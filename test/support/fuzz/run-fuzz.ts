/** Fuzzes targets in a separate process, under limits of memory and time, and keeps a harmful input. */

import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { MiB } from "../../../src/units/index.js";
import { makeFolder } from "../folders.js";
import { filesBelow, repositoryRoot } from "../repository.js";
import { generousTimeoutMs } from "../timeouts.js";
import type { FuzzReport, FuzzTask } from "./child.js";

export interface FuzzOptions {
  readonly seed: number;
  /** How long mutants of each target are tried, in milliseconds; 0: only the corpus. */
  readonly durationMs: number;
  /** The time limit of one input; default: a generous one, which is also the limit of the start of the process. */
  readonly inputMs?: number;
  /** The most memory that the process may take. Default: 700 MiB. */
  readonly maxMemoryBytes?: number;
  /** The module with the targets; default: those of the library. */
  readonly targetsUrl?: URL;
}

export interface FuzzResult {
  readonly report: FuzzReport | undefined;
  /** What went wrong, and where the input is; undefined if nothing did. */
  readonly failure: string | undefined;
}

/** The library takes about 100 MiB, and an input at most 256 KiB. */
const defaultMemoryBytes = 700 * MiB;
const heapMiB = 400;
/** The limit of writable memory of the process; it ends one that allocates faster than it can check. */
const maxDataBytes = 2048 * MiB;
const pollEveryMs = 250;

const program = fileURLToPath(new URL("./child.js", import.meta.url));

/** Inputs that once did harm, by target: they are always tried. */
export function corpusOf(target: string): readonly string[] {
  return filesBelow(`test/fixtures/fuzz-corpus/${target}`, "").map((path) => join(repositoryRoot, path));
}

export async function fuzz(targets: readonly string[], options: FuzzOptions): Promise<FuzzResult> {
  const {
    seed,
    durationMs,
    inputMs = generousTimeoutMs,
    maxMemoryBytes = defaultMemoryBytes,
    targetsUrl = new URL("./targets.js", import.meta.url),
  } = options;
  const folder = makeFolder();
  const inputPath = join(makeFolder(), "input");
  const jobs = targets.map((target) => ({ target, files: corpusOf(target) }));
  const task: FuzzTask = {
    targetsUrl: targetsUrl.href,
    jobs,
    folder,
    inputPath,
    maxMemoryBytes,
    seed,
    durationMs,
  };
  const node = [process.execPath, `--max-old-space-size=${heapMiB}`, program, JSON.stringify(task)];
  const limits = existsSync("/usr/bin/prlimit") ? ["/usr/bin/prlimit", `--data=${maxDataBytes}`] : [];
  const [command = "", ...args] = [...limits, ...node];
  const child = spawn(command, args, { stdio: ["ignore", "pipe", "pipe"] });
  let [printed, complaints, isLate] = ["", "", false];
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    printed += text;
  });
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    complaints = (complaints + text).slice(-4000);
  });
  const startMs = Date.now();
  const timer = setInterval(() => {
    const changedMs = existsSync(inputPath) ? statSync(inputPath).mtimeMs : undefined;
    if (Date.now() <= (changedMs === undefined ? startMs + generousTimeoutMs : changedMs + inputMs)) return;
    isLate = true;
    child.kill("SIGKILL");
  }, pollEveryMs);
  const [code, signal] = await new Promise<[number | null, NodeJS.Signals | null]>((resolve) => {
    child.once("close", (code, signal) => resolve([code, signal]));
  });
  clearInterval(timer);
  const report = reportIn(printed);
  if (code === 0 && report) return { report, failure: undefined };
  const what = isLate
    ? `it took longer than ${inputMs} ms`
    : (report?.failure ?? `the process ended with ${signal ?? `exit code ${code}`}: ${complaints}`);
  const target = report?.target ?? targets.join("-");
  return { report, failure: `${target}, seed ${seed}: ${what}\n${keepInput(target, inputPath)}` };
}

function reportIn(printed: string): FuzzReport | undefined {
  try {
    return JSON.parse(printed.trim().split("\n").at(-1) ?? "") as FuzzReport;
  } catch {
    return undefined;
  }
}

/** Copies the input to a permanent file, and says what to do with it. */
function keepInput(target: string, inputPath: string): string {
  if (!existsSync(inputPath)) return "It ended before its first input.";
  const bytes = readFileSync(inputPath);
  const folder = join(tmpdir(), "holdfast-fuzz");
  mkdirSync(folder, { recursive: true });
  const digest = createHash("sha256").update(bytes).digest("hex").slice(0, 12);
  const kept = join(folder, `${target}-${digest}`);
  writeFileSync(kept, bytes);
  return `The input is ${kept}, ${bytes.length} bytes. Fix the fault, and put the file into test/fixtures/fuzz-corpus/${target}/.`;
}
