/** Runs the test runner over a package that has just some sample tests. */

import { spawn } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { makeFolder } from "../folders.js";
import { repositoryRoot } from "../repository.js";

const opening = 'import test, { before, beforeEach, describe, it } from "node:test";';

const runner = join(repositoryRoot, "scripts/test.mjs");

export interface Outcome {
  readonly durationMs: number;
  readonly exitCode: number | null;
  readonly printed: string;
  readonly lastLine: string;
  /** What the run has left in bench/results. */
  readonly kept: readonly string[];
}

/** Text by path, without the ending of the path where that is always the same. */
export type Files = Readonly<Record<string, string>>;

export interface SampleOptions {
  readonly args?: readonly string[];
  /** Files that the tests import, by their paths below dist. */
  readonly imported?: Files;
  /** How long the runner thinks that files take. */
  readonly durations?: Readonly<Record<string, number>>;
}

function writeFiles(folder: string, files: Files): void {
  for (const [path, text] of Object.entries(files)) {
    const file = join(folder, path);
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, text);
  }
}

/** The sources of samples say by their folders what they need. Those of a stale sample are gone. */
function sourceOf(name: string): Files {
  const signs = [/\balone\//.test(name) && "@ownProcess: a sample"];
  signs.push(/\bwaiting\//.test(name) && "@mostlyWaits for nothing");
  return name.startsWith("stale") ? {} : { [`${name}.test.ts`]: `// ${signs.filter(Boolean).join(" ")}` };
}

/** Runs the runner over a package that has just these tests. */
export async function runSamples(
  samples: Files,
  { args = [], imported = {}, durations = {} }: SampleOptions = {},
): Promise<Outcome> {
  const root = makeFolder();
  writeFiles(root, {
    "package.json": '{ "type": "module" }',
    "scripts/testing/durations.json": JSON.stringify(durations),
  });
  for (const [name, code] of Object.entries(samples))
    writeFiles(root, { [`dist/${name}.test.js`]: `${opening}\n${code}`, ...sourceOf(name) });
  writeFiles(join(root, "dist"), imported);
  const env = { ...process.env, TEST_EFFORT: undefined };
  const startedAt = performance.now();
  const child = spawn(process.execPath, [runner, ...args], { cwd: root, env });
  let printed = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding("utf8").on("data", (chunk: string) => {
      printed += chunk;
    });
  }
  const exitCode = await new Promise<number | null>((resolve) => child.on("close", resolve));
  const durationMs = performance.now() - startedAt;
  const results = join(root, "bench/results");
  const kept = existsSync(results)
    ? readdirSync(results).map((name) => readFileSync(join(results, name), "utf8"))
    : [];
  return { durationMs, exitCode, printed, lastLine: printed.trimEnd().split("\n").at(-1) ?? "", kept };
}
