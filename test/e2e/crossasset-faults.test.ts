/**
 * Everything that can go wrong with `holdfast train crossasset` from outside: each fault, what is said of it on stderr, and the
 * exit code. Nothing is lost by any of them: a run that was there before is gone on with afterwards, to the same bits.
 */

import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { type AddressInfo, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { after, before, describe, test } from "node:test";
import { crossasset } from "holdfast";
import { loadSafetensors, saveSafetensors } from "../../src/data/index.js";
import { exitCodes } from "../../src/errors/index.js";
import { type CommandHost, type CommandOptions, startCommandHost } from "../support/command-host.js";
import {
  holdfastProgram,
  jobEnvironment,
  measuredIn,
  recordsIn,
  tensorsIn,
  tinyModel,
} from "../support/crossasset-runs.js";
import { isThorough } from "../support/effort.js";
import { bytesIn } from "../support/folder-bytes.js";
import { shortRunFlags } from "../support/short-process.js";
import { generousTimeoutMs } from "../support/timeouts.js";

const folder = mkdtempSync(join(tmpdir(), "holdfast-faults-"));
after(() => rmSync(folder, { recursive: true, force: true }));

const at = (...names: readonly string[]): string => join(folder, ...names);
const command = [holdfastProgram, "train", "crossasset", "--device", "cpu"];
/** Epochs of one step, each with its checkpoint: enough epochs that a signal sent before the first arrives before the last ends. */
const small = [
  ...["--bars", "market.csv", "--stride", "40", "--folds", "1", "--epochs", "3", "--batch", "16"],
  ...tinyModel,
];

interface Ended {
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs the command in a process of its own. */
async function train(args: readonly string[]): Promise<Ended> {
  // What hangs is killed: then there is no exit code, and the test fails.
  const child = spawn(process.execPath, [...shortRunFlags, ...command, ...args], {
    ...{ cwd: folder, env: jobEnvironment, timeout: generousTimeoutMs, killSignal: "SIGKILL" },
  });
  const [stdout, stderr, [status]] = await Promise.all([
    text(child.stdout),
    text(child.stderr),
    once(child, "exit") as Promise<[number | null]>,
  ]);
  return { status, stdout, stderr };
}

// The program takes a second to load. One process runs the commands that need none of their own.
let host: CommandHost;
const inHost = (args: readonly string[], options?: CommandOptions): Promise<Ended> =>
  host.run([...command.slice(1), ...args], options);

/** Can the limits of a process be changed from outside? */
const canLimit = !isThorough && spawnSync("prlimit", ["--version"]).status === 0;

/** Runs the command in a process that may write no larger file. */
async function inLimitedHost(args: readonly string[], fileKiB: number): Promise<Ended> {
  if (!canLimit) {
    const shell = ["bash", "--norc", "-c", `ulimit -f ${fileKiB}; "$@"`, "bash"];
    const limited = startCommandHost(folder, jobEnvironment, shell);
    return limited.run([...command.slice(1), ...args]).finally(() => limited.close());
  }
  const limitHost = (size: number | string) =>
    assert.equal(spawnSync("prlimit", ["--pid", `${host.process.pid}`, `--fsize=${size}:`]).status, 0);
  limitHost(1024 * fileKiB);
  return inHost(args).finally(() => limitHost("unlimited"));
}

before(async () => {
  await crossasset.writeBars(at("market.csv"), crossasset.generateBars({ bars: 9000, seed: 42 }));
  host = startCommandHost(folder, jobEnvironment);
});
after(() => host.close());

/** A file in the folder; its name. */
function file(name: string, content: string | Uint8Array): string {
  writeFileSync(at(name), content);
  return name;
}

const header = "time,open,high,low,close,volume\n";
const good = (minute: number): string => `${60 * minute},1,1,1,1,5`;
/** Twenty bars, of which the eighth is another. */
const bars = (eighth = good(7)): string =>
  `${header}${Array.from({ length: 20 }, (_, minute) => (minute === 7 ? eighth : good(minute))).join("\n")}\n`;

interface Fault {
  readonly what: string;
  readonly args: () => readonly string[];
  readonly says: RegExp;
  /** The limit of a file's size that it runs under. */
  readonly fileKiB?: number;
  /** Its exit code, where that is not the one of its list. */
  readonly exit?: number;
  /** Whether it ends without printing to stdout and without creating the run's folder. */
  readonly isUnstarted?: boolean;
  /** Why it can't be tried here. */
  readonly skip?: string | false;
}

/** Exit code 2: the command line is wrong. What commander says, then where to read on. */
const ofCommandLine: readonly Fault[] = [
  { what: "no folds", args: () => ["--folds", "0"], says: /--folds.*whole number, 1 or more/ },
  { what: "a batch of nothing", args: () => ["--batch", "0"], says: /--batch.*whole number, 1 or more/ },
  {
    what: "half a sample in a batch",
    args: () => ["--batch", "0.5"],
    says: /--batch.*whole number, 1 or more/,
  },
  { what: "no epochs", args: () => ["--epochs", "0"], says: /--epochs.*whole number, 1 or more/ },
  { what: "a stride of 0", args: () => ["--stride", "0"], says: /--stride.*whole number, 1 or more/ },
  {
    what: "no bars to generate",
    args: () => ["--generate", "0"],
    says: /--generate.*whole number, 1 or more/,
  },
  { what: "a seed below 0", args: () => ["--seed=-1"], says: /--seed.*whole number, 0 or more/ },
  { what: "a rate that is none", args: () => ["--lr", "nothing"], says: /--lr.*a number above 0/ },
  { what: "all values dropped", args: () => ["--dropout", "1"], says: /--dropout.*from 0 to below 1/ },
  { what: "a budget that is no size", args: () => ["--memory", "lots"], says: /--memory.*lots/ },
  { what: "an unknown device", args: () => ["--device", "tpu"], says: /--device.*auto, cpu, cuda/ },
  { what: "an unknown precision", args: () => ["--precision", "f8"], says: /--precision.*f32, tf32, bf16/ },
  {
    what: "a port of 0",
    args: () => ["--metrics-port", "0"],
    says: /--metrics-port.*whole number from 1 to 65535/,
  },
  {
    what: "a port above the last",
    args: () => ["--metrics-port", "65536"],
    says: /--metrics-port.*whole number from 1 to 65535/,
  },
  { what: "an unknown option", args: () => ["--trees", "3"], says: /unknown option '--trees'/ },
  { what: "an option without its value", args: () => ["--bars"], says: /--bars <file>.*argument missing/ },
];

const isLinux = process.platform === "linux";

/** Occupies a port. */
const portHolder = createServer();

/** Exit code 4: the same command would be rejected again. One line, with the code that `holdfast explain` knows. */
const ofWhatIsGiven: readonly Fault[] = [
  {
    what: "a budget that holds nothing",
    args: () => ["--memory", "1MiB"],
    exit: 1,
    says: /^OUT_OF_BUDGET: The budget cannot provide .*1 MiB/,
  },
  {
    what: "an occupied port",
    args: () => ["--metrics-port", String((portHolder.address() as AddressInfo).port)],
    exit: 1,
    says: /^BAD_SETTING: Metrics can't be served on 127\.0\.0\.1, port \d+: EADDRINUSE\. /,
    isUnstarted: true,
  },
  {
    what: "a host without a port",
    args: () => ["--metrics-host", "0.0.0.0"],
    says: /^BAD_ARGUMENT: --metrics-host 0\.0\.0\.0 needs a port/,
  },
  {
    what: "a time that is none",
    args: () => ["--stall-after", "soon"],
    says: /^BAD_SETTING: .*stallAfter.*soon/,
  },
  {
    what: "bars that have vanished",
    args: () => ["--bars", "vanished.csv"],
    says: /^BAD_FILE: vanished\.csv: it does not exist/,
  },
  {
    what: "bars in a folder",
    args: () => ["--bars", "folder.csv"],
    says: /^BAD_FILE: folder\.csv: it is a folder/,
  },
  {
    what: "bars in a file of another kind",
    args: () => ["--bars", file("bars.txt", bars())],
    says: /^BAD_FILE: bars\.txt: its extension is neither \.csv nor \.parquet/,
  },
  {
    what: "an empty file",
    args: () => ["--bars", file("empty.csv", "")],
    says: /^BAD_FILE: empty\.csv: it is empty/,
  },
  {
    what: "a file with a header and no bars",
    args: () => ["--bars", file("bare.csv", header)],
    says: /^BAD_FILE: bare\.csv: .*no /,
  },
  {
    what: "a column of another name",
    args: () => ["--bars", file("column.csv", bars().replace("close", "shut"))],
    says: /^BAD_FILE: column\.csv: .*close/,
  },
  {
    what: "a NaN",
    args: () => ["--bars", file("nan.csv", bars("420,1,NaN,1,1,5"))],
    says: /^BAD_FILE: nan\.csv: .*row 8.*NaN/,
  },
  {
    what: "a price of 0",
    args: () => ["--bars", file("price.csv", bars("420,1,1,0,1,5"))],
    says: /^BAD_FILE: price\.csv: .*row 8/,
  },
  {
    what: "a high below its low",
    args: () => ["--bars", file("high.csv", bars("420,1,1,2,1,5"))],
    says: /^BAD_FILE: high\.csv: .*row 8/,
  },
  {
    what: "a time that goes back",
    args: () => ["--bars", file("time.csv", bars("60,1,1,1,1,5"))],
    says: /^BAD_FILE: time\.csv: .*row 8/,
  },
  {
    what: "a Parquet file that is none",
    args: () => ["--bars", file("garbage.parquet", bars())],
    says: /^BAD_FILE: garbage\.parquet: /,
  },
  {
    what: "too few bars for a sample",
    args: () => ["--bars", file("short.csv", bars())],
    says: /^BAD_ARGUMENT: .*bars/,
  },
  {
    what: "more folds than samples",
    args: () => ["--folds", "1000"],
    says: /^BAD_ARGUMENT: .*(folds|samples)/,
  },
  {
    what: "a GPU where there is none",
    args: () => ["--device", "cuda"],
    says: /^NO_CUDA: /,
    skip: spawnSync("nvidia-smi").status === 0 && "there is a GPU here",
  },
  {
    what: "a run that is to be resumed and is not there",
    args: () => ["--resume", "--out", "nowhere"],
    says: /^BAD_ARGUMENT: nowhere holds no run/,
  },
  {
    what: "a file where the run's folder should be",
    args: () => ["--bars", file("short.csv", bars()), "--out", file("file", "")],
    says: /^BAD_FILE: file can't be created: EEXIST/,
  },
  {
    what: "a file where a folder above it should be",
    args: () => ["--bars", file("short.csv", bars()), "--out", join(file("file", ""), "run")],
    says: /^BAD_FILE: file\/run can't be created: ENOTDIR.*a component of it is a file/,
  },
  {
    what: "a folder that nobody may write to, not even root",
    args: () => ["--bars", file("short.csv", bars()), "--out", "/proc/holdfast"],
    says: /^BAD_FILE: \/proc\/holdfast can't be created/,
    skip: !isLinux && "there is no /proc here",
  },
  {
    what: "a cache that can't be created",
    args: () => ["--cache", join(file("file", ""), "cache")],
    says: /^BAD_FILE: file\/cache can't be created: ENOTDIR/,
  },
  {
    what: "no room for any file",
    args: () => ["--bars", file("short.csv", bars())],
    fileKiB: 0,
    says: /^BAD_FILE: rejected\/no-room.* can't be .*: EFBIG.*ulimit -f/,
  },
];

describe("an error is one line with the right exit code, before the first step:", () => {
  before(async () => {
    mkdirSync(at("folder.csv"));
    await once(portHolder.listen(0, "127.0.0.1"), "listening");
  });
  after(() => portHolder.close());

  for (const { what, args, says, skip = false } of ofCommandLine) {
    test(`${what}: 2`, { skip }, async () => {
      const out = join("rejected", what.replaceAll(" ", "-"));
      const ofJob = [...small, "--out", out, ...args()];
      const { status, stdout, stderr } = await (isThorough ? train(ofJob) : inHost(ofJob));
      const [first = "", second, ...more] = stderr.split("\n");
      assert.match(first, /^error: /);
      assert.match(first, says);
      assert.deepEqual([second, ...more], ["Run holdfast train crossasset --help to see its options.", ""]);
      assert.deepEqual([status, stdout, existsSync(at(out))], [2, "", false]);
    });
  }
  for (const fault of ofWhatIsGiven) {
    const { what, args, says, fileKiB, exit = exitCodes.rejected.code, isUnstarted, skip = false } = fault;
    test(`${what}: ${exit}`, { skip }, async () => {
      const out = join("rejected", what.replaceAll(" ", "-"));
      const ofJob = [...small, "--out", out, ...args()];
      const { status, stdout, stderr } = await (fileKiB === undefined
        ? inHost(ofJob)
        : inLimitedHost(ofJob, fileKiB));
      const [first = "", ...more] = stderr.split("\n");
      assert.equal(status, exit, stderr);
      assert.match(first, /^holdfast: /);
      assert.match(first.slice("holdfast: ".length), says);
      // The table of who holds memory is the one message of more lines than one.
      if (!first.includes("OUT_OF_BUDGET")) assert.deepEqual(more, [""], stderr);
      assert.doesNotMatch(stdout, /epoch/);
      if (isUnstarted) assert.deepEqual([stdout, existsSync(at(out))], ["", false]);
    });
  }
});

/** How a try that fails is run, and its exit code. */
interface FailedTry {
  readonly cwd?: string;
  readonly exit?: number;
  /** Where it runs, if not with the others. */
  readonly in?: CommandHost;
}

/** Can this user mount a small disk, in a name space of its own? */
const canMount =
  isLinux &&
  spawnSync("unshare", ["-rm", "mount", "-t", "tmpfs", "-o", "size=1m", "none", folder]).status === 0;
const noMount = !canMount && "this user can't mount a disk";

describe("a stopped run resumes to the same bits after", () => {
  before(async () => {
    const whole = await inHost([...small, "--quiet", "--out", "whole", "--cache", "cache"]);
    assert.equal(whole.status, 0, whole.stderr);
    const signal = { name: "SIGTERM", at: '"compiling"' } as const;
    const stopped = await inHost([...small, "--json", "--out", "stopped"], { signal });
    assert.equal(stopped.status, exitCodes.stopped.code, stopped.stderr);
    await resumeCramped();
  });
  after(() => endCramped());

  /** A copy of the stopped run, to be spoilt. */
  function copy(run: string): string {
    cpSync(at("stopped"), at(run), { recursive: true });
    return run;
  }

  async function fails(run: string, says: RegExp, options: FailedTry = {}): Promise<void> {
    const { cwd = folder, exit = exitCodes.rejected.code, in: where = host } = options;
    const before = bytesIn(join(cwd, run));
    const ended = await where.run([...command.slice(1), ...small, "--quiet", "--out", run], { cwd });
    assert.deepEqual(bytesIn(join(cwd, run)), before, "a rejection writes nothing");
    requireFailure(ended, exit, says);
  }

  function requireFailure({ status, stderr }: Ended, exit: number, says: RegExp): void {
    assert.equal(status, exit, stderr);
    assert.match(stderr, /^holdfast: [^\n]*\n$/);
    assert.match(stderr.slice("holdfast: ".length), says);
  }

  async function goesOn(
    run: string,
    more: readonly string[] = [],
    options?: CommandOptions,
  ): Promise<string> {
    const { status, stdout, stderr } = await inHost([...small, "--out", run, ...more], options);
    assert.equal(status, 0, stderr);
    assert.match(stdout, /resumed at step [1-9]\b/);
    assertWhole(at(run));
    return stdout;
  }

  /** It goes on as the others do that begin with these bytes. */
  function assertStopped(run: string): void {
    assert.deepEqual(bytesIn(run), bytesIn(at("stopped")));
  }

  function assertWhole(run: string): void {
    assert.equal(measuredIn(run), measuredIn(at("whole")));
    assert.equal(tensorsIn(run), tensorsIn(at("whole")));
    assert.deepEqual(recordsIn(run), recordsIn(at("whole")));
  }

  const statusOf = (run: string) => JSON.parse(readFileSync(at(run, "status.json"), "utf8"));

  let crampedHost: CommandHost | undefined;
  const crampedEnds = new Map<string, Ended>();
  const crampedEnd = (run: string): Ended => crampedEnds.get(run) ?? assert.fail(run);

  /**
   * Resumes copies of the stopped run that have no room for a checkpoint: a limit on the size of a file is below it, a disk has half
   * of its size left, another is read-only. Copies of the runs on the disks are left in "full" and "read-only".
   */
  async function resumeCramped(): Promise<void> {
    const [name = ""] = readdirSync(at("stopped", "checkpoints"));
    const checkpointKiB = statSync(at("stopped", "checkpoints", name)).size / 1024;
    const resume = (out: string) => [...small, "--quiet", "--out", out];
    crampedEnds.set("large", await inLimitedHost(resume(copy("large")), Math.floor((3 * checkpointKiB) / 4)));
    const room = `$(($(du -sk stopped | cut -f1) + ${Math.floor(checkpointKiB / 2)}))k`;
    const mountDisk = (disk: string, options: string) => `mkdir ${disk}
      mount -t tmpfs -o size=500m none ${disk}
      cp -r stopped ${disk}/run
      mount -o "remount,${options}" none ${disk}`;
    const onDisks = `set -e
      ${mountDisk("disk-full", `size=${room}`)}
      ${mountDisk("disk-read-only", "ro,size=500m")}
      "$@"
      cp -r disk-full/run full
      cp -r disk-read-only/run read-only`;
    const [bash, unshare] = [
      ["bash", "--norc", "-c"],
      ["unshare", "-rm"],
    ];
    const shell = canMount ? [...unshare, ...bash, onDisks, "bash"] : [...bash, '"$@"', "bash"];
    crampedHost = startCommandHost(folder, jobEnvironment, shell);
    if (!canMount) return;
    for (const disk of ["full", "read-only"])
      crampedEnds.set(disk, await crampedHost.run([...command.slice(1), ...resume(`disk-${disk}/run`)]));
  }

  async function endCramped(): Promise<void> {
    const cramping = crampedHost;
    crampedHost = undefined;
    if (!cramping) return;
    const exit = once(cramping.process, "exit");
    cramping.close();
    assert.deepEqual(await exit, [0, null]);
  }

  test("features in the cache with an invalid label, which are rejected", async () => {
    const [name = ""] = readdirSync(at("cache"));
    mkdirSync(at("forged"));
    writeFileSync(at("forged", name), withLabel(at("cache", name), 3));
    const rejected = await inHost([...small, "--quiet", "--out", "labels", "--cache", "forged"]);
    assert.equal(rejected.status, exitCodes.rejected.code);
    assert.match(
      rejected.stderr,
      /^holdfast: BAD_INDEX: Row 5 of column 1 has the label 3; the 3 classes are 0 to 2\. [^\n]*\n$/,
    );
  });

  test("a checkpoint above the limit of a file's size, a second process that tried to resume at the same time, and altered features in the cache, which are computed again", async () => {
    const run = "large";
    const checkpoints = readdirSync(at("stopped", "checkpoints"));
    const says = /^BAD_FILE: large\/checkpoints\/step-.* can't be written: EFBIG/;
    requireFailure(crampedEnd(run), exitCodes.rejected.code, says);
    const { state, exitCode, reason } = statusOf(run);
    assert.deepEqual([state, exitCode], ["failed", exitCodes.rejected.code]);
    assert.match(reason, /EFBIG/);
    assert.deepEqual(readdirSync(at(run, "checkpoints")), checkpoints, "none is lost, and no piece is left");

    const [name = ""] = readdirSync(at("cache"));
    const features = readFileSync(at("cache", name));
    features[features.length - 5]! ^= 64;
    writeFileSync(at("cache", name), features);
    const signal = { name: "SIGSTOP", at: "resumed at" } as const;
    let first: Promise<string> | undefined;
    await new Promise<void>((resolve) => {
      first = goesOn(run, ["--cache", "cache"], { signal, onSignal: () => resolve() });
    });
    const held = /^RUN_LOCKED: .*large.*is held by process \d+\. Wait for it, stop it/;
    try {
      await fails(run, held, { exit: exitCodes.failed.code, in: crampedHost ?? assert.fail("no host") });
    } finally {
      host.process.kill("SIGCONT");
    }
    assert.match((await first) ?? "", /samples, features in /);
  });

  test("bars that had vanished, or were others", async () => {
    // In a folder of its own: the others need their bars.
    const cwd = at("own");
    cpSync(at("stopped"), join(cwd, "run"), { recursive: true });
    await fails("run", /^BAD_FILE: market\.csv: it does not exist/, { cwd });
    const others = crossasset.generateBars({ bars: 9000, seed: 43 });
    await crossasset.writeBars(join(cwd, "market.csv"), others);
    const changed =
      /^BAD_SETTING: The run in run was made with other settings: checksum was "[0-9a-f]{16}" and is/;
    await fails("run", changed, { cwd });
    assertStopped(join(cwd, "run"));
  });

  test("a damaged run.json, once it is put right", async () => {
    const run = copy("record");
    const record = readFileSync(at(run, "run.json"));
    writeFileSync(at(run, "run.json"), record.subarray(0, 40));
    await fails(run, /^BAD_FILE: .*run\.json is not JSON/);
    writeFileSync(at(run, "run.json"), record);
    assertStopped(at(run));
  });

  test("a disk that was full, on a larger one", { skip: noMount }, async () => {
    const says =
      /^BAD_FILE: disk-full\/run\/checkpoints\/step-.* can't be written: ENOSPC.* The disk is full: free some space/;
    await endCramped();
    requireFailure(crampedEnd("full"), exitCodes.failed.code, says);
    assert.equal(statusOf("full").state, "failed");
    // It goes on from the checkpoints of the stopped run, as the others do.
    assert.deepEqual(bytesIn(at("full", "checkpoints")), bytesIn(at("stopped", "checkpoints")));
    if (isThorough) await goesOn("full");
  });

  test("a read-only disk, which leaves the run's files as they were", { skip: noMount }, async () => {
    const says =
      /^BAD_FILE: disk-read-only\/run\/.*EROFS.* The disk is read-only: choose a folder on another/;
    await endCramped();
    requireFailure(crampedEnd("read-only"), exitCodes.failed.code, says);
    assertStopped(at("read-only"));
  });
});

/** A file of samples with another label in its sixth row, and the checksum that fits it. */
function withLabel(path: string, label: number): Uint8Array {
  const { tensors, metadata } = loadSafetensors(path);
  const labels = tensors.get("labels")?.bytes ?? assert.fail("no labels");
  new DataView(labels.buffer, labels.byteOffset).setInt32(4 * 12 * 5, label, true);
  const sum = createHash("sha256");
  const all = ["bar", "labels", "time", "x"].map((name) => tensors.get(name) ?? assert.fail(name));
  for (const { name, shape, bytes } of all) sum.update(`${name} [${shape.join(", ")}] `).update(bytes);
  const forged = `${path}.forged`;
  saveSafetensors(forged, all, new Map([...metadata, ["checksum", sum.digest("hex")]]));
  const bytes = readFileSync(forged);
  rmSync(forged);
  return bytes;
}
