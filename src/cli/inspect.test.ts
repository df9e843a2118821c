/** `holdfast inspect`: the printed address, the printed text, and its exit codes. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { makeFolder } from "../../test/support/folders.js";
import { runCommand } from "../../test/support/run-command.js";
import { writeSampleRun } from "../../test/support/sample-run.js";
import { shortRunFlags } from "../../test/support/short-process.js";
import { packagePath } from "../files/index.js";

const main = packagePath("dist/lib/main.js");
const { PATH = "" } = process.env;

const holdfast = (args: readonly string[], cwd = makeFolder()) => runCommand(args, { cwd });

test("the address is one line; the server answers until a signal, and then exits with 0", async () => {
  const root = makeFolder();
  writeSampleRun(root, "one", { steps: 5 });
  const child = spawn(process.execPath, [...shortRunFlags, main, "inspect", root], { env: { PATH } });
  const [line] = (await once(createInterface(child.stdout), "line")) as [string];
  assert.match(line, /^http:\/\/127\.0\.0\.1:\d+\/$/);
  const runs = (await (await fetch(new URL("/api/runs", line))).json()) as { name: string }[];
  assert.deepEqual(
    runs.map(({ name }) => name),
    ["one"],
  );
  child.kill("SIGTERM");
  assert.deepEqual(await once(child, "exit"), [0, null]);
});

test("--text prints a run once if stdout is not a terminal, even with --watch", async () => {
  const { path } = writeSampleRun(makeFolder(), "one", { steps: 5, state: "running" });
  for (const args of [["--text"], ["--text", "--watch"]]) {
    const { status, stdout, stderr } = await holdfast(["inspect", path, ...args]);
    assert.deepEqual([status, stderr], [0, ""]);
    assert.match(stdout, /^run +one: running, step 5 of 5\n/);
    assert.ok(stdout.split("\n").every((line) => line.length <= 80));
  }
});

test("the default folder is runs", async () => {
  const folder = makeFolder();
  writeSampleRun(`${folder}/runs`, "one", { steps: 5 });
  assert.match((await holdfast(["inspect", "--text"], folder)).stdout, /^run +one: finished/);
});

test("an unreadable folder is one line and exit code 4; a wrong option is exit code 2", async () => {
  for (const [args, message] of [
    [["inspect"], /^holdfast: BAD_ARGUMENT: The folder runs does not exist\. [^\n]+\n$/],
    [["inspect", "/no/such"], /^holdfast: BAD_FILE: \/no\/such is not a folder\. [^\n]+\n$/],
    [
      ["inspect", ".", "--token", "short"],
      /^holdfast: BAD_ARGUMENT: The token is invalid \(5 characters\)\. A token has 8 to 200 [^\n]+\n$/,
    ],
  ] as const) {
    const { status, stderr } = await holdfast(args);
    assert.equal(status, 4, args.join(" "));
    assert.match(stderr, message);
  }
  assert.equal((await holdfast(["inspect", ".", "--port", "65536"])).status, 2);
});
