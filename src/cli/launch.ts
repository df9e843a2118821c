/**
 * `holdfast launch`: starts a program several times on this machine, and all of them again when one is lost. On CPUs mpirun starts them, so
 * that they can exchange bytes; otherwise they get the variables of torchrun. For several machines it runs on each of them.
 */

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:net";
import { constants } from "node:os";
import { delimiter, join } from "node:path";
import { type Command, Option } from "commander";
import { isThere } from "../data/index.js";
import { exitCodes, HoldfastError } from "../errors/index.js";
import { wholeNumber } from "./options.js";

interface LaunchOptions {
  readonly processes?: number;
  readonly restarts: number;
  readonly by: "auto" | "mpirun" | "variables";
  readonly machines: number;
  readonly machine: number;
}

/** Exit codes after which another start would end in the same way. */
const finalCodes: ReadonlySet<number> = new Set([
  exitCodes.ok.code,
  exitCodes.usage.code,
  exitCodes.stopped.code,
  exitCodes.rejected.code,
  exitCodes.diverged.code,
]);

/** How long the other processes may take to end by themselves: they name the one that is lost. */
const graceMs = 15_000;

export function addLaunch(program: Command, end: (code: number) => void): void {
  program
    .command("launch")
    .description("start a program several times on this machine, as the ranks of one run")
    .argument("<program...>", "the program with its arguments, after --")
    .addOption(
      new Option("-n, --processes <number>", "how many processes to start").argParser(wholeNumber(1)),
    )
    .addOption(
      new Option("--restarts <number>", "how often to start all again after one of them was lost")
        .argParser(wholeNumber(0))
        .default(0),
    )
    .addOption(
      new Option(
        "--by <way>",
        "mpirun, which CPUs need, or the variables of torchrun, which GPUs need; auto takes mpirun if it is installed",
      )
        .choices(["auto", "mpirun", "variables"])
        .default("auto"),
    )
    .addOption(
      new Option(
        "--machines <number>",
        "how many machines start as many processes each, by variables; MASTER_ADDR names the first",
      )
        .argParser(wholeNumber(1))
        .default(1),
    )
    .addOption(
      new Option("--machine <index>", "the index of this machine, from 0")
        .argParser(wholeNumber(0))
        .env("JOB_COMPLETION_INDEX")
        .default(0),
    )
    .action(async (command: string[], options: LaunchOptions) => end(await launch(command, options)));
}

/** Runs the processes until they succeed, can't, or were restarted often enough. Returns the exit code. */
async function launch(
  command: readonly string[],
  { processes, restarts, by, machines, machine }: LaunchOptions,
): Promise<number> {
  if (processes === undefined)
    throw new HoldfastError("BAD_ARGUMENT", "Pass the number of processes: holdfast launch -n 4 -- PROGRAM");
  const place = machines > 1 ? requirePlace({ by, machines, machine }) : undefined;
  const mpirun = by === "variables" || place ? undefined : findProgram("mpirun");
  if (by === "mpirun" && mpirun === undefined)
    throw new HoldfastError(
      "UNSUPPORTED",
      "mpirun is not installed. Install Open MPI or MPICH (Debian's packages openmpi-bin and mpich), or use --by variables.",
    );
  for (let restart = 0; ; restart++) {
    const variables = { TORCHELASTIC_RESTART_COUNT: String(restart) };
    const code = mpirun
      ? await runByMpirun(mpirun, command, processes, variables)
      : await runByVariables(command, processes, variables, place);
    if (finalCodes.has(code) || restart >= restarts) return code;
    console.error(
      `holdfast: a process ended with exit code ${code}; starting all ${processes} again, restart ${restart + 1} of ${restarts}.`,
    );
  }
}

/** Of this machine among those of the run. */
interface Place {
  readonly machines: number;
  readonly machine: number;
  readonly host: string;
  readonly port: number;
}

function requirePlace({ by, machines, machine }: Pick<LaunchOptions, "by" | "machines" | "machine">): Place {
  const { MASTER_ADDR: host = "", MASTER_PORT: port = "29500" } = process.env;
  const problem =
    by === "mpirun"
      ? "mpirun starts the processes of all machines by itself, with its own options"
      : machine >= machines
        ? `the machines of ${machines} are 0 to ${machines - 1}, and this is --machine ${machine}`
        : host === ""
          ? "MASTER_ADDR is not set: it names the first machine"
          : undefined;
  if (problem !== undefined) throw new HoldfastError("BAD_ARGUMENT", `--machines ${machines}: ${problem}.`);
  return { machines, machine, host, port: Number(port) };
}

type Variables = Readonly<Record<string, string>>;

/** Starts all processes by mpirun, which ends the others if one fails. */
async function runByMpirun(
  mpirun: string,
  command: readonly string[],
  processes: number,
  variables: Variables,
): Promise<number> {
  const flags = (await isOpenMpi(mpirun)) ? openMpiFlags() : [];
  const child = spawn(mpirun, [...flags, "-n", String(processes), ...command], {
    env: { ...process.env, ...variables },
    stdio: "inherit",
  });
  return forwardingSignals([child], () => codeOf(child));
}

/** More processes than processors are allowed, and root in containers. */
function openMpiFlags(): readonly string[] {
  return ["--oversubscribe", ...(process.getuid?.() === 0 ? ["--allow-run-as-root"] : [])];
}

async function isOpenMpi(mpirun: string): Promise<boolean> {
  const child = spawn(mpirun, ["--version"], { stdio: ["ignore", "pipe", "ignore"] });
  let text = "";
  child.stdout.setEncoding("utf8").on("data", (part: string) => {
    text += part;
  });
  await codeOf(child);
  return /open.?mpi|open-mpi/i.test(text);
}

/** Starts all processes with the variables of torchrun. If one fails, the others have some time to name it. */
async function runByVariables(
  [program = "", ...args]: readonly string[],
  processes: number,
  variables: Variables,
  place?: Place,
): Promise<number> {
  const { machines, machine, host, port } = place ?? {
    machines: 1,
    machine: 0,
    host: "127.0.0.1",
    port: await freePort(),
  };
  const children = Array.from({ length: processes }, (_, localRank) =>
    spawn(program, args, {
      env: {
        ...{ ...process.env, ...variables, LOCAL_RANK: String(localRank) },
        ...{ RANK: String(machine * processes + localRank), WORLD_SIZE: String(machines * processes) },
        ...{ MASTER_ADDR: host, MASTER_PORT: String(port) },
      },
      stdio: ["ignore", "inherit", "inherit"],
    }),
  );
  const killAll = (): void => {
    for (const child of children) child.kill("SIGKILL");
  };
  return forwardingSignals(children, async () => {
    let timer: NodeJS.Timeout | undefined;
    const codes = await Promise.all(
      children.map(async (child) => {
        const code = await codeOf(child);
        if (code !== 0) timer ??= setTimeout(killAll, graceMs);
        return code;
      }),
    );
    clearTimeout(timer);
    const failed = codes.filter((code) => code !== 0);
    // A rank that only lost another one does not know why.
    return failed.find((code) => code !== exitCodes.rankLost.code) ?? failed[0] ?? 0;
  });
}

/** The exit code of a process; 128 and the signal's number if a signal has ended it. */
async function codeOf(child: ChildProcess): Promise<number> {
  const [code, signal] = (await once(child, "close").catch((cause: Error) => {
    const reason = `${child.spawnfile} does not start: ${cause.message}. Check the program after --.`;
    throw new HoldfastError("BAD_ARGUMENT", reason, { cause });
  })) as [number | null, NodeJS.Signals | null];
  return code ?? 128 + (signal === null ? 0 : constants.signals[signal]);
}

/** Sends the signals that this process gets to the others. After one, nothing is started again. */
async function forwardingSignals(
  children: readonly ChildProcess[],
  wait: () => Promise<number>,
): Promise<number> {
  let isStopped = false;
  const forward = (signal: NodeJS.Signals): void => {
    isStopped = true;
    for (const child of children) child.kill(signal);
  };
  const signals = ["SIGINT", "SIGTERM", "SIGHUP"] as const;
  for (const signal of signals) process.on(signal, forward);
  try {
    const code = await wait();
    return isStopped && code !== 0 ? exitCodes.stopped.code : code;
  } finally {
    for (const signal of signals) process.off(signal, forward);
  }
}

/** The path of an installed program. */
function findProgram(name: string): string | undefined {
  const { PATH = "" } = process.env;
  return PATH.split(delimiter)
    .map((folder) => join(folder, name))
    .find((path) => isThere(path));
}

/** A port that nothing listens at. */
async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  server.close();
  return typeof address === "object" && address ? address.port : 0;
}
