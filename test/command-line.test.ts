/** Programs of the repository tell how they are used. */

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { test } from "node:test";
import { usage } from "./support/command-line.js";
import { filesBelow, readRepositoryFile, repositoryRoot } from "./support/repository.js";

function run(...args: readonly string[]) {
  const { status, stdout, stderr } = spawnSync(process.execPath, args, {
    cwd: repositoryRoot,
    encoding: "utf8",
  });
  return { status, stdout, stderr };
}

test("the usage of a program is the beginning of its source, and its options with their defaults", () => {
  const program = new URL("run-onnx.js", import.meta.url).href;
  const text = usage(program, { only: { type: "string", default: "a,b" }, save: { type: "boolean" } });
  assert.match(text, /^`npm run test:onnx`/);
  assert.match(text, /\n\nOptions:\n {2}--only TEXT {2}\(default: a,b\)\n {2}--save\n {2}--help$/);
});

test("--help prints the usage, and an unknown option is named without a stack", () => {
  const program = join(repositoryRoot, "dist/test/run-onnx.js");
  const help = run(program, "--help");
  assert.deepEqual([help.status, help.stderr], [0, ""]);
  assert.match(help.stdout, /^`npm run test:onnx`[\s\S]*--install/);
  const unknown = run(program, "--instal");
  assert.deepEqual([unknown.status, unknown.stdout], [2, ""]);
  assert.match(unknown.stderr, /^Unknown option '--instal'[\s\S]*\n {2}--install\n/);
  assert.doesNotMatch(unknown.stderr, /^ +at /m);
  const suite = run("scripts/test.mjs", "--help");
  assert.equal(suite.status, 0);
  assert.match(suite.stdout, /^`npm test`: runs[\s\S]*--at-once 8/);
});

test("every benchmark that npm starts, and every program that reads options, answers --help", () => {
  const { scripts } = JSON.parse(readRepositoryFile("package.json")) as { scripts: Record<string, string> };
  const started = Object.values(scripts).flatMap(
    (script) => /dist\/(bench\/\S+)\.js/.exec(script)?.[1] ?? [],
  );
  assert.ok(started.length > 8);
  for (const program of started)
    assert.match(
      readRepositoryFile(`${program}.ts`),
      /\b(?:readOptions|answerHelp)\(import\.meta\.url/,
      program,
    );
  for (const file of [...filesBelow("bench", ".ts"), ...filesBelow("test", ".ts")])
    if (file !== "test/support/command-line.ts")
      assert.doesNotMatch(readRepositoryFile(file), /\bparseArgs\(\{/, file);
});
