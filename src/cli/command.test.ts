/** The command line: its output on stdout and stderr, and its exit codes. */

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { describe, test } from "node:test";
import type { Command } from "commander";
import { runCommand } from "../../test/support/run-command.js";
import { plainDevice, shortRunFlags } from "../../test/support/short-process.js";
import { errorCodes, exitCodes } from "../errors/index.js";
import { packagePath } from "../files/index.js";
import { settingsTable } from "../runtime/index.js";
import { buildProgram } from "./command.js";

const main = packagePath("dist/lib/main.js");

describe("holdfast tour", () => {
  test("shows the runtime, its errors and its diagnostics, and exits with 0", () => {
    const { PATH = "" } = process.env;
    const { status, stdout, stderr } = spawnSync(process.execPath, [...shortRunFlags, main, "tour"], {
      encoding: "utf8",
      env: { PATH, ...plainDevice },
    });
    assert.equal(status, 0, stderr);
    for (const pattern of [
      /20001 tensors, .* uploaded in \d copies/,
      /Committed after every step: 8 MiB\./,
      /DEAD_STORAGE: read-back: storage "attention output" is dead/,
      /OUT_OF_BUDGET: The budget cannot provide 1 GiB/,
      /Captured as a graph; after three replays .* is 0\.125\./,
      /CAPTURE_REJECTED: Allocation of 48 KiB by matmul is not allowed inside capture "bad step"/,
      /holdfast: memory on demand/,
    ]) {
      assert.match(stdout, pattern);
    }
    assert.match(stderr, /^holdfast: memory under pressure/);
  });

  test("ends with one message and exit code 4 for a bad setting", async () => {
    const { status, stderr } = await runCommand(["tour"], { env: { HOLDFAST_POISON: "yes" } });
    assert.equal(status, 4);
    assert.equal(
      stderr,
      'holdfast: BAD_SETTING: HOLDFAST_POISON: "yes" is not one of on, off. Example: on.\n',
    );
  });
});

test("holdfast settings names every variable with its default", async () => {
  const { status, stdout } = await runCommand(["settings"]);
  assert.equal(status, 0);
  for (const { variable, defaultText } of Object.values(settingsTable)) {
    assert.ok(stdout.includes(`${variable} (option `) && stdout.includes(`default ${defaultText}`), variable);
  }
});

test("holdfast explain explains a code, in either case, and rejects an unknown one", async () => {
  const { meaning, help } = errorCodes.OUT_OF_BUDGET;
  for (const code of ["OUT_OF_BUDGET", "out_of_budget"]) {
    assert.equal(
      (await runCommand(["explain", code])).stdout,
      `OUT_OF_BUDGET: ${meaning}\n  ${help}\n  Exit code: 1.\n`,
    );
  }
  assert.equal(
    (await runCommand(["explain", "4"])).stdout,
    `4: ${exitCodes.rejected.meaning}\n  Retry: fails again.\n`,
  );
  const { status, stderr } = await runCommand(["explain", "nonsense"]);
  assert.equal(status, 2);
  assert.match(stderr, /^error: .*'nonsense'.*The error codes are BAD_SETTING, .*The exit codes are 0, 1, /);
});

test("an unknown command, a missing argument and an empty command line are usage errors", async () => {
  for (const [args, help] of [
    [["trian"], "holdfast"],
    [["train", "crosasset"], "holdfast train"],
    [["explain"], "holdfast explain"],
    [["tour", "--fast"], "holdfast tour"],
  ] as const) {
    const { status, stderr } = await runCommand(args);
    assert.equal(status, 2, args.join(" "));
    assert.match(stderr, new RegExp(`Run ${help} --help to see its `));
  }
  assert.equal((await runCommand([])).status, 2);
});

test("--version and --help print and exit with 0", async () => {
  assert.match((await runCommand(["--version"])).stdout, /^\d+\.\d+\.\d+\n$/);
  const { status, stdout } = await runCommand(["--help"]);
  assert.equal(status, 0);
  assert.match(stdout, /tour +demonstrate the memory runtime/);
  for (const { code, meaning } of Object.values(exitCodes))
    assert.match(stdout, new RegExp(`^ {2}${code} +${meaning}$`, "m"));
  assert.deepEqual(
    stdout.split("\n").filter((line) => line.length > 80),
    [],
  );
});

describe("every command", () => {
  /** The program and all its commands, each with its words. */
  function commandsIn(command: Command, path: readonly string[] = []): (readonly [Command, string[]])[] {
    return [
      [command, [...path]],
      ...command.commands.flatMap((child) => commandsIn(child, [...path, child.name()])),
    ];
  }
  const all = commandsIn(buildProgram(() => undefined));

  test("has a description, and so do its options and arguments", () => {
    assert.ok(all.length > 12);
    for (const [command, path] of all) {
      const name = ["holdfast", ...path].join(" ");
      assert.match(command.description(), /^\w.{10,}[^.]\.?$/, name);
      for (const { flags, description } of command.createHelp().visibleOptions(command))
        assert.match(description, /^\w.{6,}$/, `${name} ${flags}`);
      for (const argument of command.registeredArguments)
        assert.match(argument.description, /^\w.{6,}$/, `${name} ${argument.name()}`);
    }
  });

  test("points to its own help after a wrong option", async () => {
    for (const [command, path] of all) {
      // Commander looks for these first.
      const needed = command.options.flatMap(({ mandatory, long }) => (mandatory ? [long ?? "", "x"] : []));
      const program = buildProgram(() => undefined);
      let errors = "";
      for (const [child] of commandsIn(program)) {
        child.configureOutput({
          writeErr: (text) => {
            errors += text;
          },
        });
      }
      await assert.rejects(program.parseAsync([...path, ...needed, "--no-such-option"], { from: "user" }), {
        code: "commander.unknownOption",
      });
      const words = ["holdfast", ...path].join(" ");
      assert.match(
        errors,
        new RegExp(`^error: unknown option '--no-such-option'\nRun ${words} --help to see its `),
      );
    }
  });
});
