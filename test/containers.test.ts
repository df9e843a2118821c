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
import { GiB, MiB } from "../src/units/index.js";
import { groupsMissing, makeGroup } from "./support/control-group.js";
import { repositoryRoot } from "./support/repository.js";

/** Opens the CPU with each size of its arguments; "" is none. */
const program = `
  const { device } = await import(${JSON.stringify(join(repositoryRoot, "dist/lib/index.js"))});
  for (const size of process.argv.slice(1)) {
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

/** The budget's limits in a process of a group, with each value of HOLDFAST_MEMORY; "" is none. */
function limitsIn(folder: string, ...sizes: readonly string[]): readonly number[] {
  const { stdout, stderr, status } = spawnSync(
    "sh",
    [...joining(folder), process.execPath, "--input-type=module", "--eval", program, ...sizes],
    { encoding: "utf8", env: { ...process.env, HOLDFAST_STALL_AFTER: "off" } },
  );
  assert.equal(status, 0, stderr);
  return stdout.trim().split("\n").map(Number);
}

describe("in a control group", { skip: groupsMissing("memory") }, () => {
  test("of 2 GiB, the budget is the limit's rest, minus a margin of the limit's size", () => {
    const [limit = 0] = limitsIn(makeGroup("memory", "two", 2 * GiB), "");
    assert.ok(limit > GiB && limit <= 1.5 * GiB, `${limit}`);
  });

  test("of 512 MiB inside one of 2 GiB, the inner limit counts, and an explicit size is used unchanged", () => {
    const inner = makeGroup("memory", "inner", 512 * MiB, makeGroup("memory", "outer", 2 * GiB));
    const [limit = 0, explicit] = limitsIn(inner, "", "256MiB");
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

describe("in a control group that allows few tasks", { skip: groupsMissing("pids"), concurrency: 2 }, () => {
  const taken = groupsMissing("pids") ? 0 : tasksOfNode();
  // The first leaves no thread to Holdfast. A second process of Node hangs if it gets two of the four tasks
  // that it needs.
  for (const more of [0, 1, 3, 5]) {
    test(`a run continues and ends with ${more} more tasks than Node itself takes`, {
      timeout: 60_000,
    }, async () => {
      const folder = makeGroup("pids", `tasks-${more}`, taken + more);
      const program = [process.execPath, "--input-type=module", "--eval", work];
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
      assert.equal(readFileSync(join(folder, "cgroup.procs"), "utf8"), "", "no process is left");
    });
  }
});
