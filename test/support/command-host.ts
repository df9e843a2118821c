/** Runs many commands of `holdfast` in one process, because the program takes a second to load. */

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { shortRunFlags } from "./short-process.js";

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

/** The hosts of this process without a shell, by their environment: test files that share the process share them too. */
const sharedHosts = new Map<string, CommandHost>();

/** `shell`: a command that runs the one after it, as `bash -c 'ulimit -f 9; "$@"' bash` does. Such a host is not shared. */
export function startCommandHost(
  cwd: string,
  env: NodeJS.ProcessEnv,
  shell: readonly string[] = [],
): CommandHost {
  if (shell.length > 0) return startHost(cwd, env, shell);
  if (sharedHosts.size === 0) process.once("beforeExit", endSharedHosts);
  const key = JSON.stringify(Object.entries(env).sort());
  const open = sharedHosts.get(key);
  const host = open && open.process.exitCode === null && open.process.connected ? open : startHost(cwd, env);
  sharedHosts.set(key, host);
  return {
    process: host.process,
    run: (args, options) => host.run(args, { cwd, ...options }),
    // It ends after the last file of this process.
    close: () => undefined,
  };
}

function startHost(cwd: string, env: NodeJS.ProcessEnv, shell: readonly string[] = []): CommandHost {
  const [name = "", ...args] = [...shell, process.execPath, ...shortRunFlags, fixture];
  const child = spawn(name, args, { cwd, env, stdio: ["ignore", "inherit", "inherit", "ipc"] });
  if (shell.length === 0) setAlive(child, false);
  const ended = once(child, "exit").then(([code]) => {
    throw new Error(`The process of the commands ended with ${code}.`);
  });
  // A pending command gets an error; without one, the end was intended.
  ended.catch(() => undefined);
  let last: Promise<unknown> = Promise.resolve();
  async function run(args: readonly string[], options: CommandOptions): Promise<CommandResult> {
    const { cwd: folder = cwd, env: own, signal, onSignal } = options;
    setAlive(child, true);
    try {
      child.send({ args, cwd: folder, env: own, signal });
      for (;;) {
        const [message] = await Promise.race([once(child, "message"), ended]);
        if (!("printed" in message)) return message as CommandResult;
        onSignal?.(message.printed);
      }
    } finally {
      if (shell.length === 0) setAlive(child, false);
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

/** Once nothing else keeps this process alive: it ends after its hosts. */
function endSharedHosts(): void {
  for (const { process: child } of sharedHosts.values()) {
    child.ref();
    if (child.connected) child.disconnect();
  }
}

/** Whether the child keeps this process alive. */
function setAlive(child: ChildProcess, isAlive: boolean): void {
  for (const handle of [child, child.channel]) handle?.[isAlive ? "ref" : "unref"]();
}
