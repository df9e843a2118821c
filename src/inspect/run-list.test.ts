/** Runs are found by listing their folder: neither a name nor a link leads out of it. */

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdirSync, renameSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { makeFolder } from "../../test/support/folders.js";
import { rejects } from "../../test/support/rejects.js";
import { writeSampleRun } from "../../test/support/sample-run.js";
import { findRun, findShown, listRuns } from "./run-list.js";

test("folders with a file of a run are runs; other folders and files are not", () => {
  const root = makeFolder();
  writeSampleRun(root, "whole", { steps: 1 });
  mkdirSync(join(root, "begun", "checkpoints"), { recursive: true });
  mkdirSync(join(root, "unrelated"));
  writeFileSync(join(root, "run.txt"), "");
  const names = listRuns({ root }).map(({ name }) => name);
  assert.deepEqual(names.sort(), ["begun", "whole"]);
});

test("a run's folder is distinguished from a folder of runs, and anything else is rejected", () => {
  const root = makeFolder();
  const { path } = writeSampleRun(root, "one", { steps: 1 });
  assert.deepEqual(findShown(root), { root });
  assert.deepEqual(findShown(path), { root, run: "one" });
  rejects("BAD_FILE", () => findShown(join(path, "run.json")), /is not a folder/);
  rejects("BAD_FILE", () => findShown(join(root, "none")), /is not a folder/);
});

test("only a name in the list finds a run: no path does", () => {
  const outer = makeFolder();
  writeSampleRun(outer, "secret", { steps: 1 });
  const root = join(outer, "runs");
  writeSampleRun(root, "one", { steps: 1 });
  assert.equal(findRun({ root }, "one")?.name, "one");
  for (const name of ["../secret", "..", ".", "", "one/", "./one", "one/../one", `${outer}/secret`, "ONE\0"])
    assert.equal(findRun({ root }, name), undefined, name);
});

test("a link to an outside folder is not a run; a link inside is", () => {
  const outer = makeFolder();
  const { path } = writeSampleRun(outer, "secret", { steps: 1 });
  const root = join(outer, "runs");
  writeSampleRun(root, "one", { steps: 1 });
  symlinkSync(path, join(root, "out"));
  symlinkSync(join(root, "one"), join(root, "latest"));
  symlinkSync(join(root, "gone"), join(root, "broken"));
  const names = listRuns({ root }).map(({ name }) => name);
  assert.deepEqual(names.sort(), ["latest", "one"]);
});

test("a run is not read if one of its files is a link to outside, a folder or a pipe", (t) => {
  const outer = makeFolder();
  const root = join(outer, "runs");
  const { path } = writeSampleRun(root, "one", { steps: 1 });
  assert.equal(findRun({ root }, "one")?.rejection, undefined);
  const metrics = join(path, "metrics.jsonl");
  renameSync(metrics, join(path, "kept.jsonl"));
  symlinkSync(join(path, "kept.jsonl"), metrics);
  assert.equal(findRun({ root }, "one")?.rejection, undefined);
  rmSync(metrics);
  writeFileSync(join(outer, "secret.jsonl"), '{"secret":1}\n');
  symlinkSync(join(outer, "secret.jsonl"), metrics);
  assert.match(findRun({ root }, "one")?.rejection ?? "", /metrics\.jsonl is a link out of the folder/);
  rmSync(metrics);
  mkdirSync(metrics);
  assert.match(findRun({ root }, "one")?.rejection ?? "", /metrics\.jsonl is not a regular file/);
  rmSync(metrics, { recursive: true });
  if (spawnSync("mkfifo", [metrics]).status !== 0) return t.diagnostic("no pipes can be made here");
  assert.match(findRun({ root }, "one")?.rejection ?? "", /metrics\.jsonl is not a regular file/);
});
