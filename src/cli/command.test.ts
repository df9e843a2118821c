/** The command line as a person meets it: what it prints, where, and its exit codes. */

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import type { Command } from "commander";
import { errorCodes, exitCodes } from "../errors/index.js";
import { settingsTable } from "../runtime/index.js";
import { buildProgram } from "./command.js";

const main = fileURLToPath(new URL("./main.js", import.meta.url));

function holdfast(args: readonly string[], environment: Record<string, string> = {}) {
  const { PATH = "" } = process.env;
  const { status, stdout, stderr } = spawnSync(process.execPath, [main, ...args], {
    encoding: "utf8",
    env: { PATH, ...environment },
  });
  return { status, stdout, stderr };
}

describe("holdfast tour", () => {
  test("shows the runtime at work, its rejections and its diagnostics, and ends well", () => {
    const { status, stdout, stderr } = holdfast(["tour"]);
    assert.equal(status, 0, stderr);
    for (const part of [
      /20001 tensors, .* went up in \d copies/,
      /Committed after every step: 8 MiB\./,
      /DEAD_STORAGE: read-back of storage "attention output", which is dead/,
      /OUT_OF_BUDGET: The budget cannot provide 1 GiB/,
      /Captured as a graph; after three replays .* is 0\.125\./,
      /CAPTURE_REJECTED: allocation of 48 KiB by matmul inside capture "bad step"/,
      /holdfast: memory on demand/,
    ]) {
      assert.match(stdout, part);
    }
    assert.match(stderr, /^holdfast: memory at first pressure/);
  });

  test("is ended by a bad setting with one message and exit code 4", () => {
    const { status, stderr } = holdfast(["tour"], { HOLDFAST_POISON: "yes" });
    assert.equal(status, 4);
    assert.equal(stderr, 'holdfast: BAD_SETTING: HOLDFAST_POISON: "yes" is none of on, off. Example: on.\n');
  });
});

test("holdfast settings names every variable with its default", () => {
  const { status, stdout } = holdfast(["settings"]);
  assert.equal(status, 0);
  for (const { variable, defaultText } of Object.values(settingsTable)) {
    assert.ok(stdout.includes(`${variable} (option `) && stdout.includes(`default ${defaultText}`), variable);
  }
});

test("holdfast explain says what a code means, in either case, and rejects what is none", () => {
  const { meaning, help } = errorCodes.OUT_OF_BUDGET;
  for (const code of ["OUT_OF_BUDGET", "out_of_budget"]) {
    assert.equal(
      holdfast(["explain", code]).stdout,
      `OUT_OF_BUDGET: ${meaning}\n  ${help}\n  Exit code: 1.\n`,
    );
  }
  assert.equal(
    holdfast(["explain", "4"]).stdout,
    `4: ${exitCodes.rejected.meaning}\n  The same command again: fails again.\n`,
  );
  const { status, stderr } = holdfast(["explain", "nonsense"]);
  assert.equal(status, 2);
  assert.match(stderr, /^error: .*'nonsense'.*The error codes are BAD_SETTING, .*The exit codes are 0, 1, /);
});

test("an unknown command, a missing argument and no command at all are usage errors", () => {
  for (const [args, help] of [
    [["trian"], "holdfast"],
    [["train", "crosasset"], "holdfast train"],
    [["explain"], "holdfast explain"],
    [["tour", "--fast"], "holdfast tour"],
  ] as const) {
    const { status, stderr } = holdfast(args);
    assert.equal(status, 2, args.join(" "));
    assert.match(stderr, new RegExp(`Run ${help} --help to see its `));
  }
  assert.equal(holdfast([]).status, 2);
});

test("--version and --help print and end well", () => {
  assert.match(holdfast(["--version"]).stdout, /^\d+\.\d+\.\d+\n$/);
  const { status, stdout } = holdfast(["--help"]);
  assert.equal(status, 0);
  assert.match(stdout, /tour +show the memory runtime/);
  for (const { code, meaning } of Object.values(exitCodes))
    assert.match(stdout, new RegExp(`^ {2}${code} +${meaning}$`, "m"));
  assert.deepEqual(
    stdout.split("\n").filter((line) => line.length > 80),
    [],
  );
});

describe("every command", () => {
  /** The program, and every command below it with the words that lead there. */
  function commandsIn(command: Command, path: readonly string[] = []): (readonly [Command, string[]])[] {
    return [
      [command, [...path]],
      ...command.commands.flatMap((below) => commandsIn(below, [...path, below.name()])),
    ];
  }
  const all = commandsIn(buildProgram(() => undefined));

  test("says what it does, and so does each of its options and arguments", () => {
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

  test("answers a wrong option with its own help's name", async () => {
    for (const [command, path] of all) {
      // Commander looks for these first.
      const needed = command.options.flatMap(({ mandatory, long }) => (mandatory ? [long ?? "", "x"] : []));
      const program = buildProgram(() => undefined);
      let said = "";
      for (const [one] of commandsIn(program)) {
        one.configureOutput({
          writeErr: (text) => {
            said += text;
          },
        });
      }
      await assert.rejects(program.parseAsync([...path, ...needed, "--no-such-option"], { from: "user" }), {
        code: "commander.unknownOption",
      });
      const own = ["holdfast", ...path].join(" ");
      assert.match(
        said,
        new RegExp(`^error: unknown option '--no-such-option'\nRun ${own} --help to see its `),
      );
    }
  });
});
