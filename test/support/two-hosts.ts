/** Two hosts on one machine: network namespaces with their own host names, and a link between them that is slow and loses packets. */

import assert from "node:assert/strict";
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { repositoryRoot } from "./repository.js";

/** Why there can be none; false if there can. */
export function lacksTwoHosts(): string | false {
  if (process.getuid?.() !== 0) return "only root can make network namespaces";
  if (!existsSync("/dev/net/tun")) return "there is no /dev/net/tun";
  for (const program of ["ip", "unshare", "python3"])
    if (!(process.env["PATH"] ?? "").split(":").some((folder) => existsSync(join(folder, program))))
      return `${program} is not installed`;
  return false;
}

export class TwoHosts {
  readonly #names: readonly [string, string];
  readonly #agent: string;
  readonly #link: ChildProcess;
  #output = "";

  private constructor(names: readonly [string, string], agent: string, link: ChildProcess) {
    this.#names = names;
    this.#agent = agent;
    this.#link = link;
    link.stdout?.setEncoding("utf8").on("data", (text: string) => {
      this.#output += text;
    });
  }

  /** `folder` is for a program that starts others on a host, as ssh does. */
  static async open(
    folder: string,
    { delayMs, lossPercent }: { readonly delayMs: number; readonly lossPercent: number },
  ): Promise<TwoHosts> {
    const names = [`hf${process.pid}a`, `hf${process.pid}b`] as const;
    for (const name of names) execFileSync("ip", ["netns", "add", name]);
    const agent = join(folder, "agent.sh");
    const cases = names.map((name, index) => `${addressOf(index)}) name=${name} ;;`).join(" ");
    writeFileSync(
      agent,
      `#!/bin/sh\nhost=$1; shift\ncase $host in ${cases} esac\nexec ip netns exec $name unshare --uts sh -c "hostname $name; $*"\n`,
      { mode: 0o755 },
    );
    const script = join(repositoryRoot, "test/support/slow_link.py");
    const link = spawn("python3", [script, ...names, String(delayMs), String(lossPercent)], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    const hosts = new TwoHosts(names, agent, link);
    await once(link.stdout, "data");
    return hosts;
  }

  /** Open MPI's launcher on the first host, with a process on each. */
  command(program: readonly string[]): readonly [string, readonly string[]] {
    const [first] = this.#names;
    const network = ["btl_tcp_if_include", "oob_tcp_if_include"].flatMap((name) => [
      ...["--mca", name, "10.199.0.0/24"],
    ]);
    const mpirun = [
      ...["mpirun.openmpi", "--allow-run-as-root", "--tag-output", "--mca", "plm_rsh_agent", this.#agent],
      ...["--mca", "btl", "tcp,self", ...network, "--host", `${addressOf(0)}:1,${addressOf(1)}:1`, "-n", "2"],
    ];
    const shell = ["unshare", "--uts", "sh", "-c", `hostname ${first}; exec "$@"`, "sh"];
    return ["ip", ["netns", "exec", first, ...shell, ...mpirun, ...program]];
  }

  /** No packet arrives for so long. */
  cut(forMs: number): void {
    this.#link.kill("SIGSTOP");
    setTimeout(() => this.#link.kill("SIGCONT"), forMs);
  }

  /** Ends the link, and returns how many packets it has carried and lost. */
  async close(): Promise<{ readonly carried: number; readonly lost: number }> {
    this.#link.kill("SIGCONT");
    this.#link.kill("SIGTERM");
    await once(this.#link, "close");
    for (const name of this.#names) execFileSync("ip", ["netns", "del", name]);
    const [, carried, lost] = /carried (\d+) lost (\d+)/.exec(this.#output) ?? assert.fail(this.#output);
    return { carried: Number(carried), lost: Number(lost) };
  }
}

function addressOf(host: number): string {
  return `10.199.0.${host + 1}`;
}
