/** Runs many commands of `holdfast` in one process, because the program takes a second to load. */

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { lateOptimization } from "./short-process.js";

const fixture = fileURLToPath(new URL("../fixtures/command-host.js", import.meta.url));

export interface CommandResult {
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

export interface CommandOptions {
  /** The folder to run it in, if not the one that the host was started in. */
  readonly cwd?: string;
  /** Variables that it sees besides those of the host. */
  readonly env?: Readonly<Record<string, string>>;
  /** When the output contains `at`, the process calls `onSignal`, and then sends itself the signal `name` if one is given. */
  readonly signal?: { readonly name?: NodeJS.Signals; readonly at: string };
  /** Gets the output so far, just before the signal. */
  readonly onSignal?: (printed: string) => void;
}

export interface CommandHost {
  readonly process: ChildProcess;
  /** One after the other. */
  run(args: readonly string[], options?: CommandOptions): Promise<CommandResult>;
  close(): void;
}

/** `shell`: a command that runs the one after it, as `bash -c 'ulimit -f 9; "$@"' bash` does. */
export function startCommandHost(
  cwd: string,
  env: NodeJS.ProcessEnv,
  shell: readonly string[] = [],
): CommandHost {
  const [name = "", ...args] = [...shell, process.execPath, ...lateOptimization, fixture];
  const child = spawn(name, args, { cwd, env, stdio: ["ignore", "inherit", "inherit", "ipc"] });
  const ended = once(child, "exit").then(([code]) => {
    throw new Error(`The process of the commands ended with ${code}.`);
  });
  // A pending command gets an error; without one, the end was intended.
  ended.catch(() => undefined);
  let last: Promise<unknown> = Promise.resolve();
  async function run(args: readonly string[], options: CommandOptions): Promise<CommandResult> {
    const { cwd: folder = cwd, env: own, signal, onSignal } = options;
    child.send({ args, cwd: folder, env: own, signal });
    for (;;) {
      const [message] = await Promise.race([once(child, "message"), ended]);
      if (!("printed" in message)) return message as CommandResult;
      onSignal?.(message.printed);
    }
  }
  return {
    process: child,
    run(args, options = {}) {
      const result = last.then(() => run(args, options));
      last = result.catch(() => undefined);
      return result;
    },
    close: () => child.disconnect(),
  };
}
