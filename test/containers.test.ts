/**
 * Small containers, in control groups of the kernel: the budget follows the smallest limit, and few threads
 * are enough.
 */

import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { describe, test } from "node:test";
import { setTimeout } from "node:timers/promises";
import { GiB, MiB } from "../src/units/index.js";
import { groupsMissing, makeGroup } from "./support/control-group.js";
import { effort } from "./support/effort.js";
import { repositoryRoot } from "./support/repository.js";
import { plainDevice, shortRunFlags } from "./support/short-process.js";
import { generousTimeoutMs } from "./support/timeouts.js";

/** Opens the CPU in each group of its arguments, with the size that follows it; "" is none. */
const program = `
  const { writeFileSync } = await import("node:fs");
  const { device } = await import(${JSON.stringify(join(repositoryRoot, "dist/lib/index.js"))});
  for (let index = 1; index < process.argv.length; index += 2) {
    const [folder, size] = process.argv.slice(index);
    writeFileSync(folder + "/cgroup.procs", String(process.pid));
    process.env.HOLDFAST_MEMORY = size;
    if (size === "") delete process.env.HOLDFAST_MEMORY;
    const cpu = await device("cpu");
    console.log(cpu.runtime.budget.limit);
    cpu.close();
  }
`;

/** The arguments of a shell that joins a group and then executes the command after them. */
function joining(folder: string): readonly string[] {
  return ["-c", 'echo $$ > "$1/cgroup.procs" && shift && exec "$@"', "sh", folder];
}

/** A group, and the value of HOLDFAST_MEMORY; "" is none. */
type Place = readonly [folder: string, memory: string];

/** The budget's limits in a process that starts in the first group and joins each of the others. */
function limitsIn(...places: readonly [Place, ...Place[]]): readonly number[] {
  const command = [process.execPath, ...shortRunFlags, "--input-type=module", "--eval", program];
  const { stdout, stderr, status } = spawnSync(
    "sh",
    [...joining(places[0][0]), ...command, ...places.flat()],
    {
      encoding: "utf8",
      env: { ...process.env, ...plainDevice },
    },
  );
  assert.equal(status, 0, stderr);
  return stdout.trim().split("\n").map(Number);
}

describe("in a control group", { skip: groupsMissing("memory") }, () => {
  let known: readonly number[] | undefined;
  const limits = (): readonly number[] => (known ??= measureLimits());

  /** In a group of 2 GiB, in one of 512 MiB inside such a one, and there with an explicit size. */
  function measureLimits(): readonly number[] {
    const inner = makeGroup("memory", "inner", 512 * MiB, makeGroup("memory", "outer", 2 * GiB));
    return limitsIn([makeGroup("memory", "two", 2 * GiB), ""], [inner, ""], [inner, "256MiB"]);
  }

  test("of 2 GiB, the budget is the limit's rest, minus a margin of the limit's size", () => {
    const [limit = 0] = limits();
    assert.ok(limit > GiB && limit <= 1.5 * GiB, `${limit}`);
  });

  test("of 512 MiB inside one of 2 GiB, the inner limit counts, and an explicit size is used unchanged", () => {
    const [, limit = 0, explicit] = limits();
    assert.ok(limit > 100 * MiB && limit <= 384 * MiB, `${limit}`);
    assert.equal(explicit, 256 * MiB);
  });
});

/** Two threads on any machine, and enough work to share. */
const work = `
  const { device, ones } = await import(${JSON.stringify(join(repositoryRoot, "dist/lib/index.js"))});
  const cpu = await device("cpu", { threads: "2" });
  console.log(ones([256, 256]).matmul(ones([256, 256])).sum().item());
  cpu.close();
`;

/** The number of Node's threads after it has read a file. */
function tasksOfNode(): number {
  const program = `
    const { promises, readdirSync } = require("node:fs");
    const reads = Array.from({ length: 8 }, () => promises.readFile("/proc/self/stat"));
    Promise.all(reads).then(() => console.log(readdirSync("/proc/self/task").length));
  `;
  return Number(spawnSync(process.execPath, ["--eval", program], { encoding: "utf8" }).stdout);
}

/** A process that ends closes its streams a moment before it leaves its group. */
async function processesLeft(folder: string): Promise<string> {
  const read = (): string => readFileSync(join(folder, "cgroup.procs"), "utf8");
  const endMs = performance.now() + generousTimeoutMs;
  while (read() !== "" && performance.now() < endMs) await setTimeout(10);
  return read();
}

describe("in a control group that allows few tasks", { skip: groupsMissing("pids"), concurrency: 2 }, () => {
  const taken = groupsMissing("pids") ? 0 : tasksOfNode();
  // The first leaves no thread to Holdfast. A second process of Node hangs if it gets two of the four tasks
  // that it needs.
  for (const more of effort({ quick: [0, 3], thorough: [0, 1, 3, 5] })) {
    test(`a run continues and ends with ${more} more tasks than Node itself takes`, {
      timeout: generousTimeoutMs,
    }, async () => {
      const folder = makeGroup("pids", `tasks-${more}`, taken + more);
      const program = [process.execPath, ...shortRunFlags, "--input-type=module", "--eval", work];
      const child = spawn("sh", [...joining(folder), ...program], { stdio: ["ignore", "pipe", "pipe"] });
      // The end of stderr counts too: an orphaned process would keep it open.
      const [stdout, stderr, [code]] = await Promise.all([
        text(child.stdout),
        text(child.stderr),
        once(child, "exit"),
      ]);
      assert.deepEqual([code, stdout], [0, `${256 ** 3}\n`], stderr);
      // Other versions of Node need fewer tasks for this program than for the one that was counted.
      const isCounted = process.version.startsWith("v20.");
      if (isCounted && more === 0) assert.match(stderr, /watchdog's thread could not start .*pids\.max/);
      if (isCounted && more <= 1)
        assert.match(stderr, /HOLDFAST_FEWER_THREADS.*Kernels run on 1 of 2 threads/);
      assert.equal(await processesLeft(folder), "", "no process is left");
    });
  }
});
