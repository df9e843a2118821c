/** Small containers: the budget follows the limit that binds, in control groups of the kernel's own. */

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { describe, test } from "node:test";
import { GiB, MiB } from "../src/units/index.js";
import { groupsMissing, makeGroup } from "./support/control-group.js";
import { repositoryRoot } from "./support/repository.js";

const program = `
  const { device } = await import(${JSON.stringify(join(repositoryRoot, "dist/src/index.js"))});
  const cpu = await device("cpu");
  console.log(cpu.runtime.budget.limit);
  cpu.close();
`;

/** The budget's limit of a process in a group. */
function limitIn(folder: string, environment: Readonly<Record<string, string>> = {}): number {
  const { stdout, stderr, status } = spawnSync(
    "sh",
    ["-c", 'echo $$ > "$1/cgroup.procs" && shift && exec "$@"', "sh", folder, process.execPath].concat([
      "--input-type=module",
      "--eval",
      program,
    ]),
    { encoding: "utf8", env: { ...process.env, ...environment } },
  );
  assert.equal(status, 0, stderr);
  return Number(stdout);
}

describe("in a control group", { skip: groupsMissing }, () => {
  test("of 2 GiB, the budget is what the limit leaves, less a margin of the limit's size", () => {
    const limit = limitIn(makeGroup("two", 2 * GiB));
    assert.ok(limit > GiB && limit <= 1.5 * GiB, `${limit}`);
  });

  test("of 512 MiB inside one of 2 GiB, the inner one counts, and an explicit size is taken at its word", () => {
    const inner = makeGroup("inner", 512 * MiB, makeGroup("outer", 2 * GiB));
    const limit = limitIn(inner);
    assert.ok(limit > 100 * MiB && limit <= 384 * MiB, `${limit}`);
    assert.equal(limitIn(inner, { HOLDFAST_MEMORY: "256MiB" }), 256 * MiB);
  });
});
