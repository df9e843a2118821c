/** Runs programs on several ranks: with the MPI implementations that are installed, or with the variables of torchrun. */

import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { createServer } from "node:net";
import { fileURLToPath } from "node:url";
import { plainDevice, shortRunFlags } from "./short-process.js";

export type MpiName = "openmpi" | "mpich";

/** Debian's launchers, which can be installed next to each other. */
const launchers: Readonly<Record<MpiName, readonly string[]>> = {
  // Without slots for so many processes, and as root in containers.
  openmpi: ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--tag-output"],
  mpich: ["mpirun.mpich", "-prepend-rank"],
};

export const mpiNames: readonly MpiName[] = ["openmpi", "mpich"];

/** Why tests with an implementation are skipped; false if it is installed. */
export function lacksMpi(name: MpiName): string | false {
  const [program = ""] = launchers[name];
  return existsSync(`/usr/bin/${program}`)
    ? false
    : `${program} is not installed: apt-get install ${name === "openmpi" ? "openmpi-bin" : "mpich"}`;
}

export interface RanksResult {
  readonly status: number | null;
  readonly signal: NodeJS.Signals | null;
  /** Of all ranks together. */
  readonly output: string;
}

export interface RanksOptions {
  readonly mpi: MpiName;
  readonly size: number;
  /** The name of a program in test/fixtures/ranks. */
  readonly program: string;
  readonly args?: readonly (string | number)[];
  readonly env?: Readonly<Record<string, string>>;
  /** Then the launcher and all ranks are killed, and the result has the signal. Default: 60,000. */
  readonly withinMs?: number;
}

/** Node and its arguments for a program in test/fixtures/ranks. */
export function rankProgram(name: string, args: readonly (string | number)[]): [string, string[]] {
  const script = fileURLToPath(new URL(`../fixtures/ranks/${name}.js`, import.meta.url));
  return [process.execPath, [...shortRunFlags, "--conditions=holdfast-source", script, ...args.map(String)]];
}

export interface ProcessesOptions extends Omit<RanksOptions, "mpi"> {
  /** Variables of one rank. */
  readonly envOf?: (rank: number) => Readonly<Record<string, string>>;
}

/** Runs a program on several ranks as torchrun starts them: with variables, and without MPI. */
export async function runProcesses(options: ProcessesOptions): Promise<RanksResult> {
  const { size, program, args = [], env, envOf, withinMs = 60_000 } = options;
  const [node, nodeArgs] = rankProgram(program, args);
  const port = await freePort();
  let output = "";
  const children = Array.from({ length: size }, (_, rank) => {
    const variables = {
      RANK: rank,
      WORLD_SIZE: size,
      LOCAL_RANK: rank,
      MASTER_ADDR: "127.0.0.1",
      MASTER_PORT: port,
    };
    const texts = Object.fromEntries(Object.entries(variables).map(([name, value]) => [name, String(value)]));
    const child = spawn(node, nodeArgs, {
      env: { ...process.env, ...plainDevice, ...texts, ...env, ...envOf?.(rank) },
      stdio: ["ignore", "pipe", "pipe"],
      timeout: withinMs,
      killSignal: "SIGKILL",
    });
    for (const stream of [child.stdout, child.stderr])
      stream.setEncoding("utf8").on("data", (text: string) => {
        output += text;
      });
    return once(child, "close") as Promise<[number | null, NodeJS.Signals | null]>;
  });
  const ends = await Promise.all(children);
  const [status = 0, signal = null] = ends.find(([code]) => code !== 0) ?? [];
  return { status, signal, output };
}

/** A port that nothing listens at. */
async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  server.close();
  return typeof address === "object" && address ? address.port : 0;
}

export function runRanks(options: RanksOptions): Promise<RanksResult> {
  const { program, args = [], ...rest } = options;
  return startRanks({ ...rest, command: rankProgram(program, args) }).result;
}

export interface StartOptions extends Pick<RanksOptions, "mpi" | "size" | "env" | "withinMs"> {
  /** Node and its arguments. */
  readonly command: readonly [string, readonly string[]];
  /** Called with all output so far. */
  readonly onOutput?: (output: string) => void;
}

export interface StartedRanks {
  readonly result: Promise<RanksResult>;
  /** The process of mpirun. */
  readonly launcher: number;
  /** The process of a rank; undefined if it does not run. */
  processOf(rank: number): number | undefined;
}

/** The variables that have the rank. */
const rankVariables: Readonly<Record<MpiName, string>> = {
  openmpi: "OMPI_COMM_WORLD_RANK",
  mpich: "PMI_RANK",
};

export function startRanks(options: StartOptions): StartedRanks {
  const { mpi, size, command, env, withinMs = 60_000, onOutput } = options;
  const [launcher = "", ...flags] = launchers[mpi];
  const [node, nodeArgs] = command;
  const mark = randomUUID();
  const child = spawn(launcher, [...flags, "-n", String(size), node, ...nodeArgs], {
    env: {
      ...{ ...process.env, ...plainDevice, OMPI_MCA_btl_base_warn_component_unused: "0", TEST_RANKS: mark },
      ...env,
    },
    stdio: ["ignore", "pipe", "pipe"],
    // The leader of a group, so that the ranks can be killed with it.
    detached: true,
  });
  const timer = setTimeout(() => child.pid && process.kill(-child.pid, "SIGKILL"), withinMs);
  let output = "";
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding("utf8").on("data", (text: string) => {
      output += text;
      onOutput?.(output);
    });
  const end = async (): Promise<RanksResult> => {
    const [status, signal] = (await once(child, "close")) as [number | null, NodeJS.Signals | null];
    clearTimeout(timer);
    return { status, signal, output };
  };
  return {
    result: end(),
    launcher: child.pid ?? 0,
    processOf: (rank) => processWith([`TEST_RANKS=${mark}`, `${rankVariables[mpi]}=${rank}`]),
  };
}

/** A process with these variables in its environment. */
export function processWith(variables: readonly string[]): number | undefined {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .find((pid) => variables.every((variable) => environmentOf(pid).includes(variable)));
}

function environmentOf(pid: number): readonly string[] {
  try {
    return readFileSync(`/proc/${pid}/environ`, "latin1").split("\0");
  } catch {
    // It has ended.
    return [];
  }
}
