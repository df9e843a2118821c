/**
 * Runs commands of `holdfast` in the test's own process, for commands that print, fail or end at once: a
 * process of its own takes most of a second to load the program.
 */

import { AsyncLocalStorage } from "node:async_hooks";
import { run } from "../../src/cli/command.js";

export interface PrintedCommand {
  readonly status: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** What the command of the current call has printed. Other code prints as always, like the test reporter. */
const printing = new AsyncLocalStorage<{ stdout: string; stderr: string }>();

export interface Surroundings {
  /** The folder to run it in; default: the current one. */
  readonly cwd?: string;
  /** Variables that it sees besides those of this process. */
  readonly env?: Readonly<Record<string, string>>;
}

/** Runs a command; returns its output and its exit code. One after the other. */
export async function runCommand(
  args: readonly string[],
  { cwd = process.cwd(), env = {} }: Surroundings = {},
): Promise<PrintedCommand> {
  const printed = { stdout: "", stderr: "" };
  const before = { folder: process.cwd(), env: { ...process.env } };
  const restore = (["stdout", "stderr"] as const).map(catchOutput);
  process.chdir(cwd);
  Object.assign(process.env, env);
  try {
    const status = await printing.run(printed, () => run(args));
    return { status, ...printed };
  } finally {
    process.chdir(before.folder);
    for (const name of Object.keys(env)) {
      if (before.env[name] === undefined) delete process.env[name];
      else process.env[name] = before.env[name];
    }
    for (const undo of restore) undo();
  }
}

/** Returns a function that ends it. */
function catchOutput(name: "stdout" | "stderr"): () => void {
  const stream = process[name];
  const write = stream.write;
  stream.write = ((chunk: string | Uint8Array, ...more: unknown[]) => {
    const printed = printing.getStore();
    if (!printed) return Reflect.apply(write, stream, [chunk, ...more]);
    printed[name] += typeof chunk === "string" ? chunk : Buffer.from(chunk).toString();
    return true;
  }) as typeof stream.write;
  return () => {
    stream.write = write;
  };
}
