/** Completion scripts: bash runs its script, and all scripts have every command and option. */

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import { runCommand } from "../../../test/support/run-command.js";
import { shells } from "./scripts.js";

const folder = mkdtempSync(join(tmpdir(), "holdfast-completion-"));
after(() => rmSync(folder, { recursive: true, force: true }));
mkdirSync(join(folder, "runs"));
mkdirSync(join(folder, "my runs"));
for (const name of ["market.csv", "my bars.csv"]) writeFileSync(join(folder, name), "");

const scripts: Record<string, string> = {};
for (const shell of shells) scripts[shell] = (await runCommand(["completion", shell])).stdout;
const { stdout: help } = await runCommand(["train", "crossasset", "--help"]);
const has = (name: string): boolean => spawnSync(name, ["-c", "true"]).status === 0;

describe("in a bash", { skip: !has("bash") && "bash is not installed" }, () => {
  /** The completions of the last word. Bash passes "=" as a separate word. */
  function complete(...words: readonly string[]): readonly string[] {
    const script = `${scripts["bash"]}
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _holdfast; printf '%s\\n' "\${COMPREPLY[@]}"`;
    const args = ["--norc", "-c", script, "bash", "holdfast", ...words];
    const { stdout, stderr } = spawnSync("bash", args, { encoding: "utf8", cwd: folder });
    assert.equal(stderr, "");
    return stdout.split("\n").filter((line) => line !== "");
  }

  test("commands and subcommands are completed", () => {
    assert.deepEqual(complete("tr"), ["train"]);
    assert.deepEqual(complete("train", ""), ["lm", "crossasset", "help"]);
    assert.deepEqual(complete("bars", "c"), ["check"]);
    assert.ok(complete("").includes("doctor"));
  });

  test("the options of a command are completed, and no others", () => {
    assert.deepEqual(complete("train", "crossasset", "--pre"), ["--precision"]);
    assert.deepEqual(complete("doctor", "--in"), ["--index"]);
    assert.deepEqual(complete("train", "--pre"), []);
  });

  test("the values of an option are its choices", () => {
    assert.deepEqual(complete("train", "crossasset", "--precision", ""), ["f32", "tf32", "bf16"]);
    assert.deepEqual(complete("train", "crossasset", "--device", "c"), ["cpu", "cuda"]);
    assert.deepEqual(complete("train", "crossasset", "--device", "="), ["auto", "cpu", "cuda"]);
    assert.deepEqual(complete("train", "crossasset", "--device", "=", "cu"), ["cuda"]);
    assert.deepEqual(complete("train", "crossasset", "--epochs", ""), []);
    assert.deepEqual(complete("completion", "z"), ["zsh"]);
    assert.deepEqual(complete("explain", "OUT_"), ["OUT_OF_BUDGET", "OUT_OF_MEMORY"]);
  });

  test("paths are completed as files or as folders, with any characters in their names", () => {
    const files = [...complete("train", "crossasset", "--bars", "m")].sort();
    assert.deepEqual(files, ["market.csv", "my bars.csv", "my runs"]);
    assert.deepEqual(complete("bars", "check", "mar"), ["market.csv"]);
    assert.deepEqual([...complete("train", "crossasset", "--out", "")].sort(), ["my runs", "runs"]);
    assert.deepEqual(complete("health", "ru"), ["runs"]);
  });

  test("the value of an option is not taken for a command", () => {
    assert.deepEqual(complete("doctor", "--memory", "train", "--ind"), ["--index"]);
    assert.deepEqual(complete("train", "crossasset", "--out", "doctor", "--pre"), ["--precision"]);
  });
});

for (const shell of shells) {
  test(`${shell} has every command, option and choice`, () => {
    const script = scripts[shell] ?? "";
    const options = [...help.matchAll(/^ {2}--([a-z-]+)/gm)].map(([, name = ""]) => name);
    assert.ok(options.length > 15);
    for (const name of options)
      assert.ok(script.includes(shell === "fish" ? `-l ${name} ` : `--${name}`), `${shell}: ${name}`);
    for (const word of ["crossasset", "generate", "tf32", "OUT_OF_BUDGET"])
      assert.ok(script.includes(word), word);
  });

  test(`${shell} accepts the script's syntax`, {
    skip: !has(shell) && `there is no ${shell} here`,
  }, () => {
    const { status, stderr } = spawnSync(shell, ["-n"], { input: scripts[shell] ?? "", encoding: "utf8" });
    assert.deepEqual([status, stderr], [0, ""]);
  });
}

test("the help says how to install it, and another shell is a usage error", async () => {
  const { stdout } = await runCommand(["completion", "--help"]);
  assert.match(stdout, /source <\(holdfast completion bash\)/);
  const { status, stderr } = await runCommand(["completion", "tcsh"]);
  assert.equal(status, 2);
  assert.match(stderr, /Allowed choices are bash, zsh, fish/);
});
