/**
 * A recorded run in four commands, each of which can be disturbed: train until a signal arrives, resume to
 * the end, evaluate, inspect. After any disturbance the same command must lead to the end of an undisturbed
 * run, with nothing lost.
 */

import assert from "node:assert/strict";
import { cpSync, existsSync, mkdirSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { exitCodes, HoldfastError } from "../../src/errors/index.js";
import { readRun } from "../../src/train/index.js";
import {
  countCalls,
  describeFault,
  type FailingKind,
  type Fault,
  faultKinds,
  withFault,
} from "./failing-calls.js";
import { bytesIn } from "./folder-bytes.js";
import {
  type Ended,
  endOf,
  evaluateRun,
  inspectRun,
  textOfDeadLock,
  trainRun,
  writeRunBars,
} from "./recorded-run.js";

export type CommandName = "train" | "resume" | "evaluate" | "inspect" | "train with threads";

export interface Case {
  readonly command: CommandName;
  readonly fault: Fault;
}

interface Command {
  /** The folder that it starts from; none for a new run. */
  readonly from?: string;
  readonly exitCode: number;
  readonly run: (out: string) => Promise<Ended>;
  /** Kinds of calls that fail; default: all. */
  readonly kinds?: readonly FailingKind[];
}

/** Of calls that repeat hundreds of times, this many fail. */
const maxBatchedCopies = 40;

export class DisturbedRuns {
  readonly #folder: string;
  readonly #bars: string;
  readonly #commands: Readonly<Record<CommandName, Command>>;
  /** The calls of each command that were counted. */
  readonly #counts = new Map<CommandName, ReadonlyMap<FailingKind, number>>();
  #expected = "";
  #count = 0;

  private constructor(folder: string) {
    this.#folder = folder;
    this.#bars = join(folder, "bars.csv");
    const [bars, curves] = [this.#bars, join(folder, "curves")];
    this.#commands = {
      train: {
        exitCode: exitCodes.stopped.code,
        run: (out) => trainRun({ bars, out, stopAfter: 1, curves }),
      },
      resume: { from: "stopped", exitCode: exitCodes.ok.code, run: (out) => trainRun({ bars, out }) },
      evaluate: { from: "whole", exitCode: exitCodes.ok.code, run: (out) => evaluateRun(out, bars) },
      inspect: { from: "whole", exitCode: exitCodes.ok.code, run: (out) => inspectRun(out, "run", curves) },
      "train with threads": {
        ...{ exitCode: exitCodes.ok.code, kinds: ["thread", "spawn", "listen"] },
        run: (out) => trainRun({ bars, out, hasThreads: true }),
      },
    };
  }

  /** Creates an undisturbed run as the reference. */
  static async prepare(folder: string): Promise<DisturbedRuns> {
    const runs = new DisturbedRuns(folder);
    mkdirSync(folder, { recursive: true });
    await writeRunBars(runs.#bars);
    const whole = join(folder, "whole");
    requireEnd(await runs.#commands.train.run(whole), exitCodes.stopped.code);
    cpSync(whole, join(folder, "stopped"), { recursive: true });
    requireEnd(await runs.#commands.resume.run(whole), exitCodes.ok.code);
    runs.#expected = endOf(whole);
    return runs;
  }

  /** Runs a command in a folder, undisturbed. */
  run(command: CommandName, out: string): Promise<Ended> {
    return this.#commands[command].run(out);
  }

  /** Every fault of every call of a command. */
  async cases(command: CommandName): Promise<readonly Case[]> {
    const { kinds } = this.#commands[command];
    const counts =
      this.#counts.get(command) ??
      (await this.#in(command, (out) => countCalls(() => this.#commands[command].run(out))));
    this.#counts.set(command, counts);
    return [...counts].flatMap(([kind, count]) => {
      if (kinds && !kinds.includes(kind)) return [];
      const numbers = Array.from({ length: count }, (_, index) => index + 1);
      const step = kind === "machine" ? Math.ceil(count / maxBatchedCopies) : 1;
      return numbers
        .filter((nth) => nth % step === 0 || nth === 1)
        .flatMap((nth) =>
          faultKinds[kind].map((kindOfFault) => ({ command, fault: { kind, nth, ...kindOfFault } })),
        );
    });
  }

  /**
   * Runs a command with a fault, and then the same command again. Returns whether the fault occurred, and how
   * the command ended.
   */
  async disturb({ command, fault }: Case): Promise<{ readonly hasFailed: boolean; readonly ended: Ended }> {
    return this.#in(command, async (out) => {
      const { exitCode, run } = this.#commands[command];
      const before = existsSync(out) ? bytesIn(out) : {};
      const files = openFiles();
      const { result, stray, failed } = await watched(() => withFault(fault, () => run(out)));
      const what = `${command}, ${describeFault(fault)} (${failed?.name} ${String(failed?.args[0])})`;
      assert.deepEqual(stray, [], what);
      requireReported(result, exitCode, fault, what);
      // Connections of the inspector and pipes of threads are closed a moment later.
      const hasSockets = command === "inspect" || command === "train with threads";
      assert.ok(hasSockets || (await areClosed(files)), `${what}: files stay open`);
      readRun(out);
      if (command === "evaluate" || command === "inspect") {
        assert.deepEqual(bytesIn(out), before, `${what}: a reader has changed the run`);
        requireEnd(await run(out), exitCode, what);
      } else await this.resumeToEnd(out, what);
      return { hasFailed: failed !== undefined, ended: result };
    });
  }

  /** Resumes an interrupted run, undisturbed, and compares its end. */
  async resumeToEnd(out: string, what: string): Promise<void> {
    buryProcess(out);
    requireEnd(await trainRun({ bars: this.#bars, out }), exitCodes.ok.code, what);
    assert.equal(endOf(out), this.#expected, `${what}: it ends differently from an undisturbed run`);
    const left = readdirSync(out, { recursive: true }).filter((name) => /\.(part|stale)$/.test(String(name)));
    assert.deepEqual(left, [], `${what}: files are left over`);
  }

  async #in<Result>(command: CommandName, body: (out: string) => Promise<Result>): Promise<Result> {
    const { from } = this.#commands[command];
    const folder = join(this.#folder, String(this.#count++));
    const out = join(folder, "run");
    if (from !== undefined) cpSync(join(this.#folder, from), out, { recursive: true });
    const result = await body(out);
    rmSync(folder, { recursive: true, force: true });
    return result;
  }
}

/** The number of open descriptors of this process. */
function openFiles(): number {
  return readdirSync("/proc/self/fd").length;
}

/** True if at most this many files are open. Those that another thread closes take a moment. */
async function areClosed(files: number): Promise<boolean> {
  for (let wait = 0; wait < 2000 && openFiles() > files; wait++)
    await new Promise((done) => setTimeout(done, 5));
  return openFiles() <= files;
}

/** A process that could not remove its lock has ended by now; here it is this process, which is alive. */
function buryProcess(out: string): void {
  const lock = join(out, "lock.json");
  if (existsSync(lock)) writeFileSync(lock, textOfDeadLock(lock));
}

export function requireEnd({ exitCode, error }: Ended, expected: number, what = "undisturbed"): void {
  assert.equal(exitCode, expected, `${what}: ${error instanceof Error ? error.stack : error}`);
}

/** The command has succeeded despite the fault, or has reported an error of Holdfast with its exit code. */
function requireReported({ exitCode, error }: Ended, expected: number, { how }: Fault, what: string): void {
  if (error === undefined) {
    assert.equal(exitCode, expected, what);
    return;
  }
  const text = error instanceof Error ? error.stack : String(error);
  assert.ok(error instanceof HoldfastError, `${what}: a raw error ended it: ${text}`);
  const isRejected = how === "EACCES" || how === "EPERM";
  const codes: number[] = [(isRejected ? exitCodes.rejected : exitCodes.failed).code];
  assert.ok(codes.includes(exitCode), `${what}: exit code ${exitCode} for ${text}`);
}

/** Runs a function and collects unhandled errors, and stacks on stderr. */
async function watched<Result extends object>(
  body: () => Promise<Result>,
): Promise<Result & { stray: string[] }> {
  const stray: string[] = [];
  const note = (error: unknown): void => {
    stray.push(`unhandled: ${error instanceof Error ? error.stack : String(error)}`);
  };
  const { write } = process.stderr;
  process.stderr.write = ((text: string | Uint8Array) => {
    if (/\n {4}at /.test(String(text))) stray.push(String(text));
    return true;
  }) as typeof write;
  process.on("unhandledRejection", note).on("uncaughtException", note);
  try {
    const result = await body();
    // Also errors that are reported a moment later.
    await new Promise((done) => setImmediate(done));
    return { ...result, stray };
  } finally {
    process.off("unhandledRejection", note).off("uncaughtException", note);
    process.stderr.write = write;
  }
}
