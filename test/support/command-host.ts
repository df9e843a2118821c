/** Runs many commands of `holdfast` in one process, because the program takes a second to load. */

import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";

const fixture = fileURLToPath(new URL("../fixtures/command-host.js", import.meta.url));

export interface CommandResult {
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

export interface CommandHost {
  /** One at a time; in `cwd`, or in the folder that the host was started in. */
  run(args: readonly string[], cwd?: string): Promise<CommandResult>;
  close(): void;
}

export function startCommandHost(cwd: string, env: NodeJS.ProcessEnv): CommandHost {
  const child: ChildProcess = fork(fixture, { cwd, env, stdio: ["ignore", "inherit", "inherit", "ipc"] });
  const ended = once(child, "exit").then(([code]) => {
    throw new Error(`The process of the commands ended with ${code}.`);
  });
  // A pending command gets an error; without one, the end was intended.
  ended.catch(() => undefined);
  return {
    async run(args, folder = cwd) {
      child.send({ args, cwd: folder });
      const [result] = await Promise.race([once(child, "message"), ended]);
      return result as CommandResult;
    },
    close: () => child.disconnect(),
  };
}
